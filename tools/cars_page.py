"""The table and the picture of CARS196 in docs/benchmarks.md, from results/cars196-series-a.

    python tools/cars_page.py

Writes docs/pictures/cars196.png and prints the table; tests/tools/test_cars_page.py holds the page to it.
"""

from __future__ import annotations

from pathlib import Path

from adaptive_page import PICTURES, curves, figures, in_points, mean_curve, plot, unbroken

from pads.reports.figures import COLOURS, new_figure
from pads.studies.statistics import difference, mean_and_sd, paired_difference

FOLDER, STEPS_PER_EPOCH = "cars196-series-a", 57
ARMS = {"cars196-margin-udist": "U-dist", "cars196-margin-pads": "PADS"}
ROWS = {"selected": "selected epoch", "last": "last epoch", "best_test": "best R@1 of every 20 epochs (test-selected)"}
PANELS = {
    "test R@1, %": ("test_curves.csv", "epoch", "recall@1"),
    "bins in use (perplexity of p)": ("adaptations.csv", "step", "perplexity"),
    "distance of the negatives drawn": ("training.csv", "step", "negative_distance"),
    "share of triplets that cost something": ("training.csv", "step", "violation_share"),
}


def main() -> None:
    draw(PICTURES / "cars196.png")
    print("\n".join(table()))


def table() -> list[str]:
    lines = ["| | U-dist | PADS | PADS less U-dist, paired, 95 % interval |", "|---|--:|--:|--:|"]
    for when, words in ROWS.items():
        for metric, name in (("recall@1", "R@1"), ("map@r", "MAP@R")):
            udist, pads = (figures(FOLDER, arm, f"{when}_{metric}") for arm in ARMS)
            means = " | ".join(mean_and_sd(list(each.values())) for each in (udist, pads))
            lines.append(f"| {name}, {words} | {means} | {difference(paired_difference(pads, udist))} |")
    return [unbroken(line) for line in lines]


def draw(path: Path) -> None:
    """Each run thin, the means thick; seed 1 of PADS dashed."""
    with new_figure(7.2, 4.6) as (figure, _):
        for axes, (title, (name, x, y)) in zip(figure.subplots(2, 2, sharex=True).flat, PANELS.items(), strict=True):
            for (arm, label), colour in zip(ARMS.items(), COLOURS, strict=False):
                several = curves(FOLDER, name, arm, x, y)
                several = [in_points(curve) for curve in several] if y == "recall@1" else several
                several = [{t / STEPS_PER_EPOCH: v for t, v in c.items()} for c in several] if x == "step" else several
                for seed, curve in enumerate(several):
                    is_worst = label == "PADS" and seed == 1
                    look = {"linestyle": "--", "linewidth": 1.2} if is_worst else {"linewidth": 0.6, "alpha": 0.6}
                    plot(axes, curve, color=colour, label="PADS, seed 1" if is_worst else None, **look)
                if several:
                    plot(axes, mean_curve(several), color=colour, linewidth=2, label=f"{label}, mean of 5")
            axes.set_title(title, loc="left")
        figure.axes[0].legend(frameon=False, loc="lower right")
        for axes in figure.axes[2:]:
            axes.set_xlabel("epoch")
        figure.savefig(path, dpi=180)


if __name__ == "__main__":
    main()
