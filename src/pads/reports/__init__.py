"""A run folder, drawn: `pads report RUN` (report.py) writes one page, its pictures and its numbers."""
