"""The command line: each command parses, then calls one function. torch is imported by the command that needs it."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pads
from pads.config import AutoConfig, Config, Data, drop_auto, lookup, to_dict, with_settings
from pads.errors import UserError
from pads.recipes import RECIPES

if TYPE_CHECKING:
    from pads.runs import RunFolder

Argument: TypeAlias = tuple[str, dict[str, Any]]
SPLITS = ("test", "selection", "reward", "train")
MAPS = ("auto", "umap", "pca", "none")
RECIPE_TITLES = {
    "emoji": "Emoji, on a CPU in minutes",
    "cub200": "CUB200-2011",
    "cars196": "CARS196",
    "sop": "Stanford Online Products",
    "inshop": "In-Shop Clothes",
}
EXAMPLES = """examples:
  pads train folder --data photos/ --run runs/photos
  pads train emoji-pads --set num_epochs=20
  pads train --resume runs/photos"""


def argument(name: str, metavar: str, help: str, **options: Any) -> Argument:
    """Describe an argument of a command; `options` are those of argparse."""
    return name, {"metavar": metavar, "help": help, **options}


def flag(name: str, help: str) -> Argument:
    """Describe an option that takes no value."""
    return name, {"action": "store_true", "help": help}


def choice(name: str, choices: Sequence[str], help: str, **options: Any) -> Argument:
    """Describe an option that takes one of a few values."""
    return name, {"choices": choices, "help": help, **options}


RUN = argument("run", "RUN", "a run folder")
MODEL = argument("run", "RUN", "a run folder, or backbone:NAME for a pretrained network as it is")
DATA_CHANGED = flag(
    "--data-changed", "go on although the images are not those that the run began with; the figures say so"
)
CHECKPOINT = choice("--checkpoint", ("selected", "last"), "take this network (default: selected)", default="selected")

BAD_IMAGES = (
    flag("--strict", "refuse images that cannot be read, instead of leaving them out with a list of them"),
    flag("--skip-bad-images", "changes nothing: images that cannot be read are left out anyway"),
)

ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "train": (
        argument("recipe", "RECIPE", "a name that `pads recipes` lists", nargs="?"),
        argument("--resume", "RUN", "resume the run in this folder; takes no recipe"),
        DATA_CHANGED,
        argument("--data", "DIR", "read the images from here"),
        argument(
            "--set",
            "KEY=VALUE",
            "change one setting, such as loss.options.beta=0.6; may be repeated; `pads recipes RECIPE` shows them all",
            action="append",
        ),
        argument("--run", "DIR", "write the run into this folder (default: runs/RECIPE-SEED)"),
        argument("--seed", "SEED", "seed the weights, the batches, the drawing and the policy (default: 0)", type=int),
        argument(
            "--weights", "FILE", "start the backbone from this file, from what is published (imagenet), or from none"
        ),
        argument("--minutes", "MINUTES", "train for as many epochs as take about this long here", type=float),
        argument("--device", "DEVICE", "train on cpu, cuda, ... (default: auto)"),
        *BAD_IMAGES,
        flag(
            "--paper-protocol",
            "select the epoch on the test split, as the authors did; every figure is then marked test-selected",
        ),
        flag("--plain", "print plain lines instead of the live display"),
        flag("--tensorboard", "write TensorBoard files into the run folder"),
        flag("--no-report", "draw no report at the end"),
        flag("--no-index", "make no index of your own folder at the end"),
    ),
    "check": (
        argument("data", "DATA", "a folder with a folder per class, a CSV, a data set of Hugging Face, or a store"),
        argument("--as", "KIND", "read it as folder, csv, hf, ... (default: by its files)", dest="kind"),
        argument(
            "--set",
            "KEY=VALUE",
            "change one setting, such as data.options.depth=2; may be repeated",
            action="append",
        ),
        argument("--out", "FILE", "write all that was found here, as data.jsonl of a run has it"),
        flag("--strict", "refuse images that cannot be read"),
    ),
    "recipes": (argument("recipe", "RECIPE", "show this recipe's whole config", nargs="?"),),
    "evaluate": (
        MODEL,
        argument("--data", "DIR", "find the images here (default: as in training); backbone:NAME needs it"),
        choice("--split", SPLITS, "measure this split (default: test)", default="test"),
        CHECKPOINT,
        DATA_CHANGED,
        flag("--json", "print JSON, fractions instead of percentages"),
    ),
    "report": (
        argument("runs", "RUN", "a run folder, finished or not", nargs="+"),
        argument("--out", "DIR", "write report.html and report/ here, or NAME.html (default: the first run's folder)"),
        choice(
            "--map",
            MAPS,
            "draw the test images by this (default: umap where it is installed, else pca)",
            default="auto",
        ),
        argument("--class", "NAME", "open the page of this class; may be repeated", dest="classes", action="append"),
    ),
    "study": (
        argument("study", "STUDY", "a name that `pads study --list` shows", nargs="?"),
        flag("--list", "list the studies and what they cost"),
        argument(
            "--recipe-base",
            "BASE",
            "start from emoji, cub200, cars196, sop, folder, csv, hf, or a recipe (default: the paper's)",
        ),
        argument("--data", "DIR", "read the images from here"),
        argument("--weights", "FILE", "start the backbone from this file"),
        argument(
            "--seeds", "SEED", "run these seeds (default: 0 1 2 3 4)", type=int, nargs="+", default=[0, 1, 2, 3, 4]
        ),
        argument("--arms", "ARM", "run only these arms, and the runs that they need", nargs="+", default=[]),
        argument(
            "--epochs",
            "EPOCHS",
            "train every run for this long; the learning-rate schedule is stretched with it",
            type=int,
        ),
        argument("--set", "KEY=VALUE", "change one setting of all arms; may be repeated", action="append"),
        argument("--out", "DIR", "write the study into this folder (default: studies/STUDY-BASE)"),
        argument("--results", "DIR", "let `claims` read this folder (default: the one around --out)"),
        flag("--tune", "pick settings of each arm on the selection split first"),
        argument("--jobs", "N", "run this many at a time (default: one, or one on each GPU)", type=int),
        choice("--engine", ("local", "ray"), "run here or on a Ray cluster (default: local)", default="local"),
        argument(
            "--gpus-per-run",
            "SHARE",
            "give each run this share of a GPU, with --engine ray (default: 1 if there is one)",
            type=float,
        ),
        flag("--drop-checkpoints", "delete the checkpoints of finished runs; the selected networks stay"),
        argument("--commit", "COMMIT", "name this commit in seeds.csv, where git is not there to ask"),
        flag("--plain", "print plain lines instead of the live display"),
    ),
    "index": (
        MODEL,
        argument("images", "IMAGES", "a folder; its sub-folders are the labels"),
        argument("--out", "INDEX", "make this index, or bring it up to date", required=True),
        CHECKPOINT,
        flag("--rebuild", "embed everything anew, also with another model"),
        argument("--data", "DIR", "find the run's own images here, to calibrate on (default: as in training)"),
        argument("--device", "DEVICE", "embed on cpu, cuda, ... (default: auto)", default="auto"),
        *BAD_IMAGES,
    ),
    "search": (
        argument("index", "INDEX", "what `pads index` made"),
        argument("queries", "QUERY", "an image file; any number of them", nargs="*"),
        argument(
            "--from", "FILE", "read more queries from this file, one path a line (-: standard input)", dest="list_file"
        ),
        argument("-k", "K", "find this many neighbours of each query (default: 10)", type=int, default=10),
        argument("--label", "LABEL", "search only images with this label"),
        argument(
            "--precision",
            "PRECISION",
            "be right for this share of the neighbours called the same item (default: 0.95)",
            type=float,
            default=0.95,
        ),
        flag("--json", "print JSON, a line for each query"),
        flag("--show", "open a contact sheet"),
        argument("--sheet", "FILE", "write a contact sheet, such as sheet.png"),
        argument("--images", "DIR", "find the indexed images here (default: where they were)"),
    ),
    "serve": (
        argument("path", "INDEX|RUN", "an index folder, or a run folder, also while it is trained"),
        argument("--host", "HOST", "listen on this address (default: this machine alone)", default="127.0.0.1"),
        argument("--port", "PORT", "listen on this port, 0 for any free one (default: 8420)", type=int, default=8420),
        argument("--images", "DIR", "find the images, or the run's data, here (default: where they were)"),
        flag("--follow-links", "also show images that are links out of the folder of the index"),
        argument("--token", "TOKEN", "ask for this token, or for a new one if none is given", nargs="?", const=""),
        flag("--no-token", "ask for no token, also beyond this machine"),
    ),
    "export": (
        MODEL,
        choice(
            "--to",
            ("safetensors", "onnx", "torch-export"),
            "write this format; may be repeated",
            action="append",
            required=True,
        ),
        argument("--out", "DIR", "write it here (default: RUN/export)"),
        CHECKPOINT,
    ),
    "push": (
        RUN,
        argument("repo", "USER/NAME", "the repository, made if it is not there yet"),
        flag("--private", "make a new repository private"),
    ),
    "prepare": (
        argument("dataset", "DATASET", "cub200, cars196, sop, inshop, folder, csv or hf"),
        argument("--data", "DIR", "read the images from here", required=True),
        argument("--out", "DIR", "write the store here (default: hidden, beside the images)"),
        argument(
            "--size",
            "SIZE",
            "keep this many pixels of the shorter side (default: as the recipes of the data set have it)",
            type=int,
        ),
        argument(
            "--ratio",
            "RATIO",
            "keep this ratio of the longer side to the shorter (default: 4/3)",
            type=float,
            default=Data.store_ratio,
        ),
        *BAD_IMAGES,
    ),
    "bench": (
        argument("recipe", "RECIPE", "a recipe (default: %(default)s)", nargs="?", default="cub200-margin-udist"),
        argument("--data", "DIR", "take real images (default: noise in the shape of CUB200-2011)"),
        argument("--set", "KEY=VALUE", "change one setting; may be repeated", action="append"),
        argument(
            "--steps", "STEPS", "train for this many steps in each measurement (default: 600)", type=int, default=600
        ),
        argument("--out", "FILE", "write the figures here (default: bench.json)", default="bench.json"),
    ),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and leaves with its exit code; a mistake of the user is one sentence on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names may hold what the terminal has no letters for
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        if options.command is None:
            parser.print_help()
        else:
            options.command(options)
        sys.stdout.flush()
    except UserError as error:
        sys.exit(f"pads: {error}" if speaks() else 0)
    except KeyboardInterrupt as interrupt:
        if not is_first_process():  # it knows where the run is and what was saved
            sys.exit(0)
        print(f"Stopped: {interrupt}" if str(interrupt) else "Stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has left; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = f"pads: {where}{(error.strerror or str(error)).lower()}. Mend that, then try again."
        sys.exit(message if speaks() else 0)
    except MemoryError:
        message = "pads: there is not enough memory: lower data.store_size, or take fewer images."
        sys.exit(message if speaks() else 0)
    sys.exit(0)


def speaks() -> bool:
    """Whether it is for this process to say what went wrong: of several, for the first to have an error.

    The others leave as if all were well: torchrun ends all when it sees one fail, which might be before the message is out.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return True
    from pads.runtime.team import first_to_speak

    return first_to_speak()


def is_first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; the docstring of a command's function describes it."""
    parser = Parser(
        prog="pads",
        description="Train similarity models on your own images; a reproduction of PADS (CVPR 2020) with controls.",
    )
    parser.add_argument("--version", action="version", version=f"pads {pads.__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, (run, help) in COMMANDS.items():
        about = " ".join((run.__doc__ or "").split())
        command = commands.add_parser(name, help=help, description=about)
        for argument_name, options in ARGUMENTS[name]:
            command.add_argument(argument_name, **options)
        command.set_defaults(command=run)
    commands.choices["train"].epilog = EXAMPLES
    commands.choices["train"].formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, and where to read on."""
        if not speaks():
            self.exit()
        self.exit(2, f"pads: {message}. See `{self.prog} --help`.\n")


def train_command(options: argparse.Namespace) -> None:
    """Train a recipe, or resume a run that was stopped."""
    if options.resume is not None:
        resume_command(options)
        return
    if options.data_changed:
        raise UserError("--data-changed goes with --resume: a new run begins with the images that are there.")
    if options.recipe is None:
        raise UserError("name a recipe, for example `pads train emoji-pads`; `pads recipes` lists them.")
    given = {
        "data.root": options.data,
        "data.strict": options.strict or None,
        "data.paper_protocol": options.paper_protocol or None,
        "network.weights": options.weights,
        "seed": options.seed,
        "device": options.device,
    }
    config = with_settings(recipe_config(options.recipe), [*write_settings(given), *(options.set or [])])

    from pads.display import watching
    from pads.train import train

    with watching(plain=options.plain, tensorboard=options.tensorboard) as watch:
        run = train(config, options.run, watch=watch, minutes=options.minutes)
    after_training(run, options)


def resume_command(options: argparse.Namespace) -> None:
    others = (
        "recipe",
        "data",
        "set",
        "run",
        "seed",
        "weights",
        "minutes",
        "device",
        "strict",
        "paper_protocol",
    )
    given = [name for name in others if getattr(options, name) is not None and getattr(options, name) is not False]
    if given:
        names = ", ".join(name if name == "recipe" else "--" + name.replace("_", "-") for name in given)
        raise UserError(f"--resume goes on with a run as it was: leave out {names}, or train anew without --resume.")

    from pads.display import print_figures, watching
    from pads.runs import RunFolder
    from pads.train import resume

    finished = RunFolder.open(options.resume).metrics if is_first_process() else None
    if finished is not None:
        print(f"{options.resume} is finished already; its figures:\n")
        print_figures(finished, Path(options.resume))
    with watching(plain=options.plain, tensorboard=options.tensorboard) as watch:
        run = resume(options.resume, watch=watch, data_changed=options.data_changed)
    if finished is None or is_left_undone(run, options):
        after_training(run, options)


def is_left_undone(run: RunFolder, options: argparse.Namespace) -> bool:
    """Tell whether a finished run was stopped while its report or its index was made: there is a folder, and nothing whole."""
    index = run.path / "images-index"
    lacks_index = not options.no_index and index.is_dir() and not (index / "index.json").exists()
    lacks_report = not options.no_report and (run.path / "report").is_dir() and not (run.path / "report.html").exists()
    return lacks_index or lacks_report


def after_training(run: RunFolder, options: argparse.Namespace) -> None:
    """An index of a user's own folder, and the report. The run is finished and stays so, whatever becomes of these.

    The last line is the next step, and the only one.
    """
    if not is_first_process():
        return
    from pads.runtime.files import make_folder

    if not options.no_report:
        make_folder(run.path / "report")  # by which --resume knows that there should be one, whenever this is stopped
    path, data = shlex.quote(str(run.path)), run.config.data
    index, page = run.path / "images-index", run.path / "report.html"
    next_step = ""
    if data.name == "folder" and data.root is not None and not options.no_index:
        again = f"pads index {path} {shlex.quote(data.root)} --out {shlex.quote(str(index))}"
        print("Making the images searchable ...", flush=True)
        with report_failure("the index was not made", again):
            from pads.search import build_index

            build_index(run, data.root, index)
            next_step = f"Next: search your images with pads serve {shlex.quote(str(index))}"
    if not options.no_report:
        print("Drawing the report ...", flush=True)
        with report_failure("the report was not drawn", f"pads report {path}"):
            from pads.reports.report import write_report

            write_report([run])
            next_step = f"Next: open {page}"
    if next_step:
        print(next_step)


@contextmanager
def report_failure(what: str, again: str) -> Iterator[None]:
    """Print what failed, why, and the command that tries it again."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        why = (str(error).partition("\n")[0] or type(error).__name__).rstrip(".")
        print(f"pads: {what} ({why}); try again with `{again}`.", file=sys.stderr)


def recipe_config(name: str) -> Config | AutoConfig:
    if Path(name, "config.json").exists():
        raise UserError(f"{name} is a run folder; go on with it by `pads train --resume {name}`.")
    return with_settings(lookup(RECIPES, name, "recipe")(), write_settings({"recipe": name}))


def pick(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return these options by their names, for a function that calls them the same."""
    return {name: getattr(options, name) for name in names}


def write_settings(values: Mapping[str, Any]) -> list[str]:
    """Write values as `--set` takes them; None is one that was not given."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]


def check_command(options: argparse.Namespace) -> None:
    """Look at images before anything is trained: files that cannot be read, copies, and what each split would hold."""
    from pads.look import check_images

    check_images(options.data, **pick(options, "kind", "out", "strict"), settings=options.set or [])


def recipes_command(options: argparse.Namespace) -> None:
    """List the recipes."""
    if options.recipe is not None:
        print(json.dumps(to_dict(recipe_config(options.recipe)), indent=2))
        return
    width = max(map(len, RECIPES))
    for title, names in group_recipes().items():
        print(title)
        for name in names:
            print(f"  {name:{width}}  {(RECIPES[name].__doc__ or '').strip().splitlines()[0]}")
        print()
    print("`pads recipes RECIPE` shows all settings of one.")


def group_recipes() -> dict[str, list[str]]:
    """Return the names of the recipes by their images, those for a user's own first."""
    titles = {"folder": "Your own images", "csv": "Your own images", "hf": "Your own images", **RECIPE_TITLES}
    groups: dict[str, list[str]] = {title: [] for title in dict.fromkeys(titles.values())}
    for name, recipe in RECIPES.items():
        data = drop_auto(recipe()).data.name
        groups.setdefault(titles.get(data, data), []).append(name)
    return {title: names for title, names in groups.items() if names}


def evaluate_command(options: argparse.Namespace) -> None:
    """Measure a trained run, or the plain features of backbone:NAME, beside what one has without it."""
    from pads.display import print_evaluation
    from pads.model import evaluate_rows

    changed: list[str] = []
    how = pick(options, "split", "checkpoint", "data", "data_changed")
    evaluation = evaluate_rows(options.run, **how, note=changed.append)
    protocol, backbone = describe_run(options.run, options.checkpoint)
    if options.json:
        baselines = {row: figures for row, figures in evaluation.rows.items() if row != evaluation.own}
        about = {"split": options.split, "protocol": protocol, **({"data_changed": changed[0]} if changed else {})}
        sizes = {"images": evaluation.num_images, "classes": evaluation.num_classes}
        beside = {"baselines": baselines, "compared": evaluation.compared}
        print(json.dumps({**about, **sizes, **evaluation.rows[evaluation.own], **beside}, indent=2))
        return
    mark = ", data changed" if changed else ""
    print_evaluation(evaluation, options.split, f"protocol: {protocol}{mark}", backbone)
    print("\n".join(changed), end="\n" if changed else "")


def describe_run(name: str, checkpoint: str) -> tuple[str, str]:
    """By which protocol a network was picked, and its backbone; a run that is not finished says so."""
    from pads.runs import RunFolder
    from pads.runs.backbone import BACKBONE, is_backbone
    from pads.verdict import name_backbone

    if is_backbone(name):
        return "pretrained", name.removeprefix(BACKBONE)
    run = RunFolder.open(name)
    if not run.is_finished:
        print(f"note: {run.path} is not finished; these are the figures of what it saved so far.", file=sys.stderr)
    is_selected = checkpoint == "selected" and run.selected_path.exists()
    protocol = "last" if not is_selected else "test-selected" if run.config.data.paper_protocol else "selected"
    return protocol, name_backbone(run.config.network)


def report_command(options: argparse.Namespace) -> None:
    """Draw runs: one page that opens from disk, pictures (PNG, SVG) and tables (CSV). Runs that differ in their seed
    alone are drawn as one line with a band.
    """
    from pads.reports.report import write_report

    report = write_report(options.runs, options.out, map_method=options.map, classes=options.classes or [])
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(
        f"{report.page} ({report.page.stat().st_size / 1e6:.1f} MB), and {len(report.files)} files in {report.folder}"
    )


def study_command(options: argparse.Namespace) -> None:
    """Run every arm of an experiment with every seed. Finished runs are skipped, stopped ones are resumed."""
    from pads.studies import print_report, run_study
    from pads.studies.claims import hold_claims, print_claims, read_evidence, write_claims
    from pads.studies.costs import print_costs

    if options.list:
        print_costs(options.recipe_base, len(options.seeds))
        return
    if options.study is None:
        raise UserError(
            "name a study, for example `pads study controls --recipe-base emoji`; `pads study --list` shows all."
        )
    if options.study == "claims":
        base = options.recipe_base or "cub200"
        out = Path(options.out or f"studies/claims-{base}")
        evidence = read_evidence(Path(options.results or out.parent), base)
        held = hold_claims(evidence)
        print_claims(held, base)
        print(f"written to {write_claims(held, base, out, evidence.sources())}")
        return
    runs = pick(options, "out", "seeds", "arms", "epochs", "data", "weights", "tune", "drop_checkpoints", "commit")
    how = pick(options, "engine", "jobs", "gpus_per_run", "plain")
    result = run_study(options.study, base=options.recipe_base, settings=options.set or [], **runs, **how)
    print_report(result)
    if result.failures:
        sys.exit(1)


def prepare_command(options: argparse.Namespace) -> None:
    """Decode a data set once, for all runs; run it again to continue, to verify, or to bring it up to date."""
    from pads.data.benchmark import split_lists
    from pads.data.prepare import prepare
    from pads.display import progress_bars

    with progress_bars() as show:
        how = pick(options, "size", "ratio", "strict")
        prepared = prepare(options.dataset, options.data, options.out, **how, progress=show)
    for note in prepared.benchmark.notes:
        print(note)
    counts = ", ".join(f"{split} {len(images):,}" for split, images in split_lists(prepared.benchmark).items())
    print(f"{prepared.path} holds {options.dataset} ({counts}), decoded and verified.")


def serve_command(options: argparse.Namespace) -> None:
    """Serve a page and an HTTP API to search an index, or to watch a run and search its test images."""
    from pads.search.serve import serve

    serve(options.path, **pick(options, "host", "port", "images", "follow_links", "token", "no_token"))


def push_command(options: argparse.Namespace) -> None:
    """Put a trained run on the Hugging Face Hub, with a model card; pads.load('hf://USER/NAME') takes it back."""
    from pads.publish.hub import push
    from pads.runs import RunFolder
    from pads.runs.hub import HUB

    address = push(RunFolder.open(options.run), options.repo, private=options.private)
    print(f"{options.run} is at {address}")
    print(f'Use it: pads.load("{HUB}{options.repo}")')


def bench_command(options: argparse.Namespace) -> None:
    """Measure how fast this machine trains, every figure as a ratio within one run."""
    given = write_settings({"data.root": options.data})
    config = with_settings(recipe_config(options.recipe), [*given, *(options.set or [])])

    from pads.bench import bench, rows, write
    from pads.display import print_rows

    figures = bench(config, num_steps=options.steps)
    print_rows(rows(figures), f"{figures['network']} on {figures['device']}, batch {figures['batch']}")
    write(figures, Path(options.out))
    print(f"written to {options.out}")


def index_command(options: argparse.Namespace) -> None:
    """Embed the images below a folder with a trained run; run it again to continue, or to bring it up to date."""
    from pads.display import progress_bars
    from pads.search import build_index
    from pads.search.index import describe_index

    notes: list[str] = []
    try:
        with progress_bars() as show:
            how = pick(options, "checkpoint", "rebuild", "data", "device", "strict")
            index = build_index(options.run, options.images, options.out, **how, progress=show, note=notes.append)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what was embedded is kept, and the same command goes on.") from None
    print("\n".join([*notes, *describe_index(index)]))


def search_command(options: argparse.Namespace) -> None:
    """Find the images of an index that look like others."""
    from pads.search.search import print_answers

    how = pick(options, "list_file", "k", "label", "precision", "show", "sheet", "images")
    print_answers(options.index, options.queries, as_json=options.json, **how)


def export_command(options: argparse.Namespace) -> None:
    """Write the network of a run for use elsewhere, checked against the original, with a model card."""
    from pads.publish import export_run

    path = export_run(options.run, options.to, options.out, checkpoint=options.checkpoint, note=print)
    print(f"{path} is complete; {path / 'README.md'} is its model card.")


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], None], str]] = {
    "train": (train_command, "train a recipe, or resume a run"),
    "recipes": (recipes_command, "list the recipes"),
    "check": (check_command, "look at images before anything is trained"),
    "evaluate": (evaluate_command, "measure a trained run"),
    "report": (report_command, "draw runs: one page, pictures and tables"),
    "study": (study_command, "run an experiment of the paper, with its controls"),
    "index": (index_command, "embed a folder of images, to search it"),
    "search": (search_command, "find images that look alike"),
    "serve": (serve_command, "serve a page to search an index, or to watch a run"),
    "export": (export_command, "write a trained network for use elsewhere"),
    "push": (push_command, "put a trained run on the Hugging Face Hub"),
    "prepare": (prepare_command, "decode a data set once, for all runs"),
    "bench": (bench_command, "measure how fast this machine trains"),
}
