"""Fetch a trained run from the Hugging Face Hub: `pads.load("hf://USER/NAME")`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pads.errors import UserError, missing_extra

HUB = "hf://"
FILES = ("README.md", "config.json", "metrics.json", "selected.safetensors")
"""What is put there: no events, no checkpoints, and nothing that tells of the machine."""


def pull(address: str) -> Path:
    """The folder of a run that was put on the Hub, in the Hub's own cache: hf://USER/NAME, or hf://USER/NAME@REVISION."""
    repo, _, revision = address.removeprefix(HUB).partition("@")
    check_name(repo)
    try:
        folder = Path(hub_api().snapshot_download(repo, revision=revision or None, allow_patterns=list(FILES)))
    except Exception as error:
        raise UserError(
            f"{address} could not be fetched from the Hub ({in_short(error)}): check the name, the network, and for a "
            "private one the token (`hf auth login`, or HF_TOKEN)."
        ) from error
    if not (folder / "config.json").is_file() or not (folder / "selected.safetensors").is_file():
        raise UserError(f"{address} holds no run of pads: `pads push RUN {repo}` would put one there.")
    return folder


def hub_api() -> Any:
    """The Hub's own client, with the token and the endpoint of the environment."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise missing_extra("huggingface_hub", "hub") from error
    return HfApi(library_name="pads")


def check_name(repo: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UserError(f"{repo!r} is no name of a repository on the Hub: write USER/NAME.")


def in_short(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().partition("\n")[0].rstrip(".")
