"""The documentation site: `make docs`. Plain Sphinx and MyST, since these will still be kept in ten years."""

import re
import sys
from pathlib import Path

import pads

sys.path.insert(0, str(Path(__file__).parent))
from reference import fill

project = "pads"
author = "the pads team"
release = version = pads.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pads"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
python_maximum_signature_line_length = 100
add_module_names = False

ROOT = Path(__file__).parent.parent
TAKEN_OVER = {"speed": "benchmarks/README.md"}
"""Pages of the site that are files of the repository elsewhere."""


def evidence_of(path):
    """Return a page of results/ as a section, with the name of its folder for a target."""
    name = "-".join(path.relative_to(ROOT / "results").parts[:-1])
    text = re.sub(r"^(#+ )", r"#\1", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\]\(\.\./([^/)]+)/README\.md\)", r"](#\1)", text.replace("](../../docs/", "]("))
    return f"({name})=\n" + re.sub(r"\]\(([a-z0-9]+)/claims\.md\)", rf"](#{name}-\1)", text)


def for_the_site(app, docname, source):
    """Links that are right in the repository, made right for the site: a dead one fails the build."""
    text = source[0]
    if docname in TAKEN_OVER:
        text = (ROOT / TAKEN_OVER[docname]).read_text()
        app.env.note_dependency(ROOT / TAKEN_OVER[docname], docname=docname)
    if docname == "studies":  # RESULTS.md stands there, one level of headings deeper
        _, _, results = (ROOT / "RESULTS.md").read_text().partition("\n")
        results = results.replace("\n## ", "\n### ").replace("](docs/", "](").replace("](results/", "](../results/")
        text = text.replace("<!-- RESULTS.md -->", results)
        app.env.note_dependency(ROOT / "RESULTS.md", docname=docname)
    if docname == "evidence":
        pages = sorted([*(ROOT / "results").glob("*/README.md"), *(ROOT / "results").glob("*/*/claims.md")])
        text = "# Evidence\n\n" + "\n".join(map(evidence_of, pages))
        for path in pages:
            app.env.note_dependency(path, docname=docname)
    for page, path in TAKEN_OVER.items():
        text = text.replace(f"](../{path}", f"]({page}.md")
    text = text.replace("](../RESULTS.md", "](studies.md#results")
    text = re.sub(r"\]\(\.\./results/([^/)]+)/(README\.md)?\)", r"](evidence.md#\1)", text)
    source[0] = fill(text.replace("](../docs/", "]("))


def written_anew(app, env, added, changed, removed):
    """Name the pages that are generated: what they show may have changed although they have not."""
    return [name for name in env.found_docs if "<!-- generated: " in Path(env.doc2path(name)).read_text()]


def setup(app):
    app.connect("source-read", for_the_site)
    app.connect("env-get-outdated", written_anew)
