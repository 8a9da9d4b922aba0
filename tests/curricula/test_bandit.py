"""The bandit: its formulas against closed forms, its choices against uniform ones, its shapes against the bins."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import pads
from pads.adapters import AdaptiveController, TripletSampler
from pads.config import Part, with_settings
from pads.curricula import BanditCurriculum, build_curriculum
from pads.curricula.bandit import (
    Arm,
    Changes,
    describe,
    draw_weights,
    features,
    make_arms,
    no_evidence,
    observed,
    posterior,
    slope,
    smooth_one_hot,
    standardised,
    with_change,
)
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.reports.report import write_report
from pads.reports.series import series_of
from pads.runtime.team import LedCurriculum, Team
from pads.sampling import bin_distribution, draw_triplets

LEVEL = "soft-recall"
SMALL = {"locations": [0.3, 0.7, 1.1], "widths": [0.1], "rhos": [0.0, 0.3]}


def make(seed=0, **options):
    return build_curriculum(Part("bandit", options), dim=16, recall_at=(1, 2), seed=seed)


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def play(curriculum, gain, num_rounds, noise=1.0, seed=0):
    """Adds gain(arm, round) and noise to a level, as training would; the arms that were drawn by."""
    generator, level, arms = torch.Generator().manual_seed(1000 + seed), 0.3, []
    for index in range(num_rounds):
        arms.append(curriculum.arms[curriculum.arm])
        level += 1e-3 * (gain(arms[-1], index) + noise * torch.randn((), generator=generator).item())
        curriculum.advance({LEVEL: level}, index / num_rounds)
    return arms


# -- arms --------------------------------------------------------------------------------------------------------------


def test_the_arms_are_the_grid_and_each_is_a_normal_shape_with_a_rho():
    curriculum = make()
    assert len(curriculum.arms) == len(set(curriculum.arms)) == 5 * 2 * 3
    for arm, made in zip(curriculum.arms, curriculum.distributions, strict=True):
        mean, sd = arm.location, arm.width
        naive = [max(0.01, math.exp(-0.5 * ((centre - mean) / sd) ** 2)) for centre in bin_distribution().centres]
        assert made.probabilities_K.tolist() == pytest.approx([weight / sum(naive) for weight in naive])
        assert (made.num_bins, made.interval, made.rho) == (30, (0.1, 1.4), arm.rho)


def test_the_rest_of_the_distribution_follows_the_options_of_the_bins():
    made = make(**SMALL, bins={"num_bins": 7, "tails": "merge", "outside": 0.1}).distribution
    assert (made.num_bins, made.tails) == (7, "merge")
    assert made.probabilities_K.min() >= 0.1 / 7


def test_every_choice_logs_the_arm_that_it_draws_by():
    for choice in ("thompson", "uniform", "fixed"):
        curriculum = make(choice=choice)
        for index in range(5):
            log = curriculum.advance({LEVEL: 0.1 * index**2}, index / 5)
            assert (log["location"], log["width"], log["rho"]) == curriculum.arms[log["arm"]]
            assert log["distribution"] == curriculum.distributions[log["arm"]].probabilities_K.tolist()
            assert log["perplexity"] == curriculum.distribution.perplexity
            assert curriculum.distribution.rho == log["rho"]
            assert (log["reward"] is None) == (index == 0)


def test_the_rule_keeps_its_tensors_because_a_cuda_graph_reads_them(batch):
    curriculum = make(choice="uniform")
    draw_triplets(*batch, curriculum.rule)
    log_p_K, rho = curriculum.rule.log_p_K(torch.device("cpu")), curriculum.rule.rho(torch.device("cpu"))
    for index in range(4):
        log = curriculum.advance({LEVEL: 0.5}, index / 4)
        assert curriculum.rule.log_p_K(torch.device("cpu")) is log_p_K
        assert curriculum.rule.rho(torch.device("cpu")) is rho
        assert rho.item() == pytest.approx(log["rho"])
        assert log_p_K.exp().tolist() == pytest.approx(log["distribution"], rel=1e-6)


# -- the reward --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.5, 0.9, 1.0])
def test_running_mean_and_variance_are_those_of_weighted_sums(decay):
    values = numbers(40).tolist()
    changes = Changes(0.0, 0.0, 0.0)
    for index, value in enumerate(values):
        changes = with_change(changes, value, decay)
        weights = [decay ** (index - i) for i in range(index + 1)]
        mean = np.average(values[: index + 1], weights=weights)
        variance = np.average((np.array(values[: index + 1]) - mean) ** 2, weights=weights)
        assert (changes.mean, changes.variance) == pytest.approx((mean, variance), abs=1e-12)
        assert changes.weight == pytest.approx(sum(weights))


def test_the_reward_is_the_change_against_its_running_mean_in_standard_deviations():
    curriculum, level, levels = make(baseline=1.0), 0.3, []
    for step in numbers(20, seed=3).tolist():
        level += 0.01 * step
        levels.append(level)
        reward = curriculum.advance({LEVEL: level}, 0.5)["reward"]
        changes = np.diff(levels)
        if len(changes) > 1:
            assert reward == pytest.approx((changes[-1] - changes.mean()) / changes.std())
            assert abs(reward) <= math.sqrt(len(changes) - 1) + 1e-9  # one wild measurement cannot drown the rest


def test_a_level_that_does_not_move_or_rises_evenly_rewards_nothing():
    for step in (0.0, 1e-3):
        curriculum = make()
        logs = [curriculum.advance({LEVEL: 0.3 + step * index}, index / 9) for index in range(9)]
        assert {log["reward"] for log in logs[1:]} == {0.0}


def test_the_reward_does_not_depend_on_the_unit_of_the_level():
    values = numbers(30).cumsum(0).tolist()
    fractions, percents = make(), make()
    for index, value in enumerate(values):
        small = fractions.advance({LEVEL: 0.01 * value}, index / 30)
        large = percents.advance({LEVEL: value}, index / 30)
        assert small["arm"] == large["arm"]
        assert small["reward"] == (large["reward"] and pytest.approx(large["reward"], abs=1e-9))


def test_the_slope_is_1_for_a_steady_rise_and_minus_1_for_a_steady_fall_and_0_in_between():
    def of(values):
        changes = Changes(0.0, 0.0, 0.0)
        for value in values:
            changes = with_change(changes, value, 1.0)
        return slope(changes)

    assert of([]) == of([0.0]) == 0.0
    assert of([0.01] * 5) == pytest.approx(1.0)
    assert of([-0.01] * 5) == pytest.approx(-1.0)
    assert of([0.01, -0.01]) == pytest.approx(0.0)
    values = numbers(50, seed=1).numpy() + 0.5
    assert of(values.tolist()) == pytest.approx(values.mean() / np.sqrt((values**2).mean()))


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[0.4], [0.3, 0.5], [0.1, 0.2, 0.9, 1.0, 1.2]])
def test_smooth_one_hots_have_the_products_of_their_kernel(values):
    rows = smooth_one_hot(values)
    assert rows.shape == (len(values), len(values))
    for i, j in itertools.product(range(len(values)), repeat=2):
        assert (rows[i] @ rows[j]).item() == pytest.approx(math.exp(-((i - j) ** 2) / 2))
    shuffled = [*values[1:], values[0], values[0]]
    assert torch.equal(smooth_one_hot(shuffled), torch.cat([rows[1:], rows[:1], rows[:1]]))


def test_features_of_two_arms_have_the_product_of_the_docs_at_every_moment():
    arms = make_arms([0.3, 0.5, 1.1], [0.05, 0.15], [0.0, 0.1, 0.2, 0.4])
    grids = [0.3, 0.5, 1.1], [0.05, 0.15], [0.0, 0.1, 0.2, 0.4]
    for (progress, rising), (other_progress, other_rising) in [((0.8, -0.3), (0.8, -0.3)), ((0.2, 0.5), (0.9, 0.1))]:
        here, there = features(describe(arms), progress, rising), features(describe(arms), other_progress, other_rising)
        moment = 1 + (2 * progress - 1) * (2 * other_progress - 1) + rising * other_rising
        products = (here @ there.T).tolist()
        for (i, a), (j, b) in itertools.product(enumerate(arms), repeat=2):
            ranks = [(grid.index(x), grid.index(y)) for grid, x, y in zip(grids, a, b, strict=True)]
            l, w, r = (math.exp(-((x - y) ** 2) / 2) for x, y in ranks)  # noqa: E741
            assert products[i][j] == pytest.approx(moment * (1 + l + w + r) + l * w / 4 + l * r / 4)


def test_before_anything_is_seen_every_arm_is_as_uncertain_as_any_other():
    rows = features(make().described, 0.3, 0.7)
    sizes = rows.square().sum(1)
    assert torch.allclose(sizes, sizes[0].expand_as(sizes))


def test_what_is_learned_of_an_arm_says_more_of_its_neighbours_than_of_others():
    curriculum = make()
    rows = features(curriculum.described, 0.0, 0.0)
    seen = curriculum.arms.index(Arm(0.5, 0.05, 0.0))
    mean_F, _ = posterior(observed(no_evidence(rows.shape[1]), rows[seen], 1.0, 1.0), 0.3)
    expected = dict(zip(curriculum.arms, (rows @ mean_F).tolist(), strict=True))
    assert max(expected, key=expected.get) == Arm(0.5, 0.05, 0.0)
    assert expected[Arm(0.7, 0.05, 0.0)] > expected[Arm(0.9, 0.05, 0.0)] > expected[Arm(1.1, 0.05, 0.0)]
    assert expected[Arm(0.5, 0.15, 0.0)] > expected[Arm(0.9, 0.15, 0.0)]


# -- the posterior -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("forgetting", "prior"), [(1.0, 0.3), (0.9, 2.0)])
def test_the_posterior_is_that_of_weighted_ridge_regression(forgetting, prior):
    x_NF, r_N = numbers(50, 6).numpy(), numbers(50, seed=1).numpy()
    evidence = no_evidence(6)
    for x_F, reward in zip(x_NF, r_N, strict=True):
        evidence = observed(evidence, torch.from_numpy(x_F), float(reward), forgetting)
    weights_N = forgetting ** np.arange(49, -1, -1)
    precision_FF = (x_NF * weights_N[:, None]).T @ x_NF + np.eye(6) / prior**2
    mean_F, made_FF = posterior(evidence, prior)
    np.testing.assert_allclose(made_FF, precision_FF, atol=1e-10)
    np.testing.assert_allclose(mean_F, np.linalg.inv(precision_FF) @ (x_NF.T @ (weights_N * r_N)), atol=1e-10)
    # the same as least squares with the prior as rows of their own: an oracle that has no normal equations
    rows = np.vstack([x_NF * np.sqrt(weights_N)[:, None], np.eye(6) / prior])
    expected_F, *_ = np.linalg.lstsq(rows, np.concatenate([np.sqrt(weights_N) * r_N, np.zeros(6)]), rcond=None)
    np.testing.assert_allclose(mean_F, expected_F, atol=1e-10)


def test_draws_have_the_mean_and_the_covariance_of_the_posterior(generator):
    factor_FF = numbers(4, 4)
    mean_F, precision_FF = numbers(4, seed=1), factor_FF @ factor_FF.T + torch.eye(4, dtype=torch.float64)
    draws_NF = torch.stack([draw_weights(mean_F, precision_FF, generator) for _ in range(20000)])
    assert torch.allclose(draws_NF.mean(0), mean_F, atol=0.03)
    assert torch.allclose(draws_NF.T.cov(), torch.linalg.inv(precision_FF), atol=0.03)


def test_before_anything_is_seen_the_prior_is_all_there_is():
    mean_F, precision_FF = posterior(no_evidence(3), 0.5)
    assert torch.equal(mean_F, torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(precision_FF, 4 * torch.eye(3, dtype=torch.float64))
    first = {make(seed=seed).arm for seed in range(40)}
    assert len(first) > 5  # the first arm is a draw too


# -- choosing ----------------------------------------------------------------------------------------------------------


def test_thompson_sampling_finds_the_best_arm_far_more_often_than_chance():
    best = Arm(0.7, 0.1, 0.3)

    def gain(arm, index):
        return -((arm.location - 0.7) ** 2) / 0.08 - (arm.rho == 0.0)

    shares = {choice: [] for choice in ("thompson", "uniform")}
    for (choice, hits), seed in itertools.product(shares.items(), range(6)):
        arms = play(make(seed, choice=choice, **SMALL), gain, 150, seed=seed)
        hits.append(sum(arm == best for arm in arms[-50:]) / 50)
    assert np.mean(shares["uniform"]) == pytest.approx(1 / 6, abs=0.06)
    assert np.mean(shares["thompson"]) > 0.6
    assert min(shares["thompson"]) > max(shares["uniform"])


def test_without_a_difference_between_the_arms_no_arm_is_preferred_for_long():
    arms = play(make(**SMALL), lambda arm, index: 0.0, 400)
    counts = np.array([arms.count(arm) for arm in set(arms)])
    assert len(counts) == 6
    assert counts.max() < 200


def test_forgetting_tracks_a_change_that_perfect_memory_misses():
    def gain(arm, index):
        return 2.0 * (arm.location == (0.3 if index < 300 else 1.1))

    options = {**SMALL, "rhos": [0.0]}
    late = {}
    for forgetting in (0.95, 1.0):
        arms = [play(make(seed, forgetting=forgetting, **options), gain, 380, seed=seed)[300:] for seed in range(4)]
        late[forgetting] = np.mean([arm.location == 1.1 for arm in itertools.chain(*arms)])
    assert late[0.95] > 0.6
    assert late[0.95] > late[1.0] + 0.1


def test_the_choice_may_follow_the_progress_of_training():
    """Near negatives first, far ones later: neither is better on the whole."""

    def gain(arm, index):
        return 2 * (1 - index / 150) * (0.7 - arm.location) / 0.4

    curriculum = make(**{**SMALL, "rhos": [0.0]}, forgetting=1.0)
    play(curriculum, gain, 300)
    mean_F, _ = posterior(curriculum.evidence, curriculum.prior)
    early, late = (features(curriculum.described, progress, 0.0) @ mean_F for progress in (0.1, 0.9))
    assert curriculum.arms[int(early.argmax())].location == 0.3
    assert curriculum.arms[int(late.argmax())].location == 1.1


def test_the_controls_do_not_look_at_the_reward():
    rising, falling = ([0.3 + sign * 0.01 * i**1.5 for i in range(60)] for sign in (1, -1))
    for choice in ("uniform", "fixed"):
        curricula = make(choice=choice), make(choice=choice)
        logs = [
            [c.advance({LEVEL: level}, 0.5)["arm"] for level in levels]
            for c, levels in zip(curricula, (rising, falling), strict=True)
        ]
        assert logs[0] == logs[1]
    assert set(logs[0]) == {0}
    counts = np.bincount([make(seed, choice="uniform").arm for seed in range(300)], minlength=30)
    assert ((counts - 10) ** 2 / 10).sum() < 58.3  # chi-square, 29 degrees of freedom, p = 0.001


def test_the_seed_makes_the_arms_and_its_stream_is_not_that_of_the_training():
    assert len({make(seed).advance({LEVEL: 0.5}, 0.0)["arm"] for seed in range(12)}) > 3
    assert make(3).generator.initial_seed() != 3


# -- in a run, among processes, in somebody's loop ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    noise = np.random.default_rng(0)
    for label in range(10):
        (root / str(label)).mkdir()
        for index in range(6):
            pixels = np.clip(noise.normal((25 * label, 90, 120), 40, (20, 20, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / str(label) / f"{index}.png")
    settings = ["data.image_size=16", "data.resize=18", "data.store_size=20", "network.embedding_dim=8", "device=cpu"]
    settings += ["data.classes_per_batch=2", "data.samples_per_class=2", "adapt_every=2", "log_every=2", "threads=1"]
    settings += ["data.reward_share=0.2", "data.selection_share=0.2", "num_epochs=4", f"data.root={root}"]
    settings += ["curriculum.name=bandit", "sampling.negatives_from=other classes"]
    return replace(with_settings(RECIPES["folder-pads"](), settings), recipe="folder")


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    return pads.train(config, tmp_path_factory.mktemp("runs") / "bandit")


def events_of(run, kind):
    events = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    return [event for event in events if event["event"] == kind]


def test_a_run_flips_as_many_triplets_as_the_arm_says(config, tmp_path):
    options = {"locations": [0.5], "widths": [0.1], "rhos": [0.5]}
    flipped = replace(config, num_epochs=12, curriculum=Part("bandit", options))
    events = events_of(pads.train(flipped, tmp_path / "run"), "training")
    shares = [event["positive_is_anchor_share"] for event in events]
    assert shares == [event["negative_of_class_share"] for event in events]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.1)


def test_a_run_stopped_in_the_middle_ends_as_one_that_was_not(config, run, tmp_path):
    def stop(kind, step, values):
        if kind == "step" and step == 7:
            raise KeyboardInterrupt  # in the middle of an epoch: the resumed run begins at its checkpoint

    with pytest.raises(KeyboardInterrupt):
        pads.train(config, tmp_path / "run", watch=stop)
    resumed = pads.resume(tmp_path / "run")
    assert (resumed.path / "events.jsonl").read_bytes() == (run.path / "events.jsonl").read_bytes()
    assert (resumed.path / "metrics.json").read_bytes() == (run.path / "metrics.json").read_bytes()


def test_a_report_draws_a_run_as_it_draws_a_learned_one(run, tmp_path):
    series, adaptation = series_of(run), events_of(run, "adaptation")
    assert len(adaptation) > 4
    assert series["distribution"]["p"][1:] == [event["distribution"] for event in adaptation]
    assert series["distribution"]["p"][0] == make().distribution.probabilities_K.tolist()
    assert series["curves"]["reward/soft-recall"]["values"] == [event[LEVEL] for event in adaptation]
    for name in ("location", "rho"):
        assert series["curves"][name]["values"] == [event[name] for event in adaptation]
    assert series["curves"]["reward"]["steps"] == [event["step"] for event in adaptation[1:]]
    page = write_report([run.path], tmp_path / "report.html").page.read_text()
    assert "Share of flipped triplets" in page
    assert "Soft recall" in page


def test_the_first_process_chooses_and_the_others_flip_as_it_does():
    """What the first would broadcast is handed over here by hand, through the same calls."""
    said = []

    class First(Team):
        def lead(self, function):
            said.append(function())
            return said[-1]

    class Second(Team):
        def lead(self, function):
            return said[-1]

    first = LedCurriculum(make(choice="uniform"), First(rank=0, size=2))
    second = LedCurriculum(make(choice="uniform"), Second(rank=1, size=2))
    cpu = torch.device("cpu")
    shares = set()
    for index in range(12):
        for curriculum in (first, second):
            curriculum.rule.rho(cpu)  # its tensor on the device exists from now on, and must follow
            log = curriculum.advance({LEVEL: 0.3 + 0.01 * index}, index / 12)
        assert second.rule.rho(cpu).item() == first.rule.rho(cpu).item() == pytest.approx(log["rho"])
        assert torch.equal(second.rule.log_p_K(cpu), first.rule.log_p_K(cpu))
        assert second.rule.distribution.rho == log["rho"]
        shares.add(log["rho"])
    assert shares == {0.0, 0.15, 0.3}


def test_a_sampler_in_somebodys_loop_is_adapted_and_goes_on_from_its_state(batch):
    embeddings, labels = batch

    def sampler():
        return TripletSampler("bandit", {"rhos": [0.4, 0.8]}, seed=2)

    made = sampler()
    controller = AdaptiveController(made, every=1, num_steps=8)
    loader = [(embeddings, labels)]
    for index in range(4):
        log = controller.step(lambda images, index=index: images + 0.1 * index * numbers(32, 16).float(), loader)
        assert {LEVEL, "arm", "location", "width", "rho", "reward", "expected"} <= log.keys()
    anchors, positives, negatives = made(embeddings, labels)
    flipped = anchors == positives
    assert 0 < flipped.sum() < len(anchors)
    assert torch.equal(labels[anchors] == labels[negatives], flipped)
    other = sampler()
    other.load_state_dict(made.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(other(embeddings, labels), made(embeddings, labels), strict=True))
    logs = [AdaptiveController(s, every=1, num_steps=8).step(lambda images: images, loader) for s in (made, other)]
    assert logs[0] == logs[1]


def test_a_run_can_be_replayed_with_its_shares_of_flipped_triplets(finished_run, round_trip):
    run = finished_run("source", steps=range(3, 31, 3), num_steps=30, curriculum="bandit", choice="uniform")
    replay = build_curriculum(Part("replayed", {"run": str(run.path)}), dim=16, recall_at=(1, 2), seed=3)
    assert replay.distribution.rho == make(choice="uniform").distribution.rho
    replay.rule.rho(torch.device("cpu"))
    for event in events_of(run, "adaptation"):
        replay.advance({}, event["step"] / 30)
        assert replay.distribution.rho == event["rho"]
        assert replay.rule.rho(torch.device("cpu")).item() == pytest.approx(event["rho"])
    other = build_curriculum(Part("replayed", {"run": str(run.path)}), dim=16, recall_at=(1, 2), seed=3)
    other.load_state_dict(round_trip(replay.state_dict()))
    assert other.distribution.rho == replay.distribution.rho
    last = build_curriculum(Part("last distribution", {"run": str(run.path)}), dim=16, recall_at=(1, 2), seed=3)
    assert last.rule.distribution.rho == events_of(run, "adaptation")[-1]["rho"]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"locations": []}, "locations are []: give one or more different numbers"),
        ({"widths": [0.1, 0.1]}, "widths are [0.1, 0.1]: give one or more different numbers"),
        ({"widths": [0.0]}, "its standard deviation must be above 0"),
        ({"rhos": [0.0, 1.5]}, "rho is 1.5: it is the share of flipped triplets"),
        ({"locations": [1.6]}, "the location 1.6 lies outside the bins, which cover [0.1, 1.4]"),
        ({"choice": "greedy"}, "choice is 'greedy': choose one of 'thompson', 'uniform', 'fixed'"),
        ({"reward": "recall"}, "there is no metric 'recall'; did you mean recall@1"),
        ({"prior": 0}, "prior is 0: it is a standard deviation"),
        ({"forgetting": 1.2}, "forgetting is 1.2: it must be above 0 and at most 1"),
        ({"baseline": 0}, "baseline is 0: it must be above 0"),
        ({"bins": {"initial": "uniform"}}, "the arms say what initial is"),
        ({"bins": {"num_bin": 3}}, "did you mean curriculum.options.bins.num_bins"),
        ({"locations": 0.5}, "curriculum.options.locations must be a list, not 0.5"),
    ],
)
def test_options_that_cannot_work_are_refused_with_words(options, words):
    with pytest.raises(UserError) as refused:
        make(**options)
    assert words in str(refused.value)


def test_a_level_that_is_no_number_is_refused():
    with pytest.raises(UserError, match="soft-recall"):
        BanditCurriculum().advance({"recall@1": 0.5}, 0.0)
    with pytest.raises(UserError, match="the metric soft-recall is nan"):
        BanditCurriculum().advance({LEVEL: math.nan}, 0.0)


def test_an_outlier_is_bounded_by_the_memory_of_the_baseline():
    changes = Changes(0.0, 0.0, 0.0)
    for value in [*(numbers(200).tolist()), 1e6]:
        changes = with_change(changes, value, 0.9)
    assert 2.9 < standardised(1e6, changes) < 3.01  # sqrt(10 - 1): ten changes count
