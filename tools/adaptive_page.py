"""The pictures of docs/adaptive.md, and its tables and that of docs/benchmarks.md, from the evidence in results/.

    python tools/adaptive_page.py

Writes docs/pictures/adaptive-*.png and prints the tables; tests/tools/test_adaptive_page.py holds the pages to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pads.reports.figures import COLOURS, new_figure
from pads.studies.seeds import read_rows
from pads.studies.statistics import Estimate, difference, mean_and_sd, paired_difference
from results import unbroken

ROOT = Path(__file__).parent.parent
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "pictures"
EMOJI, SERIES, SCREEN, FACTORS = "emoji-adaptive", "cub200-series-a", "cub200-adaptive-screen", "cub200-factors"
FROM_U_DIST, SCHEDULED, SIXTY = "emoji-udist", "emoji-27-epochs", "emoji-60-epochs"
CUB_SERIES, CUB_RUN, DEVELOPMENT = "cub200-series-b", "cub200-adaptive", "cub200-development"
CARS_SERIES, CARS_RUN = "cars196-series-a", "cars196-adaptive"
GROCERIES, PRETRAINED = "groceries-adaptive", "groceries-pretrained"
ADAPT_EVERY = {EMOJI: 10, SERIES: 30, SCREEN: 30}

WAYS: dict[str, dict[str, tuple[str, ...]]] = {
    "fixed": {"udist": (), "udist-rho": (), "fixed-bins": (), "fixed-bins-code": (), "fixed-bins-rho": ()},
    "paper": {"random-actions": (), "random-reward": (), "pads": ("random-actions", "random-reward")},
    "1": {
        "entropy-bonus": ("random-reward",),
        "trust": ("random-reward",),
        "slow-policy": ("random-reward",),
        "floor": ("random-reward",),
        "bound": ("bound-random-reward",),
        "bound-random-reward": (),
    },
    "2": {
        "difference": ("random-reward",),
        "soft-recall": ("random-reward",),
        "held-soft-recall": ("bound-random-reward",),
        "new-classes": ("bound-random-reward",),
    },
    "3": {
        "aligned": ("aligned-shuffled", "fixed-bins-rho"),
        "aligned-bound": ("fixed-bins-rho",),
        "aligned-rho": ("fixed-bins-rho",),
        "aligned-shuffled": ("fixed-bins-rho",),
        "aligned-opposite": ("aligned-shuffled", "fixed-bins-rho"),
    },
    "4": {"bandit": ("bandit-uniform",), "bandit-uniform": ()},
    "6": {"carried": ("held-soft-recall",)},
    "7": {"fall": ("fall-random-actions",), "fall-random-actions": ()},
}
"""The arms on emoji by way, each with the arms that differ from it by what it is to show."""

CUB: dict[str, tuple[str, str]] = {
    "fixed-bins": ("U[0.3, 0.7], self-regularisation", "-"),
    "fixed-bins-code": ("the same, as the authors' code reads it", ":"),
    "aligned": ("credit per bin, ρ 0.15", "-"),
    "bandit": ("bandit over shapes", "-"),
    "fall": ("policy that sees the fall, adapts ρ", "-"),
    "udist-rho": ("U-dist, ρ 0.4, β 0.6", "-"),
    "cub200-margin-pads-fixed-bins-rho4": ("U[0.3, 0.7], ρ 0.4", "--"),
    "cub200-margin-udist-rho6": ("U-dist, ρ 0.6, β 0.6", ":"),
}
"""The arms of the screen: what they are, and their line."""

LOOKS = {
    "udist-rise": ("U-dist, β rises from 0.6 by 0.6", 4, "-"),
    "udist-pace": ("U-dist, β rises self-paced", 4, "--"),
    "udist": ("U-dist, β 1.2", 0, "-"),
    "udist-learned": ("the policy weighs U-dist, β 1.2", 2, "-"),
    "udist-random-actions": ("random actions on U-dist, β 1.2", 2, "--"),
    "udist-rho": ("U-dist, ρ 0.4, β 0.6", 5, "-"),
    "udist-gap": ("U-dist, ρ by the gap, β 0.6", 3, "-"),
    "udist-beta": ("U-dist, β 0.6", 3, "--"),
    "fixed-bins": ("U[0.3, 0.7] never adapted, β 0.6", 6, "-"),
    "pads": ("PADS, β 0.6", 1, "-"),
    "random-actions": ("random actions, β 0.6", 1, "--"),
}
"""What an arm is, its colour and its line; a pair that belongs together has one colour. All of them ran on emoji for 60 epochs."""

CUB_ARMS = {
    **dict.fromkeys(("udist-pace", "udist-rho", "udist-gap", "udist-beta"), CUB_RUN),
    **dict.fromkeys(("cub200-margin-udist", "cub200-margin-pads"), CUB_SERIES),
}
CARS_ARMS = {
    **dict.fromkeys(("udist-pace", "udist-rho", "fixed-bins", "random-actions"), CARS_RUN),
    **dict.fromkeys(("cars196-margin-udist", "cars196-margin-pads"), CARS_SERIES),
}
"""The folder of each arm that ran in the setting of a series, with more than one seed."""

TRIED_LAST = {
    "udist-beta": "U-dist, β 0.6",
    "udist-rho": "and ρ 0.4",
    "rho-falls": "and ρ from 0.4 down to 0, in even steps",
    "rho-falls-pace-cut": "the same with the self-paced boundary",
    "turn-pace": "self-paced; half of the triplets that cost nothing push their positive away",
    "any4": "U-dist, β 0.6, four images per class",
    "near4": "the same, the nearest of its class as positive",
    "near4-rho-cut": "and ρ 0.4",
}
"""The arms on a split of CUB's training classes; `-cut`: the machine's time ended after epoch 90."""

Curve = Mapping[float, float]


def main() -> None:
    draw_collapse(PICTURES / "adaptive-collapse.png")
    draw_emoji(PICTURES / "adaptive-emoji.png")
    draw_cub(PICTURES / "adaptive-cub.png")
    draw_sixty(PICTURES / "adaptive-emoji-60.png")
    draw_cub_arms(PICTURES / "adaptive-cub-arms.png")
    draw_cars_arms(PICTURES / "adaptive-cars-arms.png")
    tables = (
        emoji_table,
        udist_table,
        sixty_table,
        pace_table,
        cub_arms_table,
        cars_arms_table,
        development_table,
        groceries_table,
        pretrained_table,
        cub_table,
        factors_table,
    )
    for make in tables:
        print("\n".join(make()), end="\n\n")


# -- what the evidence says --------------------------------------------------------------------------------------------


def figures(folder: str, recipe: str, column: str) -> dict[int, float]:
    """By seed, in points."""
    rows = read_rows(RESULTS / folder / "seeds.csv")
    return {int(row["seed"]): 100 * float(row[column]) for row in rows if row["recipe"] == recipe}


def compared(arm: str, other: str, column: str = "selected_recall@1", folder: str = EMOJI) -> Estimate:
    return paired_difference(figures(folder, arm, column), figures(folder, other, column))


def curves(folder: str, name: str, recipe: str, x: str, y: str) -> list[Curve]:
    """One for each seed."""
    return list(curves_by_seed(folder, name, recipe, x, y).values())


def curves_by_seed(folder: str, name: str, recipe: str, x: str, y: str) -> Mapping[int, Curve]:
    made: dict[int, dict[float, float]] = {}
    for row in read_rows(RESULTS / folder / name):
        if row["recipe"] == recipe and row[y]:
            made.setdefault(int(row["seed"]), {})[int(row[x])] = float(row[y])
    return made


def mean_curve(several: Sequence[Curve]) -> Curve:
    return {x: fmean(curve[x] for curve in several) for x in several[0]}


# -- tables --------------------------------------------------------------------------------------------------------------


def emoji_table() -> list[str]:
    lines = ["| way | arm | R@1 | MAP@R | less `fixed-bins` | less its own control |", "|---|---|--:|--:|--:|---|"]
    for way, arms in WAYS.items():
        for arm, controls in arms.items():
            recall, precision = (
                mean_and_sd(list(figures(EMOJI, arm, f"selected_{metric}").values()))
                for metric in ("recall@1", "map@r")
            )
            to_fixed = "" if arm == "fixed-bins" else difference(compared(arm, "fixed-bins"))
            to_control = "; ".join(f"`{control}`: {difference(compared(arm, control))}" for control in controls)
            lines.append(f"| {way} | `{arm}` | {recall} | {precision} | {to_fixed} | {to_control} |")
    return [unbroken(line) for line in lines]


def udist_table() -> list[str]:
    """The arms that begin from U-dist; `udist-gap` against each of the others."""
    return against_table(FROM_U_DIST, "udist-gap")


def groceries_table() -> list[str]:
    """On a folder of product photos: `udist-pace` against each of the others."""
    return against_table(GROCERIES, "udist-pace")


def pretrained_table() -> list[str]:
    """The same photos, from a pretrained network."""
    return against_table(PRETRAINED, "udist-pace")


def against_table(folder: str, own: str) -> list[str]:
    """One arm against each of the others of a folder, at the selected epoch."""
    lines = [
        f"| arm | R@1 | MAP@R | R@1 of `{own}` less it | MAP@R of `{own}` less it |",
        "|---|--:|--:|--:|--:|",
    ]
    for arm in dict.fromkeys(row["recipe"] for row in read_rows(RESULTS / folder / "seeds.csv")):
        columns = ("selected_recall@1", "selected_map@r")
        means = (mean_and_sd(list(figures(folder, arm, column).values())) for column in columns)
        less = ("" if arm == own else difference(compared(own, arm, column, folder)) for column in columns)
        lines.append(f"| `{arm}` | {' | '.join((*means, *less))} |")
    return [unbroken(line) for line in lines]


def sixty_table() -> list[str]:
    """Six times as long: the test split over training, and what is left at the selected epoch."""
    epochs = (10, 20, 40, 60)
    lines = [
        f"| arm | R@1 at epoch {', '.join(map(str, epochs))} | R@1, selected | MAP@R, selected | less `udist` "
        "| less `random-actions` |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for arm in LOOKS:
        curve = mean_curve(curves(SIXTY, "test_curves.csv", arm, "epoch", "recall@1"))
        columns = ("selected_recall@1", "selected_map@r")
        means = (mean_and_sd(list(figures(SIXTY, arm, column).values())) for column in columns)
        others = ("udist", "random-actions")
        less = ("" if arm == other else difference(compared(arm, other, folder=SIXTY)) for other in others)
        over_training = ", ".join(f"{100 * curve[epoch]:.1f}" for epoch in epochs)
        lines.append(f"| `{arm}` | {over_training} | {' | '.join((*means, *less))} |")
    return [unbroken(line) for line in lines]


def pace_table() -> list[str]:
    """The self-paced boundary against the others: in short runs, with the recipe's schedule, and in longer ones."""
    short = read_rows(RESULTS / FROM_U_DIST / "beta.csv")

    def in_short_runs(arm: str) -> dict[int, float]:
        later = {int(row["seed"]): 100 * float(row["selected_recall@1"]) for row in short if row["arm"] == arm}
        return later if arm in ("udist-pace", "udist-rise") else figures(FROM_U_DIST, arm, "selected_recall@1")

    def in_each(arm: str) -> list[dict[int, float]]:
        return [in_short_runs(arm), *(figures(folder, arm, "selected_recall@1") for folder in (SCHEDULED, SIXTY))]

    own = in_each("udist-pace")
    lines = [
        "| | 10 epochs | 27 epochs, scheduled | 60 epochs |",
        "|---|--:|--:|--:|",
        "| `udist-pace`, R@1 | " + " | ".join(mean_and_sd(list(each.values())) for each in own) + " |",
    ]
    for arm in ("udist", "udist-rho", "fixed-bins", "random-actions", "pads", "udist-beta", "udist-rise"):
        less = (difference(paired_difference(*pair)) for pair in zip(own, in_each(arm), strict=True))
        lines.append(f"| less `{arm}` | " + " | ".join(less) + " |")
    return [unbroken(line) for line in lines]


def cub_arms_table() -> list[str]:
    return arms_table(CUB_ARMS, range(20, 101, 20))


def cars_arms_table() -> list[str]:
    return arms_table(CARS_ARMS, range(20, 121, 20))


def arms_table(arms: Mapping[str, str], epochs: Sequence[int]) -> list[str]:
    """The candidate of a benchmark against each of the others, over the seeds that both have."""
    lines = [
        f"| arm | seeds | R@1 at epoch {', '.join(map(str, epochs))} | R@1, selected | MAP@R, selected "
        "| R@1 of `udist-pace` less it | MAP@R of `udist-pace` less it |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    columns = ("selected_recall@1", "selected_map@r")
    own = [figures(arms["udist-pace"], "udist-pace", column) for column in columns]
    for arm, folder in arms.items():
        seeds = shared_seeds(arms, arm)
        curve = in_points(mean_curve(arm_curves(arms, arm, epochs[-1])))
        found = [{seed: figures(folder, arm, column)[seed] for seed in seeds} for column in columns]
        means = [mean_and_sd(list(each.values())) for each in found]
        less = [
            "" if arm == "udist-pace" else difference(paired_difference(*pair)) for pair in zip(own, found, strict=True)
        ]
        over_training = ", ".join(f"{curve[epoch]:.1f}" for epoch in epochs)
        lines.append(f"| `{plain_name(arm)}` | {len(seeds)} | {over_training} | {' | '.join((*means, *less))} |")
    return [unbroken(line) for line in lines]


def development_table() -> list[str]:
    """What was tried last, on training classes of CUB alone: R@1 on the classes left out."""
    epochs = (10, 20, 30, 50, 70, 90)
    lines = [
        f"| arm | | R@1 at epoch {', '.join(map(str, epochs))} | best R@1 (epoch) | best MAP@R (epoch) |",
        "|---|---|---|--:|--:|",
    ]
    for arm, words in TRIED_LAST.items():
        recall, precision = (
            in_points(mean_curve(curves(DEVELOPMENT, "test_curves.csv", arm, "epoch", metric)))
            for metric in ("recall@1", "map@r")
        )
        over_training = ", ".join(f"{recall[epoch]:.1f}" for epoch in epochs)
        best = (f"{max(curve.values()):.1f} ({max(curve, key=lambda x: curve[x])})" for curve in (recall, precision))
        lines.append(f"| `{arm.removesuffix('-cut')}` | {words} | {over_training} | {' | '.join(best)} |")
    return lines


def plain_name(arm: str) -> str:
    return re.sub("^(cub200|cars196)-margin-", "", arm)


def shared_seeds(arms: Mapping[str, str], arm: str) -> list[int]:
    """Those of the candidate that the arm has too."""
    own, others = (set(figures(arms[each], each, "last_recall@1")) for each in ("udist-pace", arm))
    return sorted(own & others)


def arm_curves(arms: Mapping[str, str], arm: str, last: float) -> list[Curve]:
    """R@1 on the test split up to the last epoch of the comparison, for each shared seed."""
    by_seed = curves_by_seed(arms[arm], "test_curves.csv", arm, "epoch", "recall@1")
    return [{x: y for x, y in by_seed[seed].items() if x <= last} for seed in shared_seeds(arms, arm)]


def at_epochs(folder: str, recipe: str) -> list[str]:
    """R@1 and MAP@R at the selected epoch, R@1 at the last and at the best of those measured on the test split; one seed."""
    (row,) = (row for row in read_rows(RESULTS / folder / "seeds.csv") if row["recipe"] == recipe)
    points = {name: f"{100 * float(row[name]):.1f}" for name in row if name.endswith(("recall@1", "map@r"))}
    return [
        f"{points['selected_recall@1']} ({row['selected_epoch']})",
        points["selected_map@r"],
        points["last_recall@1"],
        f"{points['best_test_recall@1']} ({row['best_test_epoch']})",
        points["selection_map@r"],
    ]


def cub_table() -> list[str]:
    lines = [
        "| arm | | R@1, selected (epoch) | MAP@R there | R@1, last | R@1, best of every 20 (epoch) | selection MAP@R "
        "| same-class negatives |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for arm, (words, _) in CUB.items():
        cells = [*at_epochs(SCREEN, arm), same_class(arm)]
        lines.append(f"| `{plain_name(arm)}` | {words} | {' | '.join(cells)} |")
    return lines


def same_class(arm: str) -> str:
    """The share of triplets whose negative is of the anchor's class, in the first and in the last tenth of the training."""
    (curve,) = curves(SCREEN, "training.csv", arm, "step", "negative_of_class_share")
    shares = list(curve.values())
    tenth = len(shares) // 10
    return f"{fmean(shares[:tenth]):.2f}, {fmean(shares[-tenth:]):.2f}"


def factors_table() -> list[str]:
    lines = [
        "| arm | R@1, selected (epoch) | less `udist` | R@1, last | R@1, best of every 20 (epoch) | less `udist` |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for arm in dict.fromkeys(row["recipe"] for row in read_rows(RESULTS / FACTORS / "seeds.csv")):
        selected, _, last, best, _ = at_epochs(FACTORS, arm)
        columns = ("selected_recall@1", "best_test_recall@1")
        less, best_less = (
            "" if arm == "udist" else difference(paired_difference(*(figures(FACTORS, each, column) for each in pair)))
            for column, pair in ((column, (arm, "udist")) for column in columns)
        )
        lines.append(f"| `{arm}` | {selected} | {less} | {last} | {best} | {best_less} |")
    return lines


# -- pictures ------------------------------------------------------------------------------------------------------------


def draw_collapse(path: Path) -> None:
    """Perplexity over the adjustments: each run thin, the mean thick."""
    cub = {
        "cub200-margin-pads": "PADS",
        "cub200-margin-pads-random-reward": "a coin as reward",
        "cub200-margin-pads-random-actions": "random actions",
    }
    emoji = {
        "pads": "PADS",
        "random-reward": "a coin as reward",
        "random-actions": "random actions",
        "bound": "bound 1",
    }
    with new_figure(7, 2.9) as (figure, _):
        panels = figure.subplots(1, 2, sharey=True)
        for axes, folder, arms, title in (
            (panels[0], SERIES, cub, "CUB200-2011: 5 seeds of PADS, 2 of each control"),
            (panels[1], EMOJI, emoji, "emoji, short runs: 5 seeds each"),
        ):
            for (arm, label), colour in zip(arms.items(), COLOURS, strict=False):
                several = [
                    {step // ADAPT_EVERY[folder]: value for step, value in curve.items()}
                    for curve in curves(folder, "adaptations.csv", arm, "step", "perplexity")
                ]
                for curve in several:
                    plot(axes, curve, color=colour, linewidth=0.6, alpha=0.45)
                plot(axes, mean_curve(several), color=colour, linewidth=2, label=label)
            axes.set(title=title, xlabel="adjustment", ylim=(0, 12))
            axes.legend(frameon=False, loc="lower left")
        panels[0].set_ylabel("bins in use (perplexity of p)")
        figure.savefig(path, dpi=180)


def plot(axes: Any, curve: Curve, **look: Any) -> None:
    axes.plot(list(curve), list(curve.values()), **look)


def draw_emoji(path: Path) -> None:
    """Every arm's difference to the fixed distribution with its interval, by way."""
    names = {"fixed": "fixed", "paper": "the paper's", **{way: f"way {way}" for way in "123467"}}
    arms = [(way, arm) for way, each in WAYS.items() for arm in each if arm != "fixed-bins"]
    controls = {control for each in WAYS.values() for of_arm in each.values() for control in of_arm}
    with new_figure(6.4, 5.6) as (figure, _):
        axes = figure.subplots()
        axes.axvline(0, color="#555b63", linewidth=1)
        for height, (way, arm) in enumerate(arms):
            found = compared(arm, "fixed-bins")
            colour = COLOURS[list(WAYS).index(way) % len(COLOURS)]
            face = "white" if arm in controls else colour
            axes.plot([found.low, found.high], [height, height], color=colour, linewidth=1.4, zorder=1)
            axes.plot(found.mean, height, "o", color=colour, markerfacecolor=face, markersize=5, zorder=2)
            if height == 0 or arms[height - 1][0] != way:
                axes.text(1.01, height, names[way], color=colour, transform=axes.get_yaxis_transform(), va="center")
                if height:
                    axes.axhline(height - 0.5, color="#dddddd", linewidth=0.6, zorder=0)
        axes.set_yticks(range(len(arms)), [arm for _, arm in arms])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("points of R@1 more than the fixed distribution, 5 paired seeds, 95 % interval")
        axes.set_title("emoji, short runs; hollow: a control of another arm", loc="left")
        figure.savefig(path, dpi=180)


def draw_cub(path: Path) -> None:
    """The test split over training, and the share of flipped triplets of the policy that may change it."""
    with new_figure(7.4, 4.6) as (figure, _):
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        (base,) = curves(FACTORS, "test_curves.csv", "udist", "epoch", "recall@1")
        plot(
            axes,
            in_points(base),
            color="#999999",
            linewidth=1.6,
            marker="o",
            markersize=3,
            label="U-dist, β 1.2, 80 epochs",
        )
        for (arm, (label, dashes)), colour in zip(CUB.items(), (*COLOURS, COLOURS[5]), strict=True):
            (curve,) = curves(SCREEN, "test_curves.csv", arm, "epoch", "recall@1")
            look = {"color": colour, "linestyle": dashes, "linewidth": 1.6, "marker": "o", "markersize": 3}
            plot(axes, in_points(curve), label=label, **look)
        axes.set(ylabel="test R@1, %", title="CUB200-2011, one seed (100), measured every 20 epochs")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        (rho,) = curves(SCREEN, "adaptations.csv", "fall", "step", "rho")
        steps_per_epoch = 39
        below.plot([step / steps_per_epoch for step in rho], list(rho.values()), color=COLOURS[4], linewidth=1.4)
        below.axhline(0.4, color=COLOURS[5], linewidth=1, linestyle="--")
        below.text(124, 0.4, "ρ 0.4, fixed", color=COLOURS[5], va="center", clip_on=False)
        below.text(124, 0.02, "ρ of the policy", color=COLOURS[4], va="center", clip_on=False)
        below.set(xlabel="epoch", ylabel="ρ", ylim=(0, 0.5), xlim=(0, 122))
        figure.savefig(path, dpi=180)


def draw_sixty(path: Path) -> None:
    """The test split over the longer runs on emoji, mean of the seeds."""
    with new_figure(7.4, 3.6) as (figure, _):
        axes = figure.subplots()
        for arm in LOOKS:
            curve = in_points(mean_curve(curves(SIXTY, "test_curves.csv", arm, "epoch", "recall@1")))
            plot(axes, curve, **mean_look(arm))
        axes.set(xlabel="epoch", ylabel="test R@1, %", title="emoji, 60 epochs, mean of five seeds")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(path, dpi=180)


def mean_look(arm: str) -> dict[str, Any]:
    label, colour, dashes = LOOKS[arm]
    return {
        "label": label,
        "color": COLOURS[colour],
        "linestyle": dashes,
        "linewidth": 1.6,
        "marker": "o",
        "markersize": 3,
    }


def draw_cub_arms(path: Path) -> None:
    draw_arms(path, CUB_ARMS, 100, "CUB200-2011, 256 pixels, seeds 0 to 2 and their means")


def draw_cars_arms(path: Path) -> None:
    draw_arms(path, CARS_ARMS, 120, "CARS196, seeds 0 to 2 (of two arms 0 and 1) and their means")


def draw_arms(path: Path, arms: Mapping[str, str], last: float, title: str) -> None:
    """The test split over training on a benchmark: each run thin, the means thick."""
    with new_figure(7.4, 3.6) as (figure, _):
        axes = figure.subplots()
        for arm in arms:
            several = [in_points(curve) for curve in arm_curves(arms, arm, last)]
            look = mean_look(plain_name(arm))
            for curve in several:
                plot(axes, curve, linewidth=0.5, alpha=0.5, color=look["color"], linestyle=look["linestyle"])
            plot(axes, mean_curve(several), **look)
        axes.set(xlabel="epoch", ylabel="test R@1, %", title=title)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=3.5)
        figure.savefig(path, dpi=180)


def in_points(curve: Curve) -> Curve:
    return {x: 100 * y for x, y in curve.items()}


if __name__ == "__main__":
    main()
