"""tools/gather.py and tools/picks.py on made-up studies."""

import csv
import json

import pytest

from pads.studies.seeds import read_rows


@pytest.fixture(scope="module")
def gather(load_tool):
    return load_tool("gather")


@pytest.fixture(scope="module")
def picks(load_tool):
    return load_tool("picks")


def make_study(folder, arms, *, seed=7, study=None, paper_protocol=False):
    """arms: by name, the events and test curve of the one seed."""
    (folder / "runs").mkdir(parents=True)
    rows = []
    for name, (events, curve) in arms.items():
        run = folder / "runs" / f"{name}-{seed}"
        run.mkdir()
        (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        if curve:
            (run / "test_curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in curve))
        config = {
            "data": {"root": "/somewhere/images", "paper_protocol": paper_protocol},
            "network": {"weights": "/somewhere/weights.safetensors"},
        }
        (folder / f"{name}.json").write_text(json.dumps(config))
        rows.append({"recipe": name, "seed": seed, "selected_recall@1": 0.5, "seconds": 12.5})
    write_csv(folder / "seeds.csv", rows)
    if study:
        (folder / "study.json").write_text(json.dumps({"study": study}))
    return folder


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def selection(epoch, recall, precision):
    return {"event": "selection", "step": 10 * epoch, "epoch": epoch, "recall@1": recall, "map@r": precision}


def adaptation(step, **fields):
    return {"event": "adaptation", "step": step, "perplexity": 9.87654321, "reward": None, **fields}


LEARNED = [
    {"event": "training", "step": 1, "loss": 1.0, "violation_share": 0.5, "negative_of_class_share": 0.123456},
    adaptation(1, policy_entropies=[1.0, 0.5], actions=[1, 2]),
    adaptation(2, policy_entropies=[1.0, 1.0], reward=-1.0),
    selection(1, 0.5, 0.25),
]
CURVE = [{"step": 10, "epoch": 1, "recall@1": 0.41, "nmi": 0.6}]


def test_curves_and_adjustments_of_every_run_are_gathered(gather, tmp_path):
    study = make_study(tmp_path / "study", {"pads": (LEARNED, CURVE), "udist": ([selection(1, 0.4, 0.2)], [])})
    gather.gather([study], tmp_path / "results")
    first, second = read_rows(tmp_path / "results" / "adaptations.csv")
    assert first == {
        "recipe": "pads", "seed": "7", "step": "1", "reward": "", "perplexity": "9.8765", "policy_entropy": "0.75",
    }  # fmt: skip
    assert (second["reward"], second["policy_entropy"]) == ("-1", "1")
    (step,) = read_rows(tmp_path / "results" / "training.csv")
    assert (step["violation_share"], step["negative_of_class_share"]) == ("0.5", "0.12346")
    curves = read_rows(tmp_path / "results" / "selection_curves.csv")
    assert [(row["recipe"], row["epoch"], row["map@r"]) for row in curves] == [
        ("pads", "1", "0.25"),
        ("udist", "1", "0.2"),
    ]
    (point,) = read_rows(tmp_path / "results" / "test_curves.csv")
    assert point == {"recipe": "pads", "seed": "7", "step": "10", "epoch": "1", "recall@1": "0.41", "nmi": "0.6"}


def test_no_path_of_the_machine_is_kept(gather, tmp_path):
    study = make_study(tmp_path / "study", {"pads": (LEARNED, CURVE)})
    gather.gather([study], tmp_path / "results")
    config = json.loads((tmp_path / "results" / "pads.json").read_text())
    assert config["data"]["root"] is None
    assert config["network"]["weights"] == "weights.safetensors"
    assert not any("somewhere" in path.read_text() for path in (tmp_path / "results").iterdir())


def test_a_network_without_weights_stays_without(gather):
    config = gather.drop_paths('{"data": {"root": "x"}, "network": {"weights": null}}')
    assert json.loads(config) == {"data": {"root": None}, "network": {"weights": None}}


def test_rows_come_in_the_order_of_the_arms_and_then_of_the_folders(gather, tmp_path):
    late_first = {"replayed": (LEARNED, CURVE), "udist": (LEARNED, CURVE), "pads": (LEARNED, CURVE)}
    study = make_study(tmp_path / "study", late_first, study="controls")
    more = make_study(tmp_path / "more", {"aaa": (LEARNED, CURVE)})
    gather.gather([study, more], tmp_path / "results")
    assert [row["recipe"] for row in read_rows(tmp_path / "results" / "seeds.csv")] == [
        "udist",
        "pads",
        "replayed",
        "aaa",
    ]


def test_a_folder_of_one_study_says_which(gather, tmp_path):
    arms = {"pads": (LEARNED, CURVE)}
    first = make_study(tmp_path / "first", arms, study="controls")
    second = make_study(tmp_path / "second", arms, seed=8, study="controls")
    other = make_study(tmp_path / "other", arms, seed=9, study="agents")
    gather.gather([first, second], tmp_path / "one")
    assert json.loads((tmp_path / "one" / "study.json").read_text()) == {"study": "controls"}
    gather.gather([first, other], tmp_path / "two")
    assert not (tmp_path / "two" / "study.json").exists()


def test_runs_of_an_arm_stand_together_by_seed_whichever_folders_they_are_in(gather, tmp_path):
    both = {"udist": (LEARNED, CURVE), "pads": (LEARNED, CURVE)}
    folders = [
        make_study(tmp_path / "first", both, seed=3),
        make_study(tmp_path / "second", {"pads": (LEARNED, CURVE)}, seed=10),
        make_study(tmp_path / "third", dict(reversed(both.items())), seed=2),
    ]
    gather.gather(folders, tmp_path / "results")
    expected = [("udist", "2"), ("udist", "3"), ("pads", "2"), ("pads", "3"), ("pads", "10")]
    for name in ("seeds", "training", "adaptations", "selection_curves", "test_curves"):
        rows = read_rows(tmp_path / "results" / f"{name}.csv")
        assert list(dict.fromkeys((row["recipe"], row["seed"]) for row in rows)) == expected


def test_seconds_can_be_left_out_but_their_column_stays(gather, tmp_path):
    study = make_study(tmp_path / "study", {"pads": (LEARNED, CURVE)})
    gather.main([str(study), str(tmp_path / "with")])
    gather.main([str(study), str(tmp_path / "without"), "--without-seconds"])
    assert read_rows(tmp_path / "with" / "seeds.csv")[0]["seconds"] == "12.5"
    assert read_rows(tmp_path / "without" / "seeds.csv")[0]["seconds"] == ""


def test_arms_that_were_not_run_are_not_gathered(gather, tmp_path):
    study = make_study(tmp_path / "study", {"pads": (LEARNED, CURVE)})
    (study / "larger.json").write_text((study / "pads.json").read_text())
    gather.gather([study], tmp_path / "results")
    assert not (tmp_path / "results" / "larger.json").exists()


def test_a_folder_without_runs_is_refused_before_anything_is_written(gather, tmp_path):
    with pytest.raises(SystemExit, match="no folder of a study"):
        gather.main([str(tmp_path), str(tmp_path / "results")])
    assert not (tmp_path / "results").exists()


def test_bins_are_kept_as_they_were_when_the_selection_split_was_measured(gather, tmp_path):
    events = [
        selection(1, 0.4, 0.2),  # before the first adjustment
        adaptation(15, distribution=[0.25, 0.75]),
        adaptation(20, distribution=[0.5, 0.5]),
        selection(2, 0.5, 0.25),
        adaptation(25, distribution=[1.0, 0.0]),
    ]
    study = make_study(tmp_path / "study", {"pads": (events, CURVE), "udist": ([selection(1, 0.4, 0.2)], [])})
    gather.gather([study], tmp_path / "results")
    assert read_rows(tmp_path / "results" / "distributions.csv") == [
        {"recipe": "pads", "seed": "7", "step": "20", "epoch": "2", "bin_1": "0.5", "bin_2": "0.5"}
    ]


def with_a_cut_run(folder):
    study = make_study(folder, {"pads": (LEARNED, CURVE), "larger-images": (LEARNED, CURVE)})
    write_csv(study / "seeds.csv", [row for row in read_rows(study / "seeds.csv") if row["recipe"] == "pads"])
    return study


def test_a_run_that_was_cut_keeps_its_curves_under_a_name_that_says_so(gather, tmp_path):
    study, results = with_a_cut_run(tmp_path / "study"), tmp_path / "results"
    gather.main([str(study), str(results), "--cut", "larger-images-7"])
    assert [row["recipe"] for row in read_rows(results / "seeds.csv")] == ["pads"]
    for name in ("selection_curves.csv", "test_curves.csv"):
        assert [(row["recipe"], row["seed"]) for row in read_rows(results / name)] == [
            ("pads", "7"),
            ("larger-images-cut", "7"),
        ]
    assert json.loads((results / "larger-images-cut.json").read_text())["data"]["root"] is None
    assert not (results / "larger-images.json").exists()


@pytest.mark.parametrize("name", ["pads-7", "larger-images-8", "typo"])
def test_what_is_finished_or_not_there_is_not_taken_for_cut(gather, tmp_path, name):
    study = with_a_cut_run(tmp_path / "study")
    with pytest.raises(SystemExit, match=f"--cut {name} needs one study"):
        gather.main([str(study), str(tmp_path / "results"), "--cut", name])
    assert not (tmp_path / "results").exists()


# -- picks -------------------------------------------------------------------------------------------------------------


def test_a_pick_loses_what_the_best_of_the_common_epochs_has_more(picks):
    test = {20: 0.60, 40: 0.63, 60: 0.61}
    assert picks.measure_lost({10: 0.99, 20: 0.5, 40: 0.6, 60: 0.7}, test) == pytest.approx(
        0.02
    )  # epoch 10 has no test figure
    assert picks.measure_lost({20: 0.5, 40: 0.7, 60: 0.7}, test) == 0  # of equals the first, as training keeps it
    assert picks.measure_lost({20: 0.7, 40: 0.7, 60: 0.7}, test) == pytest.approx(0.03)


@pytest.fixture
def evidence(gather, tmp_path):
    def make(name, **options):
        events = [selection(20, 0.9, 0.3), selection(40, 0.8, 0.4)]
        curve = [{"step": 200, "epoch": 20, "recall@1": 0.5}, {"step": 400, "epoch": 40, "recall@1": 0.6}]
        study = make_study(tmp_path / f"study-{name}", {"arm": (events, curve)}, **options)
        gather.gather([study], tmp_path / name)
        return tmp_path / name

    return make


def test_runs_that_selected_on_the_test_split_say_nothing(picks, evidence):
    losses = picks.losses_of([evidence("honest"), evidence("peeking", paper_protocol=True)])
    assert losses == {("honest", "arm", 7): {"recall@1": pytest.approx(10), "map@r": 0}}


def test_pairs_of_arms_agree_if_both_splits_prefer_the_same(picks, evidence):
    folder = evidence("honest")
    figures = {"a": (0.9, 0.6), "b": (0.8, 0.5), "c": (0.7, 0.7), "d": (0.7, 0.4)}
    rows = [
        {"recipe": name, "seed": 7, "selection_recall@1": held, "selected_recall@1": test}
        for name, (held, test) in figures.items()
    ]
    write_csv(folder / "seeds.csv", [*rows, {**rows[0], "seed": 8}])
    for name in figures:
        (folder / f"{name}.json").write_text((folder / "arm.json").read_text())
    assert picks.agreement(folder, "recall@1") == (3, 5)  # a > b, a > d, b > d; not a > c, b > c; c and d are equal


def test_the_table_has_a_row_for_each_run_and_the_means(picks, evidence, capsys):
    folder = evidence("honest")
    write_csv(
        folder / "seeds.csv",
        [{"recipe": "arm", "seed": 7, "selection_recall@1": 0.9, "selection_map@r": 0.3, "selected_recall@1": 0.5}],
    )
    second = evidence("more")
    write_csv(second / "seeds.csv", read_rows(folder / "seeds.csv"))
    picks.main([str(folder), str(second)])
    out = capsys.readouterr().out
    assert out.count("| arm | 7 | 10.00 | 0.00 |") == 2
    assert "| mean of 2 | | 10.00 | 0.00 |" in out
