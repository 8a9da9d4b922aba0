"""Turns a terminal's screen into an SVG picture for the docs.

tmux capture-pane -e -p | python tools/terminal_picture.py "pads train emoji-pads" > docs/demo.svg
"""

import html
import re
import sys

from rich.console import Console
from rich.text import Text

COLUMN = 12.2
"""Width of a letter in rich's pictures."""


def main() -> None:
    screen = Text.from_ansi(sys.stdin.read().rstrip())
    console = Console(record=True, width=max(map(len, screen.plain.splitlines())) + 2, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen)
    svg = console.export_svg(title=sys.argv[1] if len(sys.argv) > 1 else "pads")
    # the fonts would be fetched from the network; any monospaced one will do
    svg = re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)
    print(re.sub(r"<text ([^>]*)>([^<]*)</text>", placed, svg).replace("Fira Code", "DejaVu Sans Mono, Menlo"))


def placed(match: re.Match[str]) -> str:
    """Every word at its own column: some viewers swallow the spaces before and between."""
    attributes, text = match.groups()
    x = re.search(r'\bx="([\d.]+)"', attributes)
    if x is None or "&#160;" not in text:
        return match.group(0)
    attributes = re.sub(r'\b(x|textLength)="[\d.]+" ?', "", attributes)
    words = re.finditer(r"[^ ]+", html.unescape(text).replace("\xa0", " "))
    return "".join(
        f'<text x="{float(x.group(1)) + COLUMN * word.start():.1f}" textLength="{COLUMN * len(word.group()):.1f}" '
        f"{attributes}>{html.escape(word.group())}</text>"
        for word in words
    )


if __name__ == "__main__":
    main()
