"""The figures of the page on trust are those of the runs that are kept."""

from __future__ import annotations

from crash.torture import KEPT, PAGE, read_records, summary, with_figures


def test_the_page_and_the_table_tell_what_is_kept():
    assert read_records(KEPT)
    assert PAGE.read_text() == with_figures(PAGE.read_text())
    assert (KEPT / "README.md").read_text() == summary(KEPT)
