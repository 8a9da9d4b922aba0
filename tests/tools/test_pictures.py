"""The pictures of findings and reproduction are drawn from the evidence; each in docs/pictures is shown by a page."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


OF_A_RUN = {"initial-distribution.png", "reproduction-figure-6.png", "reproduction-figure-7.png"}
"""`pads report` draws these: they need the network of a run."""


def test_every_picture_of_findings_and_reproduction_is_drawn(load_tool, tmp_path, monkeypatch):
    tool = load_tool("pictures")
    monkeypatch.setattr(tool, "PICTURES", tmp_path)
    tool.main()
    drawn = {path.name for path in tmp_path.iterdir() if path.stat().st_size > 10_000}
    pages = "".join((DOCS / name).read_text() for name in ("findings.md", "reproduction.md"))
    assert drawn == set(re.findall(r"\(pictures/([^)]+)\)", pages)) - OF_A_RUN


def test_every_picture_is_shown_by_a_page():
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\(pictures/([^)]+)\)", page.read_text())}
    assert {path.name for path in (DOCS / "pictures").iterdir()} == shown
