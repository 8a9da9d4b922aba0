"""A trained run on the Hugging Face Hub: `pads push RUN USER/NAME`, and back by `pads.load("hf://USER/NAME")`."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.card import model_card
from pads.config import Config, to_json
from pads.errors import UserError, missing_extra
from pads.runs import RunFolder
from pads.runs.checkpoint import save_state, write_atomically

HUB = "hf://"
FILES = ("README.md", "config.json", "metrics.json", "selected.safetensors")
"""What is put there: no events, no checkpoints, and nothing that tells of the machine."""


def push(run: RunFolder | Path | str, repo: str, *, private: bool = False) -> str:
    """Puts the selected network of a run into a repository of the Hub, with a model card; returns where that is."""
    run = run if isinstance(run, RunFolder) else RunFolder.open(run)
    check_name(repo)
    with tempfile.TemporaryDirectory() as folder:
        write_files(run, Path(folder))
        api = hub_api()
        try:
            address = api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repo, folder_path=folder, commit_message=f"{run.config.recipe or 'A run'} by pads"
            )
        except Exception as error:  # the Hub's client raises of its own, httpx's and the system's
            raise UserError(
                f"{repo} could not be written on the Hub ({in_short(error)}): check the network, and log in with `hf auth "
                "login` or set HF_TOKEN to a token that may write."
            ) from error
    return str(address)


def pulled(address: str) -> Path:
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


def write_files(run: RunFolder, folder: Path) -> None:
    """FILES of a run, as strangers may see them."""
    save_state(folder / "selected.safetensors", {"network": run.load_network("selected")})
    write_atomically(folder / "config.json", to_json(without_places(run.config)))
    write_atomically(folder / "README.md", model_card(run))
    if run.metrics is not None:
        write_atomically(folder / "metrics.json", (run.path / "metrics.json").read_text())


def without_places(config: Config) -> Config:
    """The config without the paths of the machine that it ran on."""
    weights = config.network.weights and Path(config.network.weights).name
    return replace(config, data=replace(config.data, root=None), network=replace(config.network, weights=weights))


def check_name(repo: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UserError(f"{repo!r} is no name of a repository on the Hub: write USER/NAME.")


def in_short(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().partition("\n")[0].rstrip(".")
