"""Put a trained run on the Hugging Face Hub: `pads push RUN USER/NAME`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from pads.config import Config, to_json
from pads.errors import UserError
from pads.publish.card import model_card
from pads.runs import RunFolder
from pads.runs.checkpoint import save_state
from pads.runs.hub import check_name, hub_api, in_short
from pads.runtime.files import write_atomically


def push(run: RunFolder | Path | str, repo: str, *, private: bool = False) -> str:
    """Put the selected network of a run into a repository of the Hub, with a model card; return its address."""
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
