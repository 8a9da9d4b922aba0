"""What docs/in-your-loop.md and docs/faq.md show is run as it stands, and so is everything in examples/."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import pads
from pads.adapters import AdaptiveMiner, ClassBalancedBatchSampler
from pads.config import with_settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.fixture
def examples(monkeypatch, tmp_path):
    """Scripts find each other, and write where nobody minds."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("made_up", None)


@pytest.fixture
def names(examples, noisy_photos, tmp_path):
    """What the pages say is there: a model, loaders, a batch."""
    from made_up import network, splits

    photos = noisy_photos(8, 4)
    settings = [f"data.{name}=16" for name in ("image_size", "resize", "store_size")]
    settings += [f"data.root={photos}", "data.classes_per_batch=2", "num_epochs=1", "network.weights=none"]
    run = pads.train(with_settings(pads.RECIPES["folder"](), settings), tmp_path / "run")
    train, reward, _ = splits()
    labels = train.tensors[1]
    loader = DataLoader(train, batch_sampler=ClassBalancedBatchSampler(labels, 16, 4, batches_per_epoch=2))
    model = network()
    images, batch_labels = next(iter(loader))
    return {
        "pads": pads,
        "torch": torch,
        "model": model,
        "loader": loader,
        "held_out": DataLoader(reward, 64),
        "dataset": train,
        "labels_of_all_images": labels,
        "num_epochs": 1,
        "epoch": 0,
        "images": images,
        "labels": batch_labels,
        "embeddings": model(images),
        "miner": AdaptiveMiner(),
        "run_folder": run.path,
        "paths": [str(path) for path in sorted(photos.glob("*/*.png"))[:2]],
    }


def test_every_snippet_of_the_guide_runs(names, capsys):
    found = blocks("in-your-loop.md", "python")
    assert len(found) >= 7
    loop, paced, learned, *others = found
    exec(compile(loop, "in-your-loop.md", "exec"), names)
    assert names["sampler"].num_draws == 2
    exec(compile(paced, "in-your-loop.md", "exec"), names)
    assert names["loss"].requires_grad
    assert "risen" in names["loss_fn"].state_dict()
    exec(compile(learned, "in-your-loop.md", "exec"), names)
    assert names["sampler"].num_steps == 2
    for code in others:
        exec(compile(code, "in-your-loop.md", "exec"), names)
    assert names["metric"].compute()["recall@1"] > 0


def test_every_snippet_of_the_questions_runs_and_says_what_it_says(names):
    found = blocks("faq.md", "python")
    assert len(found) >= 8
    for code in found:
        exec(compile(code, "faq.md", "exec"), names)
    assert names["by_hand"].item() == pytest.approx(names["ours"])
    assert not names["collapsed"]
    names["model"] = lambda images: torch.ones(len(images), 4)
    exec(compile(found[0], "faq.md", "exec"), names)
    assert names["collapsed"]
    assert names["vectors"].shape[0] == 2


def recalls(text):
    return [float(number) for number in re.findall(r"Recall@1 on unseen classes[^:\d]*:? *(0\.\d+)", text)]


@pytest.mark.parametrize("script", sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "made_up"))
def test_every_example_runs_and_learns(script, examples, capsys):
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    said = capsys.readouterr().out
    if script in ("plain_loop", "pml_loop"):
        assert recalls(said)[-1] > recalls(said)[0] + 0.1
        assert "adapted 5 times" in said
    else:
        expected = {
            "oml_miner": "pip install open-metric-learning",
            "lightning_callback": "'pads/reward'",
            "torchmetrics_metric": "map@r",
        }
        assert expected[script] in said


def test_the_notebook_runs_and_opens_with_a_picture(examples, monkeypatch, capsys):
    import matplotlib

    matplotlib.use("Agg")
    path = EXAMPLES / "quickstart.ipynb"
    assert path.stat().st_size < 400_000
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any("image/png" in output.get("data", {}) for output in cells[1]["outputs"])
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code" and "plt." in "".join(cell["source"]))
    space = {}
    for source in code:
        exec(compile(source, "quickstart.ipynb", "exec"), space)
    assert space["after"]["recall@1"] > space["before"]["recall@1"] + 0.1
