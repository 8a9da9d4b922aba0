"""Turns a terminal's screen into an SVG picture for the docs.

    tmux capture-pane -e -p | python tools/terminal_picture.py "pads train emoji-pads" > docs/demo.svg
"""

import re
import sys

from rich.console import Console
from rich.text import Text


def main() -> None:
    screen = Text.from_ansi(sys.stdin.read().rstrip())
    console = Console(record=True, width=max(map(len, screen.plain.splitlines())) + 2, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen)
    svg = console.export_svg(title=sys.argv[1] if len(sys.argv) > 1 else "pads")
    # the fonts would be fetched from the network; any monospaced one will do
    svg = re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)
    print(svg.replace("Fira Code", "DejaVu Sans Mono, Menlo"))


if __name__ == "__main__":
    main()
