"""The pictures of docs/findings.md are drawn from the evidence, and no picture lies in docs/pictures that no page shows."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_picture_of_the_findings_is_drawn(load_tool, tmp_path, monkeypatch):
    tool = load_tool("pictures")
    monkeypatch.setattr(tool, "PICTURES", tmp_path)
    tool.main()
    drawn = {path.name for path in tmp_path.iterdir() if path.stat().st_size > 10_000}
    assert drawn == set(re.findall(r"\(pictures/([^)]+)\)", (DOCS / "findings.md").read_text()))


def test_every_picture_is_shown_by_a_page():
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\(pictures/([^)]+)\)", page.read_text())}
    assert {path.name for path in (DOCS / "pictures").iterdir()} == shown
