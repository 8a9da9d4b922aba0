"""What is exported computes what the original does, carries all that it needs, and says what it is."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors
import torch
from PIL import Image

import pads
from pads.cli import main, make_parser
from pads.config import Data, Network
from pads.data.loading import load_views
from pads.data.preprocessing import Preprocessing
from pads.errors import UserError
from pads.publish import FORMATS, export_run, formats
from pads.publish import export as export_module
from pads.publish.formats import TOLERANCE, make_up_images, original
from pads.runs import RunFolder
from pads.train import nobody

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.fixture(scope="module")
def export(run):
    """All formats, in two calls, the second of which adds to the first."""
    export_run(run, ["safetensors"])
    return export_run(run, ["onnx", "torch-export"])


@pytest.fixture(scope="module")
def model(run):
    return pads.load(run, device="cpu")


@pytest.fixture(scope="module")
def pictures(photos, tmp_path_factory):
    """A wide photograph, one that lies on its side, a transparent one and a grey one, as a.jpg ... d.png."""
    folder = tmp_path_factory.mktemp("pictures")
    with Image.open(photos / "class0" / "1.png") as wide, Image.open(photos / "class1" / "1.png") as other:
        wide.save(folder / "a.jpg")
        exif = Image.Exif()
        exif[0x0112] = 6
        other.save(folder / "b.jpg", exif=exif)
        other.putalpha(80)
        other.save(folder / "c.png")
        wide.convert("L").save(folder / "d.png")
    return folder


@pytest.fixture
def unchecked(monkeypatch):
    """For what has nothing to do with the comparison, whose fresh process takes seconds."""
    monkeypatch.setattr(export_module, "difference", lambda *_: 0.0)


def code_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def in_a_fresh_process(code, folder, *flags):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *flags, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the same numbers --------------------------------------------------------------------------------------------------


def test_every_format_is_there_with_its_checksum_and_differs_by_less_than_the_tolerance(export):
    exported = json.loads((export / "export.json").read_text())["formats"]
    assert exported.keys() == FORMATS.keys()
    for name, each in exported.items():
        content = (export / FORMATS[name].file).read_bytes()
        assert each["sha256"] == hashlib.sha256(content).hexdigest() and each["bytes"] == len(content)
        assert each["difference"] <= TOLERANCE
    assert not list(export.glob("partial*"))


@pytest.mark.parametrize("num", [1, 3, 8])
def test_the_graphs_take_batches_of_any_size(export, model, num):
    pixels, sizes = make_up_images(model, num)
    expected = original(model, pixels, sizes).numpy()
    session = onnxruntime.InferenceSession(export / "model.onnx", providers=["CPUExecutionProvider"])
    by_onnx = session.run(None, {"pixels": pixels.numpy(), "sizes": sizes.numpy()})[0]
    np.testing.assert_allclose(by_onnx, expected, atol=TOLERANCE)
    with torch.no_grad():
        by_torch = torch.export.load(export / "model.pt2").module()(pixels, sizes).numpy()
    np.testing.assert_allclose(by_torch, expected, atol=TOLERANCE)


def test_the_graphs_round_half_a_grey_level_as_the_original_does(tmp_path):
    """Squares of 32 pixels at half their size: the weights are eighths, so that every fourth sum or so is a tie."""

    class Seen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            data = Data(image_size=16, resize=16, store_size=32, store_ratio=1.25)
            self.preprocessing = Preprocessing.of(data, Network())

        def forward(self, pixels_BCHW, sizes_B2):
            return self.preprocessing.for_evaluation(pixels_BCHW, sizes_B2)

    pixels = torch.randint(256, (4, 3, 32, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    sizes = torch.tensor([[32, 32], [39, 32], [32, 40], [32, 32]])
    expected = Seen()(pixels, sizes)
    with formats.without_known_warnings():
        program = torch.export.export(Seen(), (pixels, sizes))
        torch.onnx.export(program, dynamo=True, verbose=False, input_names=["pixels", "sizes"]).save(
            tmp_path / "seen.onnx"
        )
    assert torch.equal(program.module()(pixels, sizes), expected)
    session = onnxruntime.InferenceSession(tmp_path / "seen.onnx", providers=["CPUExecutionProvider"])
    by_onnx = session.run(None, {"pixels": pixels.numpy(), "sizes": sizes.numpy()})[0]
    np.testing.assert_allclose(by_onnx, expected.numpy(), rtol=0, atol=1e-6)  # a grey level is 0.017


def test_the_inputs_of_the_onnx_graph_have_names_and_a_free_batch(export):
    session = onnxruntime.InferenceSession(export / "model.onnx", providers=["CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("pixels", "tensor(uint8)", ["batch", 20, 27, 3]),
        ("sizes", "tensor(int64)", ["batch", 2]),
    ]
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [("vectors", "tensor(float)", ["batch", 8])]


def test_the_weights_can_be_loaded_by_pads(export, model, pictures):
    files = sorted(pictures.iterdir())
    torch.testing.assert_close(pads.load(export / "model.safetensors", device="cpu").embed(files), model.embed(files))


@pytest.mark.parametrize("page", ["card", "docs"])
def test_the_snippet_runs_the_onnx_file_without_pads_or_torch(export, model, pictures, page):
    text = (export / "README.md" if page == "card" else DOCS).read_text()
    code = "\n".join(block for block in code_blocks(text) if "preprocess" in block or "onnxruntime" in block)
    names = [str(path) for path in sorted(pictures.iterdir())]
    code = code.replace('["a.jpg", "b.jpg"]', repr(names))
    code += "\nimport sys, json; assert not {'pads', 'torch'} & set(sys.modules)\nprint(json.dumps(vectors.tolist()))"
    vectors = json.loads(in_a_fresh_process(code, export))
    np.testing.assert_allclose(vectors, model.embed(names).numpy(), atol=TOLERANCE)


# -- files of every kind -----------------------------------------------------------------------------------------------


def draw(width, height):
    """A picture with broad patches and fine grain, in which every channel differs."""
    rng = np.random.default_rng(width + height)
    patches = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize((width, height))
    return Image.fromarray(np.asarray(patches) // 2 + rng.integers(0, 128, (height, width, 3), dtype=np.uint8))


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


def make_deep(width, height):
    """16 bits of grey, of which 8 would keep the upper ones."""
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 65536, (height, width)).astype(np.uint16))


FILES = {
    "plain.jpg": lambda: (draw(60, 45), {}),
    "upright.jpg": lambda: (draw(45, 60), {}),
    "panorama.jpg": lambda: (draw(300, 40), {}),
    "tiny.png": lambda: (draw(1, 5), {}),
    "square.bmp": lambda: (draw(33, 33), {}),
    "large.jpg": lambda: (draw(900, 700), {}),  # many times what is kept, so that it is decoded smaller
    "large-progressive.jpg": lambda: (draw(700, 900), {"progressive": True}),
    "large-turned.jpg": lambda: (draw(901, 703), turned(6)),
    **{f"turned-{number}.jpg": (lambda number=number: (draw(60, 41), turned(number))) for number in range(1, 10)},
    "turned.png": lambda: (draw(60, 41), turned(8)),
    "turned.tif": lambda: (draw(60, 41), turned(6)),
    "turned.webp": lambda: (draw(60, 41), {"lossless": True, **turned(3)}),
    "grey.jpg": lambda: (draw(60, 45).convert("L"), {}),
    "cmyk.jpg": lambda: (draw(60, 45).convert("CMYK"), {}),
    "cmyk.tif": lambda: (draw(60, 45).convert("CMYK"), {}),
    "deep.png": lambda: (make_deep(60, 45), {}),
    "deep.tif": lambda: (make_deep(45, 60), {}),
    "deep-turned.png": lambda: (make_deep(60, 45), turned(6)),
    "black-and-white.png": lambda: (draw(60, 45).convert("1"), {}),
    "palette.png": lambda: (draw(60, 45).quantize(16), {}),
    "palette-clear.png": lambda: (draw(60, 45).quantize(16), {"transparency": 3}),
    "palette-faint.png": lambda: (draw(60, 45).quantize(16), {"transparency": bytes(range(0, 256, 16))}),
    "one-colour-clear.png": lambda: (draw(60, 45).quantize(4).convert("RGB"), {"transparency": (0, 0, 0)}),
    "alpha.png": lambda: (add_alpha(draw(60, 45)), {}),
    "alpha.webp": lambda: (add_alpha(draw(60, 45)), {"lossless": True}),
    "grey-alpha.png": lambda: (add_alpha(draw(60, 45)).convert("LA"), {}),
    "animated.gif": lambda: (draw(60, 45).quantize(8), {"save_all": True, "append_images": [draw(60, 45).quantize(4)]}),
}


def add_alpha(image):
    ramp = np.linspace(0, 255, image.width, dtype=np.uint8)
    image.putalpha(Image.fromarray(np.tile(ramp, (image.height, 1))))
    return image


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, make in FILES.items():
        image, options = make()
        image.save(folder / name, **options)
    return [folder / name for name in FILES]


@pytest.fixture(scope="module")
def preprocess(export):
    spec = importlib.util.spec_from_file_location("preprocess", export / "preprocess.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_kind_are_read_to_the_bytes_that_pads_reads(preprocess, model, files, name):
    file = next(path for path in files if path.name == name)
    (pixels,), (size,) = preprocess.read([file])
    expected, expected_size = model.read(file)
    assert tuple(size.tolist()) == expected_size
    assert np.array_equal(pixels, expected.transpose(1, 2, 0))


def test_huge_pictures_are_shrunk_as_pads_does_it(preprocess, model, tmp_path, monkeypatch):
    monkeypatch.setattr("pads.data.store.LARGE", 10_000)
    code = Path(preprocess.__file__).read_text().replace("64_000_000", "10_000")
    names: dict = {}
    exec(code, names)
    for orientation in (1, 3, 6):
        draw(203, 301).save(tmp_path / "huge.png", **turned(orientation))
        (pixels,), (size,) = names["read"]([tmp_path / "huge.png"])
        expected, expected_size = model.read(tmp_path / "huge.png")
        assert (tuple(size.tolist()), pixels.tolist()) == (expected_size, expected.transpose(1, 2, 0).tolist())


def test_the_graph_gives_the_vectors_of_pads_on_files_of_every_kind(preprocess, export, model, files):
    session = onnxruntime.InferenceSession(export / "model.onnx", providers=["CPUExecutionProvider"])
    pixels, sizes = preprocess.read(files)
    vectors = session.run(None, {"pixels": pixels, "sizes": sizes})[0]
    np.testing.assert_allclose(vectors, model.embed(files).numpy(), atol=TOLERANCE)


def test_every_snippet_of_the_card_runs(export, pictures):
    folder = shutil.copytree(export, pictures / "export")
    for picture in pictures.glob("*.jpg"):
        shutil.copy(picture, folder)
    blocks = code_blocks((folder / "README.md").read_text())
    assert len(blocks) == 4
    in_a_fresh_process("\n".join(blocks), folder)
    shutil.rmtree(folder)


# -- what goes with it -------------------------------------------------------------------------------------------------


def test_preprocessing_and_labels_are_inside_every_file(export, run):
    about = {name: json.loads((export / f"{name}.json").read_text()) for name in ("preprocessing", "labels")}
    numbers = [about["preprocessing"][name] for name in ("shorter", "longer", "resize", "crop")]
    assert numbers == [20, 27, 18, 16]
    assert about["preprocessing"]["mean"] == list(run.config.network.mean)
    properties = {each.key: each.value for each in onnx.load(export / "model.onnx").metadata_props}
    with safetensors.safe_open(export / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()
    extra = {"preprocessing.json": "", "labels.json": ""}
    torch.export.load(export / "model.pt2", extra_files=extra)
    for name, value in about.items():
        assert json.loads(properties[name]) == json.loads(metadata[name]) == json.loads(extra[f"{name}.json"]) == value


def test_the_labels_are_the_classes_of_the_train_split(export, run):
    view = load_views(run.config, torch.device("cpu"), nobody).train
    names = {view.store.images.class_names[label] for label in view.store.labels_N[view.indices_N].tolist()}
    assert set(json.loads((export / "labels.json").read_text())) == names
    assert len(names) == run.metrics["splits"]["train"]["classes"]


def test_the_card_has_the_figures_of_the_run(export, run):
    card = (export / "README.md").read_text()
    for row in ("raw pixels", "untrained", "trained"):
        figures = run.metrics["test"][row]
        shown = [f"{100 * figures[name]:.1f}" for name in ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")]
        assert " | ".join(shown) in card
    for split, size in run.metrics["splits"].items():
        assert f"{split} {size['images']:,} images of {size['classes']:,} classes" in card
    assert "**selected**" in card and "random weights" in card
    assert str(Path(run.config.data.root).parent) not in card
    assert hashlib.sha256((export / "model.onnx").read_bytes()).hexdigest() in card


def changed_run(run, tmp_path, *, config=None, metrics=None):
    """A copy of the run in which some of what it says is otherwise."""
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy", ignore=shutil.ignore_patterns("export")))
    for name, changes in (("config.json", config), ("metrics.json", metrics)):
        values = json.loads((copy.path / name).read_text())
        for key, value in (changes or {}).items():
            group, _, last = key.rpartition(".")
            (values[group] if group else values)[last] = value
        (copy.path / name).write_text(json.dumps(values))
    return copy


def test_an_unfinished_run_is_exported_without_figures(run, unchecked, tmp_path):
    copy = changed_run(run, tmp_path)
    (copy.path / "metrics.json").unlink()
    card = (export_run(copy, ["safetensors"]) / "README.md").read_text()
    assert "not finished" in card and "untrained" not in card


def test_a_run_in_bfloat16_is_exported_in_float32_and_says_so(run, unchecked, tmp_path, model, pictures):
    copy = changed_run(run, tmp_path, config={"precision": "bfloat16"})
    path = export_run(copy, ["safetensors"])
    assert "Trained in bfloat16" in (path / "README.md").read_text()
    files = sorted(pictures.glob("*.*"))
    torch.testing.assert_close(pads.load(path / "model.safetensors", device="cpu").embed(files), model.embed(files))


def test_labels_that_cannot_be_known_are_said_to_be(run, unchecked, tmp_path):
    copy = changed_run(run, tmp_path, config={"data.root": str(tmp_path / "gone")})
    notes = []
    path = export_run(copy, ["safetensors"], note=notes.append)
    assert json.loads((path / "labels.json").read_text()) is None
    assert any("gone" in note for note in notes)


def test_the_last_checkpoint_can_be_exported_too(run, unchecked, tmp_path):
    export_run(run, ["safetensors"], tmp_path / "last", checkpoint="last")
    assert "the last epoch" in (tmp_path / "last" / "README.md").read_text()


# -- the door ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [0.1, float("nan")])
def test_what_differs_is_not_kept(run, tmp_path, monkeypatch, largest):
    monkeypatch.setattr(export_module, "difference", lambda *_: largest)
    with pytest.raises(UserError, match="differs"):
        export_run(run, ["safetensors"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_with_a_wrong_weight_is_noticed(run, tmp_path, monkeypatch):
    right = FORMATS["safetensors"]

    def write(model, path, about):
        model = pads.load(run, device="cpu")
        with torch.no_grad():
            model.network.embedding.bias[0] += 0.1
        right.write(model, path, about)

    monkeypatch.setitem(FORMATS, "safetensors", right._replace(write=write))
    with pytest.raises(UserError, match="differs"):
        export_run(run, ["safetensors"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_run_is_not_kept(run, tmp_path, monkeypatch):
    broken = FORMATS["safetensors"]._replace(write=lambda model, path, about: path.write_bytes(b"nothing"))
    monkeypatch.setitem(FORMATS, "safetensors", broken)
    with pytest.raises(UserError, match="fresh process"):
        export_run(run, ["safetensors"], tmp_path / "out")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=re.escape('pip install "pads-dml[export]"')):
        export_run(run, ["onnx"], tmp_path / "out")


def test_a_folder_of_something_else_is_not_touched(run, export, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="not an export"):
        export_run(run, ["safetensors"], tmp_path / "mine")
    other = changed_run(run, tmp_path, config={"data.resize": 17})
    with pytest.raises(UserError, match="another network"):
        export_run(other, ["safetensors"], export)


def test_a_damaged_export_is_refused_in_a_sentence(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        export_run(run, ["safetensors"], tmp_path / "out")


def test_a_place_that_cannot_be_written_is_refused(run):
    with pytest.raises(UserError, match="could not be written"):
        export_run(run, ["safetensors"], "/proc/export")


def test_unknown_formats_and_files_are_refused(run, tmp_path):
    with pytest.raises(UserError, match="onnx"):
        export_run(run, ["onx"])
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a whole model"):
        pads.load(tmp_path / "x.safetensors")


def test_the_command_line_knows_every_format_and_says_where_the_card_is(run, unchecked, tmp_path, capsys):
    commands = next(action.choices for action in make_parser()._actions if isinstance(action.choices, dict))
    to = next(action for action in commands["export"]._actions if action.dest == "to")
    assert set(to.choices) == FORMATS.keys()
    with pytest.raises(SystemExit) as left:
        main(["export", str(run.path), "--to", "safetensors", "--out", str(tmp_path / "out")])
    assert left.value.code == 0
    assert str(tmp_path / "out" / "README.md") in capsys.readouterr().out
