"""The paper's tables as data: the arms of each, with the published percentages beside them.

Names of the tables are those of the paper with its appendix (1 to 10); `controls` is what the paper lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from pads.config import Config, Network, Part, Sampling
from pads.recipes import PACED, PAPER_BINS, with_pads
from pads.studies.arms import (
    Arm,
    Change,
    Figures,
    Needs,
    Study,
    bins_code,
    control,
    freeze_policy,
    margin,
    of_run,
    pads,
    pads_code,
    same_positives,
    single_bin,
    static,
    tune_agent,
    tune_rate,
    udist,
    udist_authors,
    udist_rho_code,
    with_bins,
    with_fields,
    with_options,
    with_part,
)

COLUMNS = {
    "cub200": ("recall@1", "recall@2", "recall@4", "nmi"),
    "cars196": ("recall@1", "recall@2", "recall@4", "nmi"),
    "sop": ("recall@1", "recall@10", "recall@100", "nmi"),
}
"""Of the paper's large tables. (Table 2 heads those of SOP R@2 and R@4; its numbers are those of R@10 and R@100.)"""


def parse_row(*rows: str) -> dict[str, Figures]:
    """Read the numbers of a row as they are printed, for CUB, CARS and SOP in this order; a dash for none."""
    return {
        data: {name: float(cell) for name, cell in zip(COLUMNS[data], row.split(), strict=True) if cell != "-"}
        for data, row in zip(COLUMNS, rows, strict=False)
    }


def on_cub(recall: float, nmi: float | None = None) -> dict[str, Figures]:
    """R@1 and NMI, as the ablations have them."""
    return {"cub200": {"recall@1": recall, **({"nmi": nmi} if nmi is not None else {})}}


def by_data(rows: Mapping[str, Mapping[str, Figures]]) -> dict[str, dict[str, Figures]]:
    """Rows by data set, then by name."""
    found: dict[str, dict[str, Figures]] = {}
    for name, row in rows.items():
        for data, figures in row.items():
            found.setdefault(data, {})[name] = figures
    return found


# -- Tables 1 and 2 -----------------------------------------------------------------------------------------------------

TABLE_1 = {
    "margin-udist": parse_row("63.5 74.9 84.4 68.1", "80.1 87.4 91.9 67.6", "74.6 87.5 94.2 90.7"),
    "margin-udist-0.6": parse_row("63.0 74.3 83.0 66.9", "79.7 87.0 91.8 67.1", "73.5 87.2 93.9 89.3"),
    "margin-pads": parse_row("67.3 78.0 85.9 69.9", "83.5 89.7 93.8 68.8", "76.5 89.0 95.4 89.9"),
    "triplet-semihard": parse_row("60.6 72.3 82.1 65.5", "71.9 81.5 88.5 64.1", "73.5 87.5 94.9 89.2"),
    "triplet-udist": parse_row("62.2 73.2 82.8 66.3", "78.0 85.6 91.4 65.7", "73.9 87.7 94.5 89.3"),
    "triplet-pads": parse_row("64.0 75.5 84.3 67.8", "79.9 87.5 92.3 67.1", "74.8 88.2 95.0 89.5"),
}


def triplet_pads(base: Config) -> Config:
    return with_pads(static("distance-weighted", Part("triplet"))(base))


BASELINES = Study(
    "baselines",
    "static samplers and PADS under margin and triplet loss (Table 1)",
    (
        Arm("margin-udist", udist, TABLE_1["margin-udist"]),
        Arm("margin-udist-0.6", static("distance-weighted", margin(0.6)), TABLE_1["margin-udist-0.6"]),
        Arm("margin-pads", pads, TABLE_1["margin-pads"]),
        Arm("margin-pads-code", pads_code),
        Arm("triplet-semihard", static("semihard", Part("triplet")), TABLE_1["triplet-semihard"]),
        Arm("triplet-udist", static("distance-weighted", Part("triplet")), TABLE_1["triplet-udist"]),
        Arm("triplet-pads", triplet_pads, TABLE_1["triplet-pads"]),
        Arm("triplet-hard", static("hard", Part("triplet"))),
    ),
    reference="margin-udist",
    scheduled=True,
    published=by_data(
        {
            "margin-udist (orig)": parse_row("63.6 74.4 83.1 69.0", "79.6 86.5 90.1 69.1", "72.7 86.2 93.8 90.7"),
            "triplet-semihard (orig)": parse_row("42.6 55.0 66.4 55.4", "51.5 63.8 73.5 53.4", "66.7 82.4 91.9 89.5"),
        }
    ),
    bases=("cub200", "cars196", "sop"),
    notes=(
        "margin-pads-code is PADS as the authors' code has it; triplet-hard is there for what the text says of hard "
        "negatives. The paper has no numbers of its own for either.",
    ),
)


STATE_OF_THE_ART = Study(
    "state-of-the-art",
    "PADS beside the published rows of the related work (Table 2); the study `losses` trains some of them",
    (
        Arm("margin-udist", udist, TABLE_1["margin-udist"]),
        Arm("margin-pads", pads, TABLE_1["margin-pads"]),
    ),
    reference="margin-udist",
    scheduled=True,
    published=by_data(
        {
            "HTG, 512": parse_row("59.5 71.8 81.3 -", "76.5 84.7 90.4 -"),
            "HDML, 512": parse_row("53.7 65.7 76.7 62.6", "79.1 87.1 92.1 69.7", "68.7 83.2 92.4 89.3"),
            "HTL, 512": parse_row("57.1 68.8 78.7 -", "81.4 88.0 92.7 -", "74.8 88.3 94.8 -"),
            "DVML, 512": parse_row("52.7 65.1 75.5 61.4", "82.0 88.4 93.3 67.6", "70.2 85.2 93.8 90.8"),
            "A-BIER, 512": parse_row("57.5 68.7 78.3 -", "82.0 89.0 93.2 -", "74.2 86.9 94.0 -"),
            "MIC, 128": parse_row("66.1 76.8 85.6 69.7", "82.6 89.1 93.2 68.4", "77.2 89.4 95.6 90.0"),
            "D&C, 128": parse_row("65.9 76.6 84.4 69.6", "84.6 90.7 94.1 70.3", "75.9 88.4 94.9 90.2"),
            "Margin, 128": parse_row("63.6 74.4 83.1 69.0", "79.6 86.5 90.1 69.1", "72.7 86.2 93.8 90.8"),
            "HORDE + contrastive, 512": parse_row("66.3 76.7 84.7 -", "83.9 90.3 94.1 -"),
            "SOFT-TRIPLE, 512": parse_row("65.4 76.4 84.5 -", "84.5 90.7 94.5 70.1", "78.3 90.3 95.9 92.0"),
            "Rank (ensemble), 1536": parse_row("61.3 72.7 82.7 66.1", "82.1 89.3 93.7 71.8", "79.8 91.3 96.3 90.4"),
            "DREML (ensemble), 9216": parse_row("63.9 75.0 83.1 67.8", "86.0 91.7 95.0 76.4"),
            "ABE (ensemble), 512": parse_row("60.6 71.5 79.8 -", "85.2 90.5 94.0 -", "76.3 88.4 94.8 -"),
        }
    ),
    bases=("cub200", "cars196", "sop"),
    notes=(
        "The published rows have other backbones, dimensions (after the comma) and protocols; the trained ones share "
        "backbone, batches, steps and selection.",
    ),
)

# -- Tables 3 and 4 -----------------------------------------------------------------------------------------------------

TRANSFER = Study(
    "transfer",
    "a trained policy, or the last distribution, fixed and used by another run (Table 3)",
    (
        Arm("reference", pads, on_cub(65.4)),
        Arm("policy-other-init", pads, on_cub(64.3), Needs("reference", freeze_policy, "another")),
        Arm("last-p-other-init", pads, on_cub(59.0), Needs("reference", of_run("last distribution"), "another")),
        Arm("policy-same-init", pads, on_cub(65.8), Needs("reference", freeze_policy)),
        Arm("last-p-same-init", pads, on_cub(57.6), Needs("reference", of_run("last distribution"))),
    ),
    reference="reference",
    notes=(
        "The run of seed s takes policy or distribution from the reference of the same seed (same weights, batches and "
        "draws) or of the next seed.",
    ),
)

CURRICULA = Study(
    "curricula",
    "fixed schedules of the distribution against the learned one (Table 4, Figure 5)",
    (
        Arm("pads", pads, parse_row("67.3 - - 69.9", "83.5 - - 68.8")),
        Arm("linear", static("linear", margin(1.2)), parse_row("59.1 - - 63.1", "72.2 - - 64.0")),
        Arm("non-linear", static("non-linear", margin(1.2)), parse_row("63.6 - - 68.4", "78.1 - - 66.8")),
    ),
    reference="pads",
    scheduled=True,
    bases=("cub200", "cars196"),
    notes=("The paper describes the schedules in words; formulas and numbers are ours (docs/curricula.md).",),
)

# -- Table 5 ------------------------------------------------------------------------------------------------------------

INTERVAL = Study(
    "interval",
    "the interval of distances that the bins cover (Table 5a)",
    (
        Arm("interval-0-2", with_bins(interval=[0.0, 2.0]), on_cub(64.7, 67.5)),
        Arm("interval-0.1-1.4", with_bins(interval=[0.1, 1.4]), on_cub(65.7, 69.2)),
        Arm("interval-0.25-1.0", with_bins(interval=[0.25, 1.0]), on_cub(64.8, 68.2)),
        Arm("interval-0.5-1.4", with_bins(interval=[0.5, 1.4]), on_cub(63.7, 67.5)),
    ),
    reference="interval-0.1-1.4",
)

BINS = Study(
    "bins",
    "the number of bins K (Table 5b)",
    (
        Arm("bins-10", with_bins(num_bins=10), on_cub(63.8, 67.8)),
        Arm("bins-30", with_bins(num_bins=30), on_cub(65.7, 69.2)),
        Arm("bins-50", with_bins(num_bins=50), on_cub(65.3, 68.7)),
        Arm("bins-100", with_bins(num_bins=100), on_cub(64.9, 68.6)),
    ),
    reference="bins-30",
)

INITIAL = Study(
    "initial",
    "the initial distribution (Table 5c)",
    (
        Arm("initial-uniform", with_bins(initial="uniform"), on_cub(63.9, 67.0)),
        Arm("initial-normal", with_bins(initial="N(0.5, 0.05)"), on_cub(65.0, 68.6)),
        Arm("initial-0.3-0.7", with_bins(initial="U[0.3, 0.7]"), on_cub(65.7, 69.2)),
    ),
    reference="initial-0.3-0.7",
)

# -- the appendix: Tables 6 to 10 ---------------------------------------------------------------------------------------

INCEPTION = Network(
    "inception-bn",
    embedding_dim=512,
    frozen_batch_norm=False,
    mean=(128 / 255, 117 / 255, 104 / 255),
    std=(1 / 255, 1 / 255, 1 / 255),
)


def with_inception(change: Change) -> Change:
    """Inception-BN with 512 dimensions; it wants pictures of at least 32 pixels."""

    def inception(base: Config) -> Config:
        size = base.data.image_size
        enlarged = {} if size >= 32 else {"image_size": 32, "resize": 36, "store_size": max(36, base.data.store_size)}
        return with_fields(with_part(change, "data", **enlarged), network=INCEPTION)(base)

    return inception


INCEPTION_BN = Study(
    "inception-bn",
    "margin loss with U-dist and with PADS on Inception-BN, 512 dimensions (Table 6)",
    (
        Arm("margin-udist", with_inception(udist), parse_row("63.8 75.3 84.7 67.9", "79.7 86.9 91.4 67.2")),
        Arm("margin-pads", with_inception(pads), parse_row("66.6 77.2 85.6 68.5", "81.7 88.3 93.0 68.2")),
    ),
    reference="margin-udist",
    published={data: rows for data, rows in STATE_OF_THE_ART.published.items() if data != "sop"},  # the same rows again
    bases=("cub200", "cars196"),
)


def resample_reward(split: str) -> Change:
    """Draw train and reward anew after each third of the training: every 50 of 150 epochs."""

    def change(base: Config) -> Config:
        every = max(1, round(base.num_epochs / 3))
        return with_part(pads, "data", reward_split=split, reward_resample_every=every)(base)

    return change


VALIDATION = Study(
    "validation",
    "the reward split: by class or per class, fixed or drawn anew every 50 epochs (Table 7)",
    (
        Arm("by-class", with_part(pads, "data", reward_split="by class"), on_cub(62.6, 67.7)),
        Arm("per-class", with_part(pads, "data", reward_split="per class"), on_cub(65.7, 69.2)),
        Arm("by-class-resampled", resample_reward("by class"), on_cub(63.0, 67.8)),
        Arm("per-class-resampled", resample_reward("per class"), on_cub(65.8, 69.6)),
    ),
    reference="per-class",
    notes=("Resampled: after every third of the training, which is 50 of 150 epochs.",),
)

STATES = {
    "recall+dist+nmi": ["recall", "distances", "nmi"],
    "recall+dist": ["recall", "distances"],
    "recall+nmi": ["recall", "nmi"],
    "dist+nmi": ["distances", "nmi"],
    "dist": ["distances"],
    "recall": ["recall"],
    "nmi": ["nmi"],
}
REWARDS = {"nmi": "nmi", "r1": "recall@1", "r1+nmi": "recall@1+nmi"}
STATE_REWARD_TABLE = {  # R@1 and NMI, a column for each reward
    "recall+dist+nmi": ((63.9, 68.5), (65.5, 68.9), (65.6, 69.2)),
    "recall+dist": ((65.0, 68.5), (65.7, 69.2), (64.4, 69.4)),
    "recall+nmi": ((63.7, 68.4), (63.9, 68.2), (64.2, 68.5)),
    "dist+nmi": ((65.3, 68.8), (65.3, 68.7), (65.1, 68.5)),
    "dist": ((65.3, 68.8), (65.5, 69.1), (64.3, 68.6)),
    "recall": ((64.2, 67.8), (65.1, 69.0), (64.9, 68.4)),
    "nmi": ((64.3, 68.7), (64.8, 69.2), (63.9, 68.4)),
}

STATE_REWARD = Study(
    "state-reward",
    "what the policy sees, and what it is rewarded for (Table 8); named STATE--REWARD",
    tuple(
        Arm(
            f"{state}--{reward}",
            with_options(state=STATES[state], reward=REWARDS[reward]),
            on_cub(*STATE_REWARD_TABLE[state][column]),
        )
        for state, (column, reward) in product(STATES, enumerate(REWARDS))
    ),
    reference="recall+dist+nmi--r1+nmi",
)

FREQUENCY = Study(
    "frequency",
    "M, the training steps between two adjustments (Table 9a)",
    (
        Arm("static", udist, on_cub(63.5, 68.1)),
        Arm("M-10", with_fields(pads, adapt_every=10), on_cub(64.4, 68.3), tune=tune_rate),
        Arm("M-30", with_fields(pads, adapt_every=30), on_cub(65.7, 69.2), tune=tune_rate),
        Arm("M-50", with_fields(pads, adapt_every=50), on_cub(65.4, 69.2), tune=tune_rate),
        Arm("M-70", with_fields(pads, adapt_every=70), on_cub(65.2, 68.9), tune=tune_rate),
        Arm("M-100", with_fields(pads, adapt_every=100), on_cub(65.1, 69.0), tune=tune_rate),
        Arm("M-infinity", with_fields(pads, adapt_every=None), on_cub(61.9, 67.0), tune=tune_rate),
    ),
    reference="static",
)

AVERAGES = Study(
    "averages",
    "the lengths R of the moving averages in the state (Table 9b)",
    (
        Arm("R-2", with_options(averages=[2]), on_cub(64.5, 68.6)),
        Arm("R-2-32", with_options(averages=[2, 32]), on_cub(65.4, 69.1)),
        Arm("R-2-8-16-32", with_options(averages=[2, 8, 16, 32]), on_cub(65.7, 69.2)),
        Arm("R-2-8-16-32-64", with_options(averages=[2, 8, 16, 32, 64]), on_cub(65.6, 69.3)),
    ),
    reference="R-2-8-16-32",
)

AVERAGED = {"baseline": "moving average"}

AGENTS = Study(
    "agents",
    "the learning algorithms of the policy (Table 10)",
    (
        Arm("static", udist, on_cub(63.5, 68.1)),
        *(
            Arm(name, with_options(agent=agent, agent_options=options), on_cub(recall, nmi), tune=tune_agent)
            for name, agent, options, recall, nmi in (
                ("reinforce", "reinforce", {}, 64.2, 68.5),
                ("reinforce-ema", "reinforce", AVERAGED, 64.8, 68.9),
                ("reinforce-a2c", "a2c", {}, 65.0, 69.0),
                ("ppo-ema", "ppo", AVERAGED, 65.4, 69.0),
                ("ppo-a2c", "ppo", {}, 65.7, 69.2),
                ("q-learning", "q-learning", {}, 63.2, 67.9),
                ("rainbow", "rainbow", {}, 64.9, 68.5),
            )
        ),
    ),
    reference="static",
    notes=("rainbow is Q-learning with prioritised replay and 2-step returns.",),
)

# -- what the paper lacks -----------------------------------------------------------------------------------------------

CONTROLS = Study(
    "controls",
    "PADS against everything that is PADS but for one thing (not in the paper)",
    (
        Arm("udist", udist, on_cub(63.5, 68.1)),
        Arm("udist-beta", static("distance-weighted", margin(0.6))),
        Arm("udist-rho-0.4", static("distance-weighted", margin(0.6), rho=0.4)),
        Arm("udist-pace", static("distance-weighted", PACED)),
        Arm("pads", pads, on_cub(65.7, 69.2)),
        Arm("random-actions", control("random actions")),
        Arm("random-reward", control("random reward")),
        Arm("frozen-policy", control("frozen policy")),
        Arm(
            "fixed-bins",
            lambda base: replace(pads(base), curriculum=Part("bins", PAPER_BINS)),
            on_cub(61.9, 67.0),
        ),
        Arm("fixed-bins-code", bins_code),
        Arm("udist-rho", udist, needs=Needs("pads", same_positives)),
        Arm("pads-other-classes", with_fields(pads, sampling=Sampling("other classes"))),
        Arm("replayed", pads, needs=Needs("pads", of_run("replayed"), "another")),
    ),
    reference="pads",
    notes=(
        "Only a difference to all of them says that the policy learned something (docs/curricula.md).",
        "udist-rho flips as many triplets as PADS of the same seed drew positives for negatives; replayed repeats what "
        "PADS of the next seed did, blind to its own network.",
        "udist-beta has the boundary of PADS, 0.6, and nothing else of it; udist-rho-0.4 also flips 40 % of the triplets "
        "(R-Margin); the boundary of udist-pace rises from 0.6 as triplets cease to cost. None of them adapts its sampler.",
    ),
)


def run_200_epochs(base: Config) -> Config:
    """Cut the authors' 300 epochs at 200, at least 50 past the fall of the rate; hold no classes out for a selection."""
    data = replace(base.data, selection_share=0.0)
    return replace(base, data=data, num_epochs=min(200, base.num_epochs), test_curve_every=5)


AUTHORS = Study(
    "authors",
    "the authors' reading at the authors' length, and its controls (not in the paper but for the first arm)",
    (
        Arm("pads-code", pads_code, TABLE_1["margin-pads"]),
        Arm("fixed-bins-code", bins_code),
        Arm("random-reward-code", with_part(pads_code, "curriculum", name="random reward")),
        Arm("single-bin-code", single_bin),
        Arm("udist-rho-code", udist_rho_code),
        Arm("udist-authors", udist_authors, TABLE_1["margin-udist"]),
    ),
    reference="pads-code",
    scheduled=True,
    bases=("cub200", "cars196", "sop"),
    prepare=run_200_epochs,
    notes=(
        "All training classes train, so that no epoch is selected: the last one stands in its place. 200 epochs with the "
        "rate that falls as in the authors' command (150 on CUB200-2011, 140 on CARS196), the test curve every 5.",
        "fixed-bins-code never adapts, random-reward-code learns from a coin, single-bin-code has all mass in bin 8 of 29, "
        "udist-rho-code flips 40 % of the triplets (β 0.6, the same batches and images); udist-authors has 4 images per class, "
        "β 1.2 at a rate of 5e-4 and no reward split.",
    ),
)


def halfway(base: Config) -> Config:
    """The rates fall after half of the training."""
    return with_part(udist, "optimiser", milestones=(base.num_epochs // 2,))(base)


FACTORS = Study(
    "factors",
    "what the distance to the paper's numbers is made of, one factor at a time (not in the paper)",
    (
        Arm("udist", udist, on_cub(63.5, 68.1)),
        Arm("larger-images", with_part(udist, "data", image_size=256, resize=288)),
        Arm("paper-crop", with_part(udist, "data", augmentation="resize and crop")),
        Arm("four-per-class", with_part(udist, "data", classes_per_batch=28, samples_per_class=4)),
        Arm("fast-head", with_part(udist, "optimiser", head_factor=10.0)),
        Arm("schedule", halfway),
        Arm("no-reward-split", with_part(udist, "data", reward_share=0.0)),
        Arm("paper-protocol", with_part(udist, "data", reward_share=0.0, paper_protocol=True)),
        Arm("pads", pads, on_cub(65.7, 69.2)),
        Arm("pads-code", pads_code),
    ),
    reference="udist",
    notes=(
        "no-reward-split trains on all images but the selection classes, paper-protocol on all images, and selects on "
        "the test split; pads-code reads the paper as its authors' code does.",
    ),
)

# -- what the paper lacks: losses, each alone and with S2SD ---------------------------------------------------------------


def without_reward_split(change: Change) -> Change:
    """Train on all images: no policy asks for a reward."""
    return with_part(change, "data", reward_share=0.0)


def with_proxies(loss: str) -> Change:
    """A loss with a vector for each class, which needs a larger rate than the network."""
    return with_part(static("random", Part(loss)), "optimiser", loss_learning_rate=1e-3)


def literature(loss: str, **options: object) -> Change:
    """A loss of pytorch-metric-learning on all pairs or triplets of the batch, as in its own paper: nothing is drawn.

    Their number changes from step to step, so that there is no CUDA graph to replay.
    """
    return with_fields(static("random", Part(f"pml:{loss}", {**options, "triplets": "all"})), compiled=False)


OWN_LOSSES: dict[str, Change] = {
    "margin": udist,
    "r-margin": static("distance-weighted", margin(0.6), rho=0.4),
    "multi-similarity": static("random", Part("multi-similarity", {"beta": 40.0, "epsilon": 0.1})),
    "proxy-anchor": with_proxies("proxy-anchor"),
    "normalised-softmax": with_proxies("normalised-softmax"),
    "contrastive": static("random", Part("contrastive")),
}
THEIR_LOSSES: dict[str, Change] = {
    "lifted-structure": literature("LiftedStructureLoss"),
    "n-pairs": literature("NPairsLoss"),
    "angular": literature("AngularLoss", alpha=40),
    "proxy-nca": literature("ProxyNCALoss"),
    "soft-triple": literature("SoftTripleLoss"),
    "ranked-list": literature("RankedListLoss", margin=0.4, Tn=5, alpha=1.2),
}

LOSSES = Study(
    "losses",
    "six losses, each alone and with S2SD, and six more of pytorch-metric-learning, under one protocol",
    (
        *(Arm(name, without_reward_split(change), tune=tune_rate) for name, change in OWN_LOSSES.items()),
        *(
            Arm(f"{name}-s2sd", without_reward_split(with_fields(change, distillation=Part("s2sd"))), tune=tune_rate)
            for name, change in OWN_LOSSES.items()
        ),
        *(Arm(name, without_reward_split(change), tune=tune_rate) for name, change in THEIR_LOSSES.items()),
    ),
    reference="margin",
    bases=("cub200", "cars196", "sop"),
    notes=(
        "Every arm trains on all images but the selection classes: there is no policy, and so no reward split.",
        "The last six see all pairs or triplets of a batch, in the library's options or their papers'.",
    ),
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        BASELINES,
        STATE_OF_THE_ART,
        TRANSFER,
        CURRICULA,
        INTERVAL,
        BINS,
        INITIAL,
        INCEPTION_BN,
        VALIDATION,
        STATE_REWARD,
        FREQUENCY,
        AVERAGES,
        AGENTS,
        CONTROLS,
        AUTHORS,
        FACTORS,
        LOSSES,
    )
}
