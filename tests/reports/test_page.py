"""The page in a real browser, opened from disk."""

from __future__ import annotations

import shutil
import time

import pytest
from playwright.sync_api import sync_playwright

from pads.reports import report
from pads.reports.report import write_report

from .conftest import EVIL

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: the page was not opened in a browser"
)


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """The address of a page for each kind of report."""
    folder = tmp_path_factory.mktemp("pages")
    kinds = {
        "one": [runs["pads"]],
        "several": [runs["pads"], runs["pads-1"], runs["static"]],
        "static": [runs["static"]],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "has_matplotlib", lambda: False)
        made = {kind: write_report(given, folder / f"{kind}.html").page for kind, given in kinds.items()}
        gone = runs["pads"].path.parent / "gone"
        shutil.copytree(runs["pads"].path, gone)
        text = (gone / "config.json").read_text().replace("photos", "nowhere")
        (gone / "config.json").write_text(text)
        made["gone"] = write_report([gone], folder / "gone.html").page
    return {kind: path.as_uri() for kind, path in made.items()}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, pages):
    """Opens a page; at the end nothing may have been said on the console, and nothing asked of the network."""
    contexts, said = [], []

    def open_(kind, width=1200, **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda asked: said.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(pages[kind])
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []


def ink(page, canvas):
    """What a canvas shows, to compare."""
    return page.evaluate("(id) => document.getElementById(id).toDataURL()", canvas)


def wait_until(page, holds):
    """Playwright's own wait evaluates a text as a script, which the page forbids."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        page.wait_for_timeout(20)


def zoom(page):
    return float(page.get_attribute("#map-canvas", "data-zoom"))


@pytest.mark.parametrize("kind", ["one", "several", "static", "gone"])
def test_every_kind_of_report_opens_on_a_phone_without_scrolling_sideways(open_page, kind):
    page = open_page(kind, width=360, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.title() != "hacked"


def test_the_slider_moves_the_cursor_and_the_histogram(open_page):
    page = open_page("one")
    before = {name: ink(page, name) for name in ("heat-linear", "heat-log", "heat-drawn", "histogram")}
    cursor = page.get_attribute("#heat-linear", "data-cursor")
    slider = page.locator("#step")
    assert slider.get_attribute("aria-valuetext") != "step 0"
    slider.focus()
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "step 0"
    assert float(page.get_attribute("#heat-linear", "data-cursor")) < float(cursor)
    assert all(ink(page, name) != picture for name, picture in before.items())
    assert page.inner_text("#step-output").startswith("step 0 of")


def test_play_runs_through_the_training_unless_motion_is_unwanted(open_page):
    page = open_page("one")
    page.click("#play")
    last = int(page.get_attribute("#step", "max"))
    wait_until(page, lambda: 0 < int(page.input_value("#step")) < last)
    assert page.inner_text("#play") == "Pause"
    assert not open_page("one", reduced_motion="reduce").is_visible("#play")


def test_the_mean_and_each_run_can_be_shown(open_page):
    page = open_page("several")
    options = page.locator("#distribution option").all_inner_texts()
    assert options[0] == "folder: mean of 2 runs"
    mean = ink(page, "heat-linear")
    page.select_option("#distribution", label="folder, seed 1")
    assert ink(page, "heat-linear") != mean
    page.select_option("#distribution", label="static, seed 0")
    assert not page.is_visible("#heat-linear")
    assert page.is_visible("#heat-drawn")
    assert "distance-weighted" in page.inner_text("#sampling-caption")


def test_the_search_box_finds_a_class_and_leads_to_its_page(open_page):
    page = open_page("one")
    before = ink(page, "map-canvas")
    page.fill("#search", "ZEB")
    wait_until(page, lambda: ink(page, "map-canvas") != before)
    assert page.inner_text("#search-status") == "zebra"
    marked = ink(page, "map-canvas")
    page.keyboard.press("Enter")
    wait_until(page, lambda: ink(page, "map-canvas") != marked)
    page.click("#search-status button")
    assert page.locator(".class-page h3").inner_text().startswith("zebra")
    assert page.locator(".class-page .row").count() == 6
    page.fill("#search", "no such thing")
    assert page.inner_text("#search-status") == "no class of that name"


def test_pointing_at_an_image_shows_it_and_its_class(open_page):
    page = open_page("one")
    page.locator("#map-canvas").scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
          const box = document.getElementById("map-canvas").getBoundingClientRect();
          const scale = 0.94 * Math.min(box.width, box.height);
          return [box.left + box.width / 2 + (LOOK.x[0] - 0.5) * scale, box.top + box.height / 2 + (LOOK.y[0] - 0.5) * scale];
        }"""
    )
    page.mouse.move(*place)
    page.wait_for_selector("#tip:not([hidden]) .thumb")
    assert page.inner_text("#tip").splitlines()[0] in page.evaluate("LOOK.classes")
    page.mouse.move(5, 5)
    page.wait_for_selector("#tip", state="hidden")


def test_the_map_can_be_moved_by_keys_and_shows_pictures_when_near(open_page):
    page = open_page("one")
    assert page.get_attribute("#map-canvas", "data-pictures") == "30"  # so few that there is room for all
    page.focus("#map-canvas")
    before = ink(page, "map-canvas")
    page.keyboard.press("+")
    wait_until(page, lambda: zoom(page) > 1)
    page.keyboard.press("ArrowLeft")
    assert ink(page, "map-canvas") != before
    page.keyboard.press("0")
    wait_until(page, lambda: zoom(page) == 1)


def test_the_gallery_marks_right_and_wrong_by_sign_as_well_as_colour(open_page):
    page = open_page("one")
    for row in page.locator("#good .row, #bad .row").all():
        assert row.locator(".shot.query").count() == 1
        for shot in row.locator(".shot.right, .shot.wrong").all():
            name = shot.get_attribute("aria-label")
            assert shot.locator(".mark").inner_text() == ("✓" if name.startswith("right: ") else "✗")
    own = page.locator("#good .row").first.locator(".shot.query").get_attribute("aria-label").split(", ")[0][7:]
    right = page.locator("#good .row").first.locator(".shot.right").first.get_attribute("aria-label")
    assert right.split(", ")[0] == f"right: {own}"


def test_a_class_with_a_wicked_name_is_shown_by_that_name(open_page):
    page = open_page("one")
    page.fill("#class-search", EVIL)
    assert page.locator(".class-page h3").inner_text().startswith(EVIL)
    assert page.locator("main img").count() == 0
    assert page.title() != "hacked"


def test_a_chart_tells_its_values_to_the_keyboard(open_page):
    page = open_page("several")
    chart = page.locator("#charts svg[role=img]").first
    assert chart.get_attribute("aria-label").startswith("Loss, at the end: folder: ")
    chart.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#tip:not([hidden])")
    words = page.inner_text("#tip").splitlines()
    assert words[0] == "step 2"
    assert "±" in words[1]
    assert words[2].startswith("static: ")


def test_dark_and_light_differ_and_a_change_is_followed(open_page):
    page = open_page("one", color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, picture = page.evaluate(ground), ink(page, "histogram")
    page.emulate_media(color_scheme="light")
    wait_until(page, lambda: ink(page, "histogram") != picture)
    assert page.evaluate(ground) != dark


def test_a_report_without_images_says_why(open_page):
    page = open_page("gone")
    for part in ("map", "gallery"):
        assert "there is no folder" in page.inner_text(f"#{part}-missing")
        assert not page.is_visible(f"#{part}-body")
    assert not page.is_visible("#classes")
    assert page.locator("#charts figure").count() > 5
