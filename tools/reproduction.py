"""Makes docs/reproduction.md: each table and figure of the paper with our number, or with the command that would make it.

`python tools/results.py` writes the page. What is run, with which arms, seeds and epochs, stands in tools/reproduce.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reproduce import RUNS, Piece

from pads.config import with_settings
from pads.studies import STUDIES
from pads.studies.arms import Arm, Study, fix_settings, study_base
from pads.studies.claims import Evidence
from pads.studies.seeds import read_rows
from pads.studies.statistics import difference, estimate, interval, judge, mean_and_sd, paired_difference

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PICTURES = ROOT / "docs" / "pictures"
NAMES = {"cub200": "CUB200-2011", "cars196": "CARS196", "sop": "SOP", "emoji": "emoji"}
BASES = ("cub200", "cars196", "emoji")
"""What has been run, or is to be run here."""

HEAD = """# The paper's experiment, run again

Every table and figure of the paper, with its number, ours, the number of seeds n and the 95 % interval. `python
tools/results.py` makes this page from the folders in `results/`; a cell without a run says so, and the command is below
its table.

"""
ANSWER = """**On CUB200-2011 and CARS196 the paper's gain has not shown here; its experiment at full length is still open.**
The authors' own code, one run each on CUB200-2011, cut at epoch 106 and 131 of 300, had R@1 {authors_pads} with its
policy and {authors_fixed} with the same distribution never adapted (test-selected; one seed says little). Our reading of
that code, one run of 200 epochs each, had {code_pads} and {code_fixed}. Our five-seed runs on CUB200-2011 and CARS196
followed the paper's wording with a policy that hardly learned ([method](method.md#details-that-matter)), so they say
nothing about one that learns. With the critic repaired, on emoji, in short runs of 10 epochs with five seeds, the policy
moves more: its entropy per bin ends at {pads_entropy}, from 1.10 (in Table 1, where the rate falls, at {scheduled_entropy}).
But with a coin for a reward it ends at {coin_entropy}, and five seeds do not tell the two apart
({entropy_difference}). R@1 shows no gain:
PADS less random actions is {random_actions}, less a coin for the reward
{random_reward}, less the same distribution never adapted
{fixed_bins}. In Table 1 on emoji PADS is above distance-weighted sampling at β 1.2,
{gain}, and below it at the β of PADS, 0.6:
{same_beta}. **Not known:** the authors' reading at their length with controls and five seeds
(runs 1 and 2), the repaired critic on CUB200-2011 (run 3) and the other tables there (run 5). They are fixed below, and not
run yet.

![PADS less its controls, and the entropy of the policy](pictures/reproduction-answer.png)

[Findings](findings.md) says what all runs showed, and [the sentences of the paper](../results/claims/README.md) are held
against them.
"""
FIXED = """
## What is run

Arms, seeds and epochs were fixed on this page before the first run. `tools/reproduce.py N` starts all parts of run N;
the last column starts one of them.

| run | folder | arms | seeds | epochs | command |
|---|---|---|--:|--:|---|
"""
AFTER_FIXED = """
- Runs 1 and 2 are [the authors' reading](method.md#paper-and-code) on all training classes. No epoch is selected: the
  last one is reported, and beside it the best test epoch of the test curve, which is measured every 5 epochs and marked
  *test-selected*. `cub200-authors-selected` holds out a tenth of the classes to pick the epoch.
- The rate falls at 150 on CUB200-2011 and at 140 on CARS196, as in the authors' commands; their runs had 300 epochs.
- `single-bin-code` has all mass in bin 8 of 29, distances 0.414 to 0.459, given as 29 numbers. `udist-authors` has four
  images per class, a rate of 5e-4 for β and all images.
- Run 4 is short: 16 pixels, 10 epochs, M = 10. It shows what the tables look like, not how good PADS is. Table 7 holds
  out 28 % of the images for the reward: with 15 %, a class of emoji is too small to be split. PADS without the fall of
  the rate is the same five runs in Tables 3, 5, 8, 9, 10 and the controls: these comparisons are not independent.
- The GPU runs start from `resnet50_he_imagenet1k.safetensors` ([weights](models.md#the-weights-of-our-runs)), not from
  the paper's weights. `tools/reproduce.py` picks the backbone by the file; a `pads study` of one part needs
  `--set network.backbone=resnet50-he`.
"""
ABOUT_AUTHORS = """
## What the authors' own code did here

One run each on CUB200-2011 ([folder](../results/cub200-authors-code/README.md)); the time that there was cut the authors' runs.

| code and arm | seed | R@1 of the best test epoch (test-selected) | R@1 of the last epoch measured |
|---|--:|--:|--:|
"""
ABOUT_TABLES = """
## The tables

R@1 in percent at the selected epoch: mean ± standard deviation, n, and the 95 % interval of the mean. The paper's numbers
are test-selected, of an unknown number of seeds. The folder below a table has the differences, paired by seed.
"""
TABLES = (
    ("Table 1", "baselines"),
    ("Table 2", "state-of-the-art"),
    ("Table 3", "transfer"),
    ("Table 4", "curricula"),
    ("Table 5a", "interval"),
    ("Table 5b", "bins"),
    ("Table 5c", "initial"),
    ("Table 6", "inception-bn"),
    ("Table 7", "validation"),
    ("Table 8", "state-reward"),
    ("Table 9a", "frequency"),
    ("Table 9b", "averages"),
    ("Table 10", "agents"),
    ("The authors' reading", "authors"),
    ("The controls", "controls"),
)
FIGURES = (
    (
        "1",
        "the gain, and where negatives are drawn",
        "python tools/pictures.py",
        "Left, CUB200-2011 and CARS196 are the earlier runs in the paper's wording, with a policy that hardly learned; "
        "emoji is Table 1. Right, the distribution of PADS at the end of each run of Table 4 on emoji.",
    ),
    (
        "2",
        "the bins of the distance, and their probabilities",
        "pads study initial --recipe-base emoji",
        "The start of the paper, U[0.3, 0.7].",
    ),
    (
        "4",
        "the distribution over training",
        "python tools/pictures.py",
        "PADS of Table 4 on emoji, one panel for each seed: no two end alike.",
    ),
    (
        "5",
        "the fixed curricula beside the learned one",
        "python tools/pictures.py",
        "Table 4 on emoji, the mean of five seeds.",
    ),
    (
        "6",
        "the test images as a map",
        "pads report studies/curricula-emoji/runs/pads-0",
        "PADS of Table 4 on emoji, seed 0, trained again with torch 2.13 since networks are not kept: R@1 46.1, where the "
        "run of the table, torch 2.11, had 46.4.",
    ),
    (
        "7",
        "good and bad queries with their nearest images",
        "pads report studies/curricula-emoji/runs/pads-0",
        "The same network as in Figure 6.",
    ),
)
"""Number, what it shows, the command that draws it, and what the picture is of."""
DRAWN = {"2": "initial-distribution.png", "5": "curricula.png"}
"""Pictures that are there under another name; the others are `reproduction-figure-N.png`."""


def make_page() -> str:
    """Make the page from what is in results/."""
    evidence = {base: Evidence(RESULTS, base) for base in BASES}
    text = HEAD + answer() + FIXED + "".join(map(make_line, list_pieces())) + AFTER_FIXED + list_authors_runs()
    text += ABOUT_TABLES
    for table, name in TABLES:
        text += make_table(table, STUDIES[name], evidence)
    return text + list_figures()


def answer() -> str:
    """Say what is known today, with the numbers of the evidence."""
    best = {
        row["recipe"]: row["best_test_recall@1"] for row in read_rows(RESULTS / "cub200-authors-code" / "seeds.csv")
    }
    entropies = [last_entropies("emoji-controls", arm) for arm in ("pads", "random-reward")]
    places = {arm: ("emoji-controls", "pads", arm) for arm in ("random-actions", "random-reward", "fixed-bins")}
    places |= {arm: ("emoji-baselines", "margin-pads", arm) for arm in ("margin-udist", "margin-udist-0.6")}
    found = {name: paired_difference(recalls(at, ours), recalls(at, arm)) for name, (at, ours, arm) in places.items()}
    words = {name: f"{difference(each)} ({judge(each).partition(' by')[0]})" for name, each in found.items()}
    return ANSWER.format(
        authors_pads=f"{100 * float(best['authors-pads']):.1f}",
        authors_fixed=f"{100 * float(best['authors-fixed-bins']):.1f}",
        code_pads=f"{100 * float(best['pads-code']):.1f}",
        code_fixed=f"{100 * float(best['pads-code-fixed-bins']):.1f}",
        pads_entropy=format_entropy(entropies[0]),
        scheduled_entropy=format_entropy(last_entropies("emoji-baselines", "margin-pads")),
        coin_entropy=format_entropy(entropies[1]),
        entropy_difference=difference(paired_difference(*entropies)),
        random_actions=words["random-actions"],
        random_reward=words["random-reward"],
        fixed_bins=words["fixed-bins"],
        gain=difference(found["margin-udist"]),
        same_beta=difference(found["margin-udist-0.6"]),
    )


def recalls(folder: str, arm: str) -> dict[int, float]:
    """Return R@1 of the selected epoch in percent, by seed."""
    rows = read_rows(RESULTS / folder / "seeds.csv")
    return {int(row["seed"]): 100 * float(row["selected_recall@1"]) for row in rows if row["recipe"] == arm}


def last_entropies(folder: str, arm: str) -> dict[int, float]:
    """Return the entropy of the policy at the last adjustment, by seed."""
    rows = read_rows(RESULTS / folder / "adaptations.csv")
    return {int(row["seed"]): float(row["policy_entropy"]) for row in rows if row["recipe"] == arm}


def format_entropy(values: Mapping[int, float]) -> str:
    found = estimate(list(values.values()))
    return f"{found.mean:.2f} {interval(found)}"


def make_line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |\n"


def list_pieces() -> Iterable[Sequence[str]]:
    """Yield a row for each part of each run."""
    for run, pieces in RUNS.items():
        for piece in pieces:
            study = STUDIES[piece.study]
            arms = ", ".join(f"`{arm}`" for arm in piece.arms) or f"all {len(study.arms)} of `{study.name}`"
            evidence = piece.joins or piece.folder
            has_folder = (RESULTS / evidence / "claim.json").exists()
            folder = f"[{evidence}](../results/{evidence}/README.md)" if has_folder else f"`{evidence}`, not run yet"
            yield run, folder, arms, str(len(piece.seeds)), str(num_epochs(piece)), f"`{piece.command()}`"


def num_epochs(piece: Piece) -> int:
    """Return the epochs that the runs of a part have."""
    study = STUDIES[piece.study]
    config = (study.arm(piece.arms[0]) if piece.arms else study.arms[0]).change(
        study_base(study, piece.base, epochs=piece.epochs)
    )
    return fix_settings(with_settings(config, piece.settings)).num_epochs


def list_authors_runs() -> str:
    """List what the authors' own code did here, and ours beside it."""
    folder = RESULTS / "cub200-authors-code"
    text = ABOUT_AUTHORS
    for row in read_rows(folder / "seeds.csv"):
        best, last = (100 * float(row[f"{when}_recall@1"]) for when in ("best_test", "last"))
        cells = (
            f"`{row['recipe']}`",
            row["seed"],
            f"{best:.1f} ({row['best_test_epoch']})",
            f"{last:.1f} ({row['epochs']})",
        )
        text += make_line(cells)
    return text


def make_table(table: str, study: Study, evidence: Mapping[str, Evidence]) -> str:
    """Make the section of one table: the paper's number and ours by data set, and the commands of what was not run."""
    bases = [base for base in BASES if base == "emoji" or base in study.bases]
    heads = ["arm"]
    for base in bases:
        heads += (
            [f"{NAMES[base]}, paper", f"{NAMES[base]}, here"] if has_paper(study, base) else [f"{NAMES[base]}, here"]
        )
    text = (
        f"\n### {table}: {study.title.partition(' (Table')[0]}\n\n"
        + make_line(heads)
        + "|---"
        + "|--:" * (len(heads) - 1)
        + "|\n"
    )
    missing: dict[str, list[str]] = {}
    for arm in study.arms:
        cells = [f"`{arm.name}`"]
        for base in bases:
            if has_paper(study, base):
                cells.append(format_paper(arm, base))
            ours = format_ours(evidence[base], study.name, arm.name)
            cells.append(ours or "not run")
            if not ours:
                missing.setdefault(base, []).append(arm.name)
        text += make_line(cells)
    lines = [*list_sources(study, bases, evidence), *list_missing(study, missing)]
    return text + "\n" + "".join(f"- {words}\n" for words in lines)


def has_paper(study: Study, base: str) -> bool:
    return any(base in arm.paper for arm in study.arms)


def format_paper(arm: Arm, base: str) -> str:
    return f"{arm.paper[base]['recall@1']:.1f}" if base in arm.paper else ""


def format_ours(evidence: Evidence, study: str, arm: str) -> str:
    """Return the mean with its deviation, n and the interval; nothing without a run."""
    values = list(evidence.recalls(study, arm).values())
    if not values:
        return ""
    bounds = f" {interval(estimate(values))}" if len(values) > 1 else ""
    return f"{mean_and_sd(values)}, n = {len(values)}{bounds}{evidence.mark((study, arm))}"


def list_sources(study: Study, bases: Sequence[str], evidence: Mapping[str, Evidence]) -> Iterable[str]:
    """Yield for each data set the folder of its runs, with the paired differences, and the command where it is fixed."""
    for base in bases:
        folder = evidence[base].folders.get(study.name)
        if folder is None:
            continue
        commands = [f"`{piece.command()}`" for run in RUNS.values() for piece in run if piece.folder == folder.name]
        words = f"{NAMES[base]}: [{folder.name}](../results/{folder.name}/README.md)"
        yield ", ".join([words, *commands]) + "."


def list_missing(study: Study, missing: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Yield a sentence for each data set with arms that were not run, with the command that would run them."""
    for base, arms in sorted(missing.items(), key=lambda each: BASES.index(each[0])):
        pieces = [piece for run in RUNS.values() for piece in run if (piece.study, piece.base) == (study.name, base)]
        commands = [piece.command() for piece in pieces if not piece.arms or set(piece.arms) & set(arms)]
        chosen = commands or [Piece("", study.name, base).command()]
        yield f"Not run on {NAMES[base]}: " + "; ".join(f"`{command}`" for command in chosen) + "."
    for base in study.bases:
        if base not in BASES:
            yield f"Not run on {NAMES[base]}: `{Piece('', study.name, base).command()}`."


def list_figures() -> str:
    """Show each figure with what it is of and the command; those of CUB200-2011 wait for its runs."""
    text = "\n## The figures\n\nFrom the runs on emoji; those of CUB200-2011 wait for its runs. "
    text += "Figure 3 is a drawing of the method.\n"
    for number, words, command, about in FIGURES:
        name = DRAWN.get(number, f"reproduction-figure-{number}.png")
        assert (PICTURES / name).exists(), name
        text += f"\n### Figure {number}: {words}\n\n![{words}](pictures/{name})\n\n{about} Command: `{command}`.\n"
    return text
