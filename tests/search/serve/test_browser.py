"""The page in a real browser."""

import io
import re
import shutil
import threading
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from pads.config import Config, Part
from pads.runs import RunFolder
from pads.search.serve.served import Served

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, so the page cannot be tried")

EVIL = "<img src=x onerror=window.hacked=1>"


SEND = """([kind, content]) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(content)], "there.png", {type: "image/png"}));
    const event = kind === "paste" ? new ClipboardEvent("paste", {clipboardData: data, bubbles: true})
        : new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true});
    document.querySelector("main").dispatchEvent(event);
}"""
"""Pastes, drags or drops a file: its bytes, or how many there are."""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop(served, serving):
    with serving(served) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Opens pages, and fails where one of them complains or runs what a name says."""
    opened, complaints = [], []

    def open_at(address, *, width=1100, height=800, may_complain=False, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        page.set_default_timeout(15_000)
        if not may_complain:
            page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        page.goto(address)
        opened.append((context, page))
        return page

    yield open_at
    hacked = [page.evaluate("window.hacked") for _, page in opened]
    for context, _ in opened:
        context.close()
    assert complaints == []
    assert not any(hacked)


def leave(page):
    """Before its server stops, of which a page that goes on asking would complain."""
    assert not page.evaluate("window.hacked")
    page.goto("about:blank")


def png(seed=0):
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 30, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def pick(page, name="mine.png", kind="image/png", content=None):
    """Picks a file as soon as the page lets one."""
    page.wait_for_selector("#drop")
    page.set_input_files("#pick", {"name": name, "mimeType": kind, "buffer": png() if content is None else content})


def searched(page):
    """Waits for neighbours; the addresses of their cards."""
    page.wait_for_selector(".card .measure")
    page.wait_for_selector("#cards:not([aria-busy])")
    return [card.get_attribute("href") for card in page.locator(".card").all()]


def no_sideways_scrolling(page):
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


# -- searching ---------------------------------------------------------------------------------------------------------


def test_the_page_begins_with_images_to_start_from(open_page, shop):
    page = open_page(shop)
    page.wait_for_selector(".card")
    assert page.locator("#heading").inner_text() == "Start with one of these"
    assert page.title() == "shop · pads"
    assert "30 images · 6 classes" in page.locator("#summary").inner_text()
    before = page.locator("#cards").inner_text()
    page.click("text=Show others")
    page.wait_for_function("before => document.querySelector('#cards').innerText !== before", arg=before)


def test_an_upload_is_searched_with_and_the_results_lead_on_and_back(open_page, shop, served):
    page = open_page(shop)
    pick(page)
    first = searched(page)
    assert len(first) == 24
    assert page.locator("#asked .label").inner_text() == "Your image"
    assert "Embedded in" in page.locator("#timing").inner_text()
    distances = [float(text) for text in page.locator(".measure .number").all_inner_texts()]
    assert distances == sorted(distances)
    widths = [box.evaluate("box => box.getBoundingClientRect().width") for box in page.locator(".fill").all()]
    assert widths == sorted(widths)

    page.locator(".card").nth(2).click()
    page.wait_for_function("() => !document.querySelector('#asked .label').innerText.includes('Your')")
    row = int(re.search(r"row=(\d+)", page.url).group(1))
    expected = [each["row"] for each in served.ready().near_row(row, 24, None, None)["neighbours"]]
    assert [int(re.search(r"row=(\d+)", href).group(1)) for href in searched(page)] == expected
    page.go_back()
    page.wait_for_function("() => document.querySelector('#asked .label').innerText.includes('Your')")
    assert searched(page) == first


def test_an_image_can_be_pasted_and_dropped(open_page, shop):
    page = open_page(shop)
    page.wait_for_selector(".card")
    page.evaluate(SEND, ["paste", list(png(1))])
    searched(page)
    assert page.locator("#asked .path").inner_text() == "there.png"
    page.click("#clear")
    page.wait_for_selector("text=Start with one of these")
    page.evaluate(SEND, ["dragenter", []])
    assert page.locator("#veil").is_visible()
    page.evaluate(SEND, ["drop", list(png(2))])
    searched(page)
    assert page.locator("#veil").is_hidden()


def test_a_class_can_be_picked_by_typing_and_names_are_only_text(open_page, shop):
    page = open_page(shop)
    pick(page)
    searched(page)
    page.click("#filter")
    assert page.locator("#filter-list [role=option]").count() == 6
    page.keyboard.type("IMG SRC")
    assert page.locator("#filter-list [role=option]").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 5")
    assert set(page.locator(".card .label").all_inner_texts()) == {EVIL}
    assert EVIL in page.locator("#heading").inner_text()
    assert page.locator("#filter").input_value() == EVIL
    assert page.locator("#cards img[src=x]").count() == 0
    page.click("#filter-clear")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 24")


def test_every_class_name_survives_the_way_through_list_address_and_server(open_page, shop, served):
    page = open_page(f"{shop}/#search?row=0")
    searched(page)
    for number, label in enumerate(sorted(served.ready().counts)):
        page.click("#filter")
        page.locator("#filter-list [role=option]").nth(number).click()
        page.wait_for_function("label => document.querySelector('#heading').textContent.includes(label)", arg=label)
        assert {text.strip("✓ ") for text in page.locator(".card .label bdi").all_text_contents()} == {label}


def test_neighbours_are_marked_as_the_same_item_by_the_precision_that_is_picked(open_page, shop, served):
    page = open_page(f"{shop}/#search?row=0")
    searched(page)
    assert page.locator(".badge").count() == 0
    for precision in ("50 %", "95 %"):
        value = page.locator("#precision option", has_text=precision).get_attribute("value")
        page.select_option("#precision", value)
        found = served.ready().near_row(0, 24, None, None)["neighbours"]
        marks = served.ready().index.marks(float(value))
        words = {"same": "same item", "other": "other item", "unsure": "unsure"}
        expected = [words[marks.call(each["distance"])] for each in found]
        assert page.locator(".badge").all_text_contents() == expected
        assert page.locator(".tick").count() == 24
    assert page.locator("#promise").is_hidden()  # 95 % can be had


def test_more_neighbours_can_be_shown_until_there_are_no_more(open_page, shop):
    page = open_page(f"{shop}/#search?row=0")
    searched(page)
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 29")
    assert page.locator("#more").is_hidden()


def test_the_image_is_shown_in_full_size_and_escape_goes_back_step_by_step(open_page, shop):
    page = open_page(f"{shop}/#search?row=0")
    searched(page)
    page.click("#enlarge")
    page.wait_for_function("() => document.querySelector('#viewer img').naturalWidth === 30")
    page.keyboard.press("Escape")
    assert page.locator("#viewer").is_hidden()
    assert page.locator("#asked").is_visible()
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Start with one of these")
    assert page.locator("#asked").is_hidden()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_bad_upload_is_answered_with_the_server_s_sentence(open_page, shop):
    page = open_page(shop, may_complain=True)
    pick(page, content=b"nonsense")
    page.wait_for_selector("#error:not([hidden])")
    assert page.locator("#error p").inner_text().startswith("This is not an image")
    page.keyboard.press("Escape")
    assert page.locator("#error").is_hidden()
    pick(page)
    searched(page)


def test_what_is_no_image_or_too_large_is_not_even_sent(open_page, shop):
    page = open_page(shop)
    page.wait_for_selector(".card")
    pick(page, "notes.txt", "text/plain", b"words")
    assert "This is not an image: notes.txt." in page.locator("#error p").inner_text()
    page.evaluate(SEND, ["paste", 25_000_001])
    assert "25 MB at most, and there.png has 25.0" in page.locator("#error p").inner_text()
    assert page.locator("#asked").is_hidden()


def test_a_server_that_has_stopped_is_told(open_page, shop):
    page = open_page(shop, may_complain=True)
    page.wait_for_selector(".card")
    page.route("**/api/**", lambda route: route.abort())
    page.locator(".card").first.click()
    page.wait_for_selector("#error:not([hidden])")
    assert "is pads serve still running?" in page.locator("#error p").inner_text()


def test_an_address_of_nothing_says_so(open_page, shop):
    page = open_page(f"{shop}/#search?row=999", may_complain=True)
    page.wait_for_selector("#error:not([hidden])")
    assert "no row 999" in page.locator("#error p").inner_text()
    page = open_page(f"{shop}/#nonsense?row=x&k=y")
    page.wait_for_selector("text=Start with one of these")


# -- map ---------------------------------------------------------------------------------------------------------------


def test_the_map_shows_who_is_where_and_a_click_searches(open_page, shop, served, wait_until):
    wait_until(lambda: served.ready().map.state == "ready")
    page = open_page(f"{shop}/#map")
    page.wait_for_selector("#map-note:not(:empty)")
    assert "30 images, laid out by PCA." in page.locator("#map-note").inner_text()
    box = page.locator("#canvas").bounding_box()
    layout = served.ready().map.layout
    row, (x, y) = int(layout.rows_M[3]), layout.xy_M2[3].tolist()
    side = min(box["width"], box["height"]) - 32
    at = box["x"] + box["width"] / 2 + (x - 0.5) * side, box["y"] + box["height"] / 2 - (y - 0.5) * side
    page.mouse.move(*at)
    page.wait_for_selector("#tip:not([hidden])")
    assert page.locator("#tip bdi").text_content() == served.ready().labels[row]
    page.wait_for_function("() => document.querySelector('#tip img').naturalWidth > 0")
    page.mouse.click(*at)
    found = searched(page)
    assert f"row={row}" in page.url
    page.click("nav >> text=Map")
    page.click("nav >> text=Search")
    assert f"row={row}" in page.url
    assert searched(page) == found


def test_the_map_can_be_moved_and_zoomed_by_hand(open_page, shop, served, wait_until):
    wait_until(lambda: served.ready().map.state == "ready")
    page = open_page(f"{shop}/#map")
    page.wait_for_selector("#map-note:not(:empty)")
    picture = "document.querySelector('#canvas').toDataURL()"
    seen = [page.evaluate(picture)]

    def has_changed():
        page.wait_for_function(f"before => {picture} !== before", arg=seen[-1])
        seen.append(page.evaluate(picture))

    page.mouse.move(500, 400)
    page.mouse.wheel(0, -500)
    has_changed()
    page.mouse.down()
    page.mouse.move(560, 430, steps=3)
    page.mouse.up()
    has_changed()
    assert "#map" in page.url  # a drag is not a click
    page.click("#zoom-out")
    has_changed()
    page.click("#zoom-all")
    has_changed()


def test_the_page_searches_while_the_map_is_being_made(open_page, shop, served, monkeypatch):
    monkeypatch.setattr(served.ready().map, "layout", None)
    monkeypatch.setattr(served.ready().map, "state", "computing")
    page = open_page(f"{shop}/#map")
    page.wait_for_selector("text=The map is being laid out")
    page.click("text=Search")
    page.locator(".card").first.click()
    searched(page)


# -- hands, eyes and small screens -------------------------------------------------------------------------------------


def test_everything_works_with_the_keyboard_alone(open_page, shop, served, wait_until):
    wait_until(lambda: served.ready().map.state == "ready")
    page = open_page(f"{shop}/#search?row=0")
    searched(page)
    order = []
    for _ in range(9):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 6)"))
        outline = page.evaluate(
            "(() => { const e = document.activeElement, f = e.id === 'pick' ? e.parentElement : e;"
            "return getComputedStyle(f).outlineStyle })()"
        )
        assert outline == "solid", order[-1]
    assert order[:2] == ["Search", "Map"]
    assert order[2:7] == ["enlarge", "clear", "pick", "filter", "precision"]
    assert page.evaluate("document.activeElement.className").startswith("card")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !location.hash.includes('row=0')")
    searched(page)
    page.focus("#filter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#filter-list [aria-selected=true]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#filter-list").is_hidden()
    assert page.locator("#asked").is_visible()
    page.focus("text=Map")
    page.keyboard.press("Enter")
    page.wait_for_selector("#map-note:not(:empty)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "canvas"
    page.wait_for_selector("#tip:not([hidden])")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    searched(page)


@pytest.mark.parametrize("where", ["", "#search?row=0", "#map", "docs"])
def test_a_phone_needs_no_sideways_scrolling(open_page, shop, where):
    page = open_page(f"{shop}/{where}", width=360, height=740)
    page.wait_for_selector("#map-note:not(:empty)" if where == "#map" else ".panel" if where == "docs" else ".card")
    assert no_sideways_scrolling(page)
    assert page.evaluate("document.querySelector('meta[name=viewport]') !== null")


def test_dark_where_the_system_is_dark(open_page, shop):
    grounds = []
    for scheme in ("light", "dark"):
        page = open_page(shop, color_scheme=scheme)
        page.wait_for_selector(".card")
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        texts = page.evaluate("getComputedStyle(document.body).color")
        assert brightness(texts) < brightness(grounds[-1]) if scheme == "light" else brightness(texts) > 200
    assert brightness(grounds[0]) > 200 > 50 > brightness(grounds[1])


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_the_documentation_of_the_api_needs_no_network(open_page, shop):
    page = open_page(f"{shop}/docs")
    page.wait_for_selector(".panel")
    assert "/api/search" in page.locator("#docs").inner_text()
    assert f"curl '{shop}/api/search?row=0'" in page.locator("#docs").inner_text()
    assert page.evaluate(f"performance.getEntriesByType('resource').every(e => e.name.startsWith('{shop}'))")


# -- runs --------------------------------------------------------------------------------------------------------------


def events(step):
    p = np.linspace(1, 2 + step % 5, 30)
    metrics = {"recall@1": 0.1 + step / 100, "nmi": 0.5}
    yield {"event": "training", "step": step, "loss": 1 / step, "drawn": (p[::-1] / p.sum()).tolist()}
    yield {"event": "adaptation", "step": step, "reward": 1, "distribution": (p / p.sum()).tolist(), **metrics}


def test_the_curves_of_a_run_move_without_a_reload(open_page, serving, tmp_path):
    run = RunFolder.create(tmp_path / "live", Config(recipe=EVIL, curriculum=Part("learned")))
    with closing(Served(run.path)) as served, serving(served) as address, run:
        page = open_page(address)
        page.wait_for_selector("text=Nothing has been recorded yet")
        assert page.url.endswith("#run")
        assert page.locator(".run h2").inner_text().startswith(EVIL)
        page.evaluate("window.stayed = true")
        for step in range(1, 4):
            for event in events(step):
                run.append("events.jsonl", event)
            page.wait_for_function(
                "value => document.querySelector('[data-name=loss] .number')?.textContent === value",
                arg={1: "1", 2: "0.5", 3: "0.3333"}[step],
            )
        assert page.locator(".pill").inner_text() == "training"
        assert page.locator(".distribution .number").inner_text() == "step 3, the newest"
        bars = "[...document.querySelectorAll('.bin')].map(bar => bar.getAttribute('height')).join()"
        newest = page.evaluate(bars)
        page.locator(".distribution input").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator(".distribution .number").inner_text() == "step 2"
        assert page.evaluate(bars) != newest
        page.click("text=Search")
        page.wait_for_selector("text=Still training")
        assert page.evaluate("window.stayed")
        leave(page)


def test_a_finished_run_shows_how_the_index_is_built_and_then_searches(open_page, serving, run, tmp_path, monkeypatch):
    may_go, build = threading.Event(), Served._test_index

    def slow(self, folder, data):
        self._progress("embedding", 3, 12)
        may_go.wait(20)
        return build(self, folder, data)

    monkeypatch.setattr(Served, "_test_index", slow)
    path = shutil.copytree(run.path, tmp_path / "done")
    (path / "report.html").write_text("<h1>A report</h1>")
    with closing(Served(path)) as served, serving(served) as address:
        page = open_page(f"{address}/#search")
        page.wait_for_selector("text=Building the index")
        assert "3 of 12 images" in page.locator("#waiting p").inner_text()
        page.click("nav >> text=Run")
        page.wait_for_selector("caption")
        assert page.locator(".figures tbody tr").count() == 3
        assert page.locator(".pill").inner_text() == "finished"
        with page.context.expect_page() as opened:
            page.click("text=Report")
        assert opened.value.locator("h1").inner_text() == "A report"
        page.click("nav >> text=Search")
        may_go.set()
        page.wait_for_selector(".card")
        assert "18 test images" in page.locator("#summary").inner_text()
        page.locator(".card").first.click()
        searched(page)
        leave(page)


@pytest.mark.parametrize("width", [360, 1100])
def test_a_run_fits_every_screen(open_page, serving, run, tmp_path, width):
    path = shutil.copytree(run.path, tmp_path / "done")
    with closing(Served(path)) as served, serving(served) as address:
        page = open_page(f"{address}/#run", width=width)
        page.wait_for_selector(".curve svg")
        assert no_sideways_scrolling(page)
        leave(page)
