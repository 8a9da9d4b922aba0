"""A trained network as others use it: images in, vectors out, the same as in the evaluation of the run."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pads
from pads.autoconfig import resolve_auto
from pads.config import with_settings
from pads.data.folder import folder
from pads.data.loading import load_views
from pads.errors import UserError
from pads.evaluate import embed
from pads.model import evaluate_run, fingerprint
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.train import nobody

SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=20",
    "data.classes_per_batch=2",
    "data.samples_per_class=3",
    "data.selection_share=0.1",
    "data.reward_share=0.15",
    "network.backbone=small",
    "network.embedding_dim=8",
    "num_epochs=2",
    "adapt_every=2",
    "device=cpu",
    "seed=2",
]


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    """Square, upright and wide pictures."""
    return noisy_photos(8, sizes=[(24, 24), (30, 20), (20, 33)])


def config(photos, *settings):
    given = with_settings(RECIPES["folder"](), [f"data.root={photos}", *SETTINGS, *settings])
    return resolve_auto(given, torch.device("cpu"), nobody)


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory) -> RunFolder:
    """Two epochs, of which the selection split picks the first with this seed."""
    return pads.train(config(photos), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def model(run):
    return pads.load(run, device="cpu")


@pytest.fixture(scope="module")
def files(photos):
    """The test files in the order of the evaluation."""
    return list(folder(photos).test.paths)


@pytest.fixture(scope="module")
def expected(model):
    """The embeddings that the evaluation of the run sees."""
    view = load_views(model.config, torch.device("cpu"), nobody).test
    return embed(model.network, view)[0]


# -- embed -------------------------------------------------------------------------------------------------------------


def test_paths_are_embedded_as_the_evaluation_of_the_run_does_it_to_the_bit(model, files, expected):
    assert torch.equal(model.embed(files), expected)
    assert torch.equal(model.embed(map(str, files)), expected)
    assert torch.equal(model.embed(tuple(files)), expected)


def opened(file):
    with Image.open(file) as picture:
        return picture.copy()


def test_pictures_and_arrays_are_embedded_like_their_files(model, files, expected):
    pictures = [opened(file) for file in files]
    assert torch.equal(model.embed(pictures), expected)
    assert torch.equal(model.embed([np.asarray(picture) for picture in pictures]), expected)
    mixed = [files[0], str(files[1]), pictures[2], np.asarray(pictures[3]), *files[4:]]
    assert torch.equal(model.embed(mixed), expected)


@pytest.mark.parametrize("kind", ["path", "text", "picture", "array"])
def test_one_image_is_one_row(model, files, expected, kind):
    file = files[1]
    with Image.open(file) as picture:
        made = {"path": file, "text": str(file), "picture": picture.copy(), "array": np.asarray(picture)}
    vector = model.embed(made[kind])
    assert vector.shape == (1, 8)
    torch.testing.assert_close(vector[0], expected[1], rtol=0, atol=1e-6)


def test_images_by_the_hundred_are_embedded_like_images_one_by_one(model, files, expected):
    hundreds = model.embed(files * 25)  # more than one batch
    torch.testing.assert_close(hundreds, expected.repeat(25, 1), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.cat([model.embed(file) for file in files]), expected, rtol=0, atol=1e-6)


def test_vectors_have_unit_length_and_tell_images_apart(model, files):
    vectors = model.embed(files)
    assert vectors.shape == (len(files), 8)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(files)))
    assert len(vectors.unique(dim=0)) == len(files)


def test_no_images_give_no_rows(model):
    assert model.embed([]).shape == (0, 8)
    assert model.embed(iter(())).shape == (0, 8)


def test_the_vectors_belong_to_the_caller(model, files):
    vectors = model.embed(files[:2])
    assert not vectors.requires_grad
    vectors *= 2  # would be refused of a tensor that inference mode has made
    head = torch.nn.Linear(8, 1)
    head(vectors).sum().backward()
    assert head.weight.grad is not None


def test_grey_transparent_and_palette_pictures_are_embedded_too(model, files):
    picture = opened(files[0])
    for mode in ("L", "RGBA", "P", "LA", "1"):
        assert model.embed(picture.convert(mode)).isfinite().all()
    grey = np.asarray(picture.convert("L"))
    torch.testing.assert_close(model.embed(grey), model.embed(picture.convert("L")))


def test_embedding_changes_nothing_in_the_model(model, files):
    before = {key: tensor.clone() for key, tensor in model.network.state_dict().items()}
    model.embed(files)
    assert not model.network.training
    assert all(torch.equal(before[key], tensor) for key, tensor in model.network.state_dict().items())


def test_what_is_no_image_is_refused_by_its_name(model, files, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"broken\.png cannot be used as an image"):
        model.embed([files[0], tmp_path / "broken.png"])
    with pytest.raises(UserError, match=r"missing\.png cannot be used as an image: no such file"):
        model.embed(tmp_path / "missing.png")
    with pytest.raises(UserError, match="an array must be uint8"):
        model.embed(np.zeros((8, 8, 3)))


# -- load --------------------------------------------------------------------------------------------------------------


def weights(model):
    return model.network.state_dict()


def differ(a, b):
    return any(not torch.equal(a[key], b[key]) for key in a)


def test_selected_and_last_are_the_networks_of_their_epochs(run):
    assert 0 < run.metrics["selection"]["step"] < run.metrics["steps"], "the fixture must select an earlier epoch"
    selected, last = pads.load(run), pads.load(run, checkpoint="last")
    assert differ(weights(selected), weights(last))
    assert not differ(weights(last), run.load_checkpoint()["network"])
    assert not differ(weights(selected), run.load_network("selected"))


def test_a_run_is_loaded_by_its_folder_its_path_or_its_name(run, files):
    vectors = [pads.load(given).embed(files) for given in (run, run.path, str(run.path))]
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[0], vectors[2])


def test_loading_leaves_the_callers_random_state_alone(run):
    before = torch.get_rng_state()
    pads.load(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_carries_its_config_and_its_preprocessing(model, run):
    assert model.config == run.config
    assert model.preprocessing.image_size == 16
    assert model.preprocessing.mean == run.config.network.mean


def test_what_cannot_be_loaded_is_refused(run, photos, tmp_path):
    with pytest.raises(UserError, match="there is no checkpoint 'lats'; did you mean last"):
        pads.load(run, checkpoint="lats")
    with pytest.raises(UserError, match="does not exist"):
        pads.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a run folder"):
        pads.load(photos)
    with pytest.raises(UserError, match="has no checkpoint yet"):
        pads.load(RunFolder.create(tmp_path / "just begun", config(photos)))
    with pytest.raises(UserError, match="device 'quantum' is not there"):
        pads.load(run, device="quantum")


# -- evaluate_run ------------------------------------------------------------------------------------------------------


def test_evaluating_a_run_gives_the_figures_that_it_ended_with(run):
    assert evaluate_run(run) == run.metrics["test"]["trained"]
    assert evaluate_run(run.path, checkpoint="last") == run.metrics["test"]["last"]
    assert run.metrics["test"]["trained"] != run.metrics["test"]["last"]


def test_evaluating_the_selection_split_gives_the_figures_that_the_epoch_was_selected_by(run):
    found = evaluate_run(run, split="selection")
    selection = run.metrics["selection"]
    assert {name: found[name] for name in ("recall@1", "map@r")} == {n: selection[n] for n in ("recall@1", "map@r")}


@pytest.mark.parametrize("split", ["train", "reward"])
def test_every_split_of_a_run_can_be_evaluated(run, split):
    assert evaluate_run(run, split=split).keys() == run.metrics["test"]["trained"].keys()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_that_selects_its_last_epoch_is_the_same_by_both_names(photos, tmp_path, precision):
    run = pads.train(config(photos, "num_epochs=1", f"precision={precision}"), tmp_path / "run")
    assert run.metrics["selection"]["step"] == run.metrics["steps"]
    assert evaluate_run(run) == evaluate_run(run, checkpoint="last") == run.metrics["test"]["trained"]


def test_without_a_selection_split_the_last_epoch_is_the_one(photos, tmp_path):
    run = pads.train(config(photos, "num_epochs=1", "data.selection_share=0"), tmp_path / "run")
    assert run.metrics["protocol"] == "last"
    assert evaluate_run(run) == evaluate_run(run, checkpoint="last") == run.metrics["test"]["trained"]
    with pytest.raises(UserError, match="the selection split of this run is empty"):
        evaluate_run(run, split="selection")


def test_queries_are_evaluated_against_their_gallery(photos, tmp_path):
    rows = [["label", "split", "path", "is_query", "is_gallery"]]
    for path in sorted(photos.glob("*/*.png")):
        label, index = int(path.parent.name.removeprefix("class-")), int(path.stem)
        split = "test" if label < 3 else "train"
        rows.append([label, split, path, split == "test" and index < 2, split == "test" and index >= 2])
    with (tmp_path / "images.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    base = config(
        photos, "data.name=csv", "data.selection_share=0", "num_epochs=1", f"data.root={tmp_path / 'images.csv'}"
    )
    run = pads.train(base, tmp_path / "run")
    found = evaluate_run(run)
    assert found == run.metrics["test"]["trained"]
    assert found["recall@1"] * 6 == pytest.approx(round(found["recall@1"] * 6))  # six queries


def test_a_split_that_does_not_exist_is_refused(run):
    with pytest.raises(UserError, match="there is no split 'tests'; did you mean test"):
        evaluate_run(run, split="tests")
    with pytest.raises(UserError, match="there is no split 'notes'"):
        evaluate_run(run, split="notes")


def test_a_network_that_does_not_normalise_gives_vectors_of_any_length(photos, files, tmp_path):
    base = config(photos, "num_epochs=1")
    run = pads.train(replace(base, network=replace(base.network, normalise=False)), tmp_path / "run")
    lengths = pads.load(run).embed(files).norm(dim=1)
    assert ((lengths - 1).abs() > 1e-3).all()


def test_a_fingerprint_does_not_ask_where_the_head_started(model):
    network = replace(model.config.network, head="whitening", shrinkage=0.1, weights="elsewhere.pth")
    same = pads.Model(model.network, model.preprocessing, replace(model.config, network=network))
    assert fingerprint(same) == fingerprint(model)
    pooled = replace(model.config.network, pooling="max")
    assert fingerprint(
        pads.Model(model.network, model.preprocessing, replace(model.config, network=pooled))
    ) != fingerprint(model)
