"""The documentation site: `make docs`. Plain Sphinx and MyST, since these will still be kept in ten years."""

import pads

project = "pads"
author = "the pads team"
release = version = pads.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing",
    "myst.header",
]  # pages link to files of the repository too; a test checks them
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pads"
html_copy_source = False
