"""`pads serve`: a trained model as a search engine with a page."""

from __future__ import annotations

import importlib
from pathlib import Path

from pads.errors import missing_extra

NEEDED = {"fastapi": "FastAPI", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}


def serve(
    path: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    images: Path | str | None = None,
    follow_links: bool = False,
    token: str | None = None,
    no_token: bool = False,
) -> None:
    """Serves an index, or a run with the index over its test images, until it is interrupted.

    On another host than this machine it needs a token that whoever asks must know ("" for a new one), or no_token=True.
    """
    for module, package in NEEDED.items():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise missing_extra(package, "serve") from error
    from pads.search.serve.server import run_server

    run_server(path, host=host, port=port, images=images, follow_links=follow_links, token=token, no_token=no_token)
