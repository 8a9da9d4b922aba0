"""The formats: how each is written, and how a process that knows nothing of the original runs it.

The graph of ONNX and torch.export takes what a few lines of Pillow give: the whole picture squeezed to one shape, laid on
its side if it is taller than wide, and the width and height it had. Cropping the centre, resampling and normalising are
inside, and batches may have any size.

Dimensions: B batch, S shorter and L longer side of what is fed, C channels, D embedding.
"""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from pads.data.store import compute_stored_shape
from pads.errors import UserError, missing_extra
from pads.model import Model, save_file
from pads.runtime.files import write_atomically, writing

TOLERANCE = 1e-4
"""The largest difference of any number of any vector between an exported network and the original."""


class Graph(nn.Module):
    """pixels_BSLC (uint8, RGB) and sizes_B2 (width and height of the originals) -> vectors_BD, in float32."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        network = copy.deepcopy(model.network).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.backbone, self.embedding = network.backbone, network.embedding
        self.preprocessing, self.normalise = model.preprocessing, model.network.normalise

    def forward(self, pixels_BSLC: Tensor, sizes_B2: Tensor) -> Tensor:
        images_BCHW = self.preprocessing.for_evaluation(pixels_BSLC.permute(0, 3, 1, 2), sizes_B2)
        embeddings_BD = self.embedding(self.backbone(images_BCHW))
        return F.normalize(embeddings_BD, dim=1) if self.normalise else embeddings_BD


# -- writing -----------------------------------------------------------------------------------------------------------


def to_safetensors(model: Model, path: Path, about: Mapping[str, str]) -> None:
    save_file(path, model, **about)


def to_torch_export(model: Model, path: Path, about: Mapping[str, str]) -> None:
    with without_known_warnings():
        files = {f"{name}.json": text for name, text in about.items()}
        with writing(path) as file:
            torch.export.save(export_program(model), file, extra_files=files)


def to_onnx(model: Model, path: Path, about: Mapping[str, str]) -> None:
    try:
        import onnx
        import onnxruntime  # noqa: F401  needed to check the result: better missed now than in the end
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_extra(str(error.name), "export") from error

    with without_known_warnings():
        program = torch.onnx.export(
            export_program(model),
            dynamo=True,
            verbose=False,
            input_names=["pixels", "sizes"],
            output_names=["vectors"],
        )
    assert program is not None
    proto: Any = program.model_proto
    name_batch(proto)
    onnx.helper.set_model_props(proto, dict(about))
    onnx.checker.check_model(proto)
    write_atomically(path, proto.SerializeToString())


def export_program(model: Model) -> torch.export.ExportedProgram:
    """Trace the network, with its preprocessing, for batches of any size."""
    batch = {0: torch.export.Dim("batch")}
    with torch.no_grad():
        return torch.export.export(Graph(model).eval(), tuple(make_up_images(model, 2)), dynamic_shapes=(batch, batch))


def name_batch(proto: Any) -> None:
    """torch names the size of the batch by a number of its own."""
    symbol = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "batch"


@contextmanager
def without_known_warnings() -> Iterator[None]:
    """torch's exporter misses torchvision, which nothing here needs, and stumbles over a rename of its own."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec", FutureWarning)
            yield
    finally:
        logger.setLevel(before)


# -- checking ----------------------------------------------------------------------------------------------------------

RUN_WITH_PADS = """
import pads
model = pads.load(path, device="cpu")
run = lambda pixels, sizes: model.embed_stored(pixels.transpose(0, 3, 1, 2), sizes).numpy()
"""
RUN_WITH_TORCH = """
import torch
program = torch.export.load(path).module()
run = lambda pixels, sizes: program(torch.from_numpy(pixels), torch.from_numpy(sizes)).detach().numpy()
"""
RUN_WITH_ONNXRUNTIME = """
import onnxruntime
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
run = lambda pixels, sizes: session.run(None, {"pixels": pixels, "sizes": sizes})[0]
"""
CHECK = """
import sys
import numpy as np
path, inputs, outputs = sys.argv[1:]
{run}
arrays = list(np.load(inputs).values())
np.savez(outputs, *map(run, arrays[::2], arrays[1::2]))
"""


class Format(NamedTuple):
    file: str
    write: Callable[[Model, Path, Mapping[str, str]], None]
    run: str
    """Python that makes `run(pixels, sizes)` of the file at `path`."""
    summary: str


FORMATS = {
    "safetensors": Format("model.safetensors", to_safetensors, RUN_WITH_PADS, "weights and config, for `pads.load`"),
    "onnx": Format("model.onnx", to_onnx, RUN_WITH_ONNXRUNTIME, "a graph, for onnxruntime and others"),
    "torch-export": Format("model.pt2", to_torch_export, RUN_WITH_TORCH, "a graph, for `torch.export.load`"),
}


def difference(model: Model, format: Format, path: Path) -> float:
    """The largest difference to the original, in a fresh process, on made-up images in batches of several sizes."""
    batches = [make_up_images(model, num) for num in (1, 2, 5)]
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        with writing(inputs, sync=False) as file:
            np.savez(file, *(tensor.numpy() for batch in batches for tensor in batch))
        command = [sys.executable, "-c", CHECK.format(run=format.run), str(path), str(inputs), str(outputs)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise UserError(f"{format.file} could not be run in a fresh process, so it was not kept: {why}")
        with np.load(outputs) as results:
            found_BD = torch.from_numpy(np.concatenate(list(results.values())))
    expected_BD = torch.cat([original(model, *batch) for batch in batches])
    return float((found_BD - expected_BD).abs().max())


def original(model: Model, pixels_BSLC: Tensor, sizes_B2: Tensor) -> Tensor:
    return model.embed_stored(list(pixels_BSLC.permute(0, 3, 1, 2).numpy()), sizes_B2.tolist())


def make_up_images(model: Model, num: int) -> tuple[Tensor, Tensor]:
    """Make patches of colour with noise, of several proportions."""
    rng = np.random.default_rng(num)
    _, shorter, longer = compute_stored_shape(model.preprocessing.store_size, model.preprocessing.store_ratio)
    pictures = []
    for _ in range(num):
        patches = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        smooth = np.asarray(patches.resize((longer, shorter), Image.Resampling.BICUBIC), dtype=float)
        pictures.append(np.clip(smooth + rng.normal(0, 20, smooth.shape), 0, 255).astype(np.uint8))
    sizes_B2 = rng.integers(shorter // 2 + 1, 4 * shorter, (num, 2))
    return torch.from_numpy(np.stack(pictures)), torch.from_numpy(sizes_B2)
