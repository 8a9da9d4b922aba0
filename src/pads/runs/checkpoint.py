"""Checkpoints: one safetensors file holds everything, tensors as tensors and the rest as JSON in its header.

Nothing is pickled, so a checkpoint of a stranger can be opened safely. A file appears under its name only when it is whole,
and its header holds a checksum of all that is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from pads.errors import UserError
from pads.runtime.files import AGAIN, write_atomically
from pads.runtime.reading import Misfit, Shape, check_regular, check_shape


def save_state(path: Path, state: Mapping[str, Any], *, again: str = AGAIN) -> None:
    """Writes a nested state of tensors and plain values."""
    tensors: dict[str, Tensor] = {}
    tree = pack(state, "", tensors)
    header = {"sha256": checksum(tree, tensors), **tree}
    write_atomically(path, to_safetensors(tensors, {"state": json.dumps(header)}), again=again)


def to_safetensors(tensors: dict[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file, the same for the same tensors: its library puts `about` in any order."""
    content = safetensors.torch.save(tensors, dict(about))
    start = 8 + int.from_bytes(content[:8], "little")
    header = {**json.loads(content[8:start]), "__metadata__": dict(about)}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def load_state(path: Path, shape: Shape = dict) -> dict[str, Any]:
    """Read what `save_state` wrote, if it has this shape."""
    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="pt") as file:
            tree = json.loads((file.metadata() or {})["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "sha256" in tree and tree.pop("sha256") != checksum(tree, tensors):  # the first version had none
            raise Misfit("its checksum does not fit")
        state = unpack(tree, tensors)
        check_shape(state, shape)
        return state
    except (OSError, LookupError, TypeError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} is not a whole checkpoint of pads ({error}): delete it, and --resume goes on from the one before."
        ) from error


def checksum(tree: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of everything in a checkpoint: a bit that flips on the disk would be another training."""
    digest = hashlib.sha256(json.dumps(tree).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON; tensors are put aside under the name of their place."""
    if isinstance(value, Tensor):
        # clone: two tensors that share memory would be refused, and a view would save its whole storage
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, Mapping):
        items = [[key, pack(item, f"{name}.{key}" if name else str(key), tensors)] for key, item in value.items()]
        return {"items": items}  # pairs, because the keys of an optimiser's state are numbers
    if isinstance(value, list | tuple):
        return [pack(item, f"{name}.{index}", tensors) for index, item in enumerate(value)]
    return value


def unpack(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if "tensor" in tree:
            return tensors[tree["tensor"]]
        return {key: unpack(item, tensors) for key, item in tree["items"]}
    if isinstance(tree, list):
        return [unpack(item, tensors) for item in tree]
    return tree
