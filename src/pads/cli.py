"""The command line: each command parses, then calls one function. torch is imported by the command that needs it."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import pads
from pads.config import Config, Data, lookup, to_json, with_settings
from pads.errors import UserError
from pads.recipes import RECIPES

if TYPE_CHECKING:
    from pads.runs import RunFolder

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
SPLITS = ("test", "selection", "reward", "train")
MAPS = ("auto", "umap", "pca", "none")
DATA_CHANGED = "go on although the images are not those that the run began with; the figures say so"
EXAMPLES = """examples:
  pads train emoji-pads
  pads train folder --data photos/ --set num_epochs=20
  pads train --resume runs/emoji-pads-0"""


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
    parser = Parser(
        prog="pads", description="Learn visual similarity with a negative sampler that adapts itself (PADS, CVPR 2020)."
    )
    parser.add_argument("--version", action="version", version=f"pads {pads.__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    for add in (
        add_train,
        add_recipes,
        add_evaluate,
        add_report,
        add_study,
        add_index,
        add_search,
        add_serve,
        add_export,
        add_push,
        add_prepare,
        add_bench,
    ):
        add(commands)
    return parser


def add_train(commands: Commands) -> None:
    train = commands.add_parser(
        "train",
        help="train a recipe, or go on with a run",
        description="Train a recipe, or go on with a run that was stopped.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.add_argument("recipe", nargs="?", metavar="RECIPE", help="a name that `pads recipes` lists")
    train.add_argument("--resume", metavar="RUN", help="go on with the run in this folder; takes no recipe")
    train.add_argument("--data-changed", action="store_true", help=DATA_CHANGED)
    train.add_argument("--data", metavar="DIR", help="where the images are")
    train.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        help="change one setting, such as loss.options.beta=0.6; may be repeated; `pads recipes RECIPE` shows them all",
    )
    train.add_argument("--run", metavar="DIR", help="the run folder to make (default: runs/RECIPE-SEED)")
    train.add_argument("--seed", type=int, help="of the weights, the batches, the drawing and the policy (default: 0)")
    train.add_argument(
        "--weights", metavar="FILE", help="what the backbone starts from: a file, or imagenet to download"
    )
    train.add_argument("--device", help="cpu, cuda, ... (default: auto)")
    train.add_argument("--skip-bad-images", action="store_true", help="go on without images that cannot be read")
    train.add_argument(
        "--paper-protocol",
        action="store_true",
        help="select the epoch on the test split, as the authors did; every figure is then marked test-selected",
    )
    train.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    train.add_argument("--tensorboard", action="store_true", help="write TensorBoard files into the run folder")
    train.add_argument("--no-report", action="store_true", help="draw no report at the end")
    train.add_argument("--no-index", action="store_true", help="make no index of your own folder at the end")
    train.set_defaults(command=train_command)


def add_recipes(commands: Commands) -> None:
    recipes = commands.add_parser("recipes", help="list the recipes", description="List the recipes.")
    recipes.add_argument("recipe", nargs="?", metavar="RECIPE", help="show this recipe's whole config")
    recipes.set_defaults(command=recipes_command)


def add_evaluate(commands: Commands) -> None:
    evaluate = commands.add_parser("evaluate", help="measure a trained run", description="Measure a trained run.")
    evaluate.add_argument("run", metavar="RUN", help="a run folder")
    evaluate.add_argument("--split", choices=SPLITS, default="test", help="default: test")
    evaluate.add_argument("--checkpoint", choices=("selected", "last"), default="selected", help="default: selected")
    evaluate.add_argument("--data-changed", action="store_true", help=DATA_CHANGED)
    evaluate.add_argument("--json", action="store_true", help="print JSON, fractions instead of percentages")
    evaluate.set_defaults(command=evaluate_command)


def add_report(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        help="draw runs: one page, pictures and tables",
        description="Draw runs: one page that opens from disk, pictures (PNG, SVG) and tables (CSV). Runs that differ in "
        "their seed alone are drawn as one line with a band.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="a run folder, finished or not")
    report.add_argument(
        "--out", metavar="DIR", help="where report.html and report/ go, or NAME.html (default: the first run's folder)"
    )
    report.add_argument(
        "--map", choices=MAPS, default="auto", help="of the test images (default: umap where it is installed, else pca)"
    )
    report.add_argument(
        "--class", dest="classes", metavar="NAME", action="append", help="open the page of this class; may be repeated"
    )
    report.set_defaults(command=report_command)


def add_study(commands: Commands) -> None:
    study = commands.add_parser(
        "study",
        help="run an experiment of the paper, with its controls",
        description="Run every arm of an experiment with every seed. What is done is skipped, what was cut goes on.",
    )
    study.add_argument("study", nargs="?", metavar="STUDY", help="a name that `pads study --list` shows")
    study.add_argument("--list", action="store_true", help="what the studies are, and what they cost")
    study.add_argument(
        "--recipe-base",
        metavar="BASE",
        help="emoji, cub200, cars196, sop, folder, csv, hf, or a recipe (default: the paper's)",
    )
    study.add_argument("--data", metavar="DIR", help="where the images are")
    study.add_argument("--weights", metavar="FILE", help="what the backbone starts from")
    study.add_argument(
        "--seeds", metavar="SEED", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="default: 0 1 2 3 4"
    )
    study.add_argument("--arms", metavar="ARM", nargs="+", default=[], help="only these, and the runs that they need")
    study.add_argument("--epochs", type=int, help="of every run; the learning-rate schedule is stretched with it")
    study.add_argument(
        "--set", metavar="KEY=VALUE", action="append", help="change one setting of all arms; may be repeated"
    )
    study.add_argument("--out", metavar="DIR", help="the study's folder (default: studies/STUDY-BASE)")
    study.add_argument("--tune", action="store_true", help="first pick settings of each arm on the selection split")
    study.add_argument("--jobs", metavar="N", type=int, help="runs at a time (default: one, or one on each GPU)")
    study.add_argument("--engine", choices=("local", "ray"), default="local", help="default: local")
    study.add_argument(
        "--gpus-per-run", metavar="SHARE", type=float, help="of --engine ray (default: 1 if there is one)"
    )
    study.add_argument("--drop-checkpoints", action="store_true", help="of finished runs; the selected networks stay")
    study.add_argument("--commit", help="what seeds.csv shall name, where git is not there to ask")
    study.add_argument("--bench", metavar="FILE", help="a bench.json of `pads bench`, for the costs of --list")
    study.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    study.set_defaults(command=study_command)


def add_prepare(commands: Commands) -> None:
    prepare = commands.add_parser(
        "prepare",
        help="decode a data set once, for all runs",
        description="Decode a data set once, for all runs; run it again to go on, to verify, or to bring it up to date.",
    )
    prepare.add_argument("dataset", metavar="DATASET", help="cub200, cars196, sop, inshop, folder, csv or hf")
    prepare.add_argument("--data", metavar="DIR", required=True, help="where the images are")
    prepare.add_argument("--out", metavar="DIR", help="the store to make (default: hidden, beside the images)")
    prepare.add_argument(
        "--size", type=int, help="pixels of the shorter side (default: as the recipes of the data set have it)"
    )
    prepare.add_argument(
        "--ratio", type=float, default=Data.store_ratio, help="the longer side over the shorter (default: 4/3)"
    )
    prepare.add_argument("--skip-bad-images", action="store_true", help="go on without images that cannot be read")
    prepare.set_defaults(command=prepare_command)


def add_bench(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast this machine trains",
        description="Measure how fast this machine trains, every figure as a ratio within one run.",
    )
    bench.add_argument(
        "recipe", nargs="?", default="cub200-margin-udist", metavar="RECIPE", help="default: %(default)s"
    )
    bench.add_argument("--data", metavar="DIR", help="real images (default: noise in the shape of CUB200-2011)")
    bench.add_argument("--set", metavar="KEY=VALUE", action="append", help="change one setting; may be repeated")
    bench.add_argument("--steps", type=int, default=600, help="training steps of each measurement (default: 600)")
    bench.add_argument("--out", metavar="FILE", default="bench.json", help="where the figures go (default: bench.json)")
    bench.set_defaults(command=bench_command)


def add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="a page to search an index, or to watch a run",
        description="A page and an HTTP API to search an index, or to watch a run and search its test images.",
    )
    serve.add_argument("path", metavar="INDEX|RUN", help="an index folder, or a run folder, also while it is trained")
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine alone)")
    serve.add_argument("--port", type=int, default=8420, help="0 for any free one (default: 8420)")
    serve.add_argument(
        "--images", metavar="DIR", help="where the images, or the run's data, are now (default: where they were)"
    )
    serve.add_argument(
        "--follow-links", action="store_true", help="show images that are links out of the folder of the index, too"
    )
    serve.add_argument(
        "--token", nargs="?", const="", metavar="TOKEN", help="ask for a token (a new one, if none is given)"
    )
    serve.add_argument("--no-token", action="store_true", help="ask for none, also beyond this machine")
    serve.set_defaults(command=serve_command)


def add_index(commands: Commands) -> None:
    index = commands.add_parser(
        "index",
        help="embed a folder of images, to search it",
        description="Embed the images below a folder with a trained run; run it again to go on, or to bring it up to date.",
    )
    index.add_argument("run", metavar="RUN", help="a run folder")
    index.add_argument("images", metavar="IMAGES", help="a folder; its sub-folders are the labels")
    index.add_argument("--out", metavar="INDEX", required=True, help="the index to make or to bring up to date")
    index.add_argument("--checkpoint", choices=("selected", "last"), default="selected", help="default: selected")
    index.add_argument("--rebuild", action="store_true", help="embed everything anew, also with another model")
    index.add_argument(
        "--data", metavar="DIR", help="where the run's own images are now, to calibrate on (default: as in training)"
    )
    index.add_argument("--device", default="auto", help="cpu, cuda, ... (default: auto)")
    index.set_defaults(command=index_command)


def add_search(commands: Commands) -> None:
    search = commands.add_parser(
        "search", help="find images that look alike", description="Find the images of an index that look like others."
    )
    search.add_argument("index", metavar="INDEX", help="what `pads index` made")
    search.add_argument("queries", nargs="*", metavar="QUERY", help="an image file; any number of them")
    search.add_argument(
        "--from", metavar="FILE", dest="list_file", help="more queries, one path a line (-: standard input)"
    )
    search.add_argument("-k", type=int, default=10, help="neighbours of each query (default: 10)")
    search.add_argument("--label", help="search only images with this label")
    search.add_argument(
        "--precision",
        type=float,
        default=0.95,
        help="share of the neighbours called the same item that must be (default: 0.95)",
    )
    search.add_argument("--json", action="store_true", help="print JSON, a line for each query")
    search.add_argument("--show", action="store_true", help="open a contact sheet")
    search.add_argument("--sheet", metavar="FILE", help="write a contact sheet, such as sheet.png")
    search.add_argument("--images", metavar="DIR", help="where the indexed images are now (default: where they were)")
    search.set_defaults(command=search_command)


def add_export(commands: Commands) -> None:
    export = commands.add_parser(
        "export",
        help="a trained network for use elsewhere",
        description="Write the network of a run for use elsewhere, checked against the original, with a model card.",
    )
    export.add_argument("run", metavar="RUN", help="a run folder")
    export.add_argument(
        "--to",
        action="append",
        choices=("safetensors", "onnx", "torch-export"),
        required=True,
        help="the format; may be repeated",
    )
    export.add_argument("--out", metavar="DIR", help="where to (default: RUN/export)")
    export.add_argument("--checkpoint", choices=("selected", "last"), default="selected", help="default: selected")
    export.set_defaults(command=export_command)


def add_push(commands: Commands) -> None:
    push = commands.add_parser(
        "push",
        help="put a trained run on the Hugging Face Hub",
        description="Put a trained run on the Hugging Face Hub, with a model card; pads.load('hf://USER/NAME') takes it back.",
    )
    push.add_argument("run", metavar="RUN", help="a run folder")
    push.add_argument("repo", metavar="USER/NAME", help="the repository, made if it is not there yet")
    push.add_argument("--private", action="store_true", help="a repository that it makes is for your eyes only")
    push.set_defaults(command=push_command)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, and where to read on."""
        if not speaks():
            self.exit()
        self.exit(2, f"pads: {message}. See `{self.prog} --help`.\n")


def train_command(options: argparse.Namespace) -> None:
    if options.resume is not None:
        resume_command(options)
        return
    if options.data_changed:
        raise UserError("--data-changed goes with --resume: a new run begins with the images that are there.")
    if options.recipe is None:
        raise UserError("name a recipe, for example `pads train emoji-pads`; `pads recipes` lists them.")
    config = recipe_config(options.recipe)
    data = replace(
        config.data,
        root=config.data.root if options.data is None else options.data,
        skip_bad_images=options.skip_bad_images or config.data.skip_bad_images,
        paper_protocol=options.paper_protocol or config.data.paper_protocol,
    )
    seed = config.seed if options.seed is None else options.seed
    device = options.device or config.device
    network = config.network if options.weights is None else replace(config.network, weights=options.weights)
    config = replace(config, data=data, network=network, seed=seed, device=device)
    config = with_settings(config, options.set or [])

    from pads.display import watching
    from pads.train import train

    with watching(plain=options.plain, tensorboard=options.tensorboard) as watch:
        run = train(config, options.run, watch=watch)
    after_training(run, options)


def resume_command(options: argparse.Namespace) -> None:
    others = ("recipe", "data", "set", "run", "seed", "weights", "device", "skip_bad_images", "paper_protocol")
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
    if finished is None:
        after_training(run, options)


def after_training(run: RunFolder, options: argparse.Namespace) -> None:
    """The report, and an index of a user's own folder. The run is finished and stays so, whatever becomes of these."""
    if not is_first_process():
        return
    path = shlex.quote(str(run.path))
    if not options.no_report:
        print("Drawing the report ...", flush=True)
        with told_if_it_fails("the report was not drawn", f"pads report {path}"):
            from pads.reports.report import write_report

            print(f"Drawn in {write_report([run]).page}")
    data = run.config.data
    if data.name == "folder" and data.root is not None and not options.no_index:
        out = run.path / "images-index"
        print("Making the images searchable ...", flush=True)
        with told_if_it_fails("the index was not made", f"pads index {path} {shlex.quote(data.root)} --out {out}"):
            from pads.search import build_index

            index = build_index(run, data.root, out)
            print(f"{len(index.paths):,} images to search: pads search {out} IMAGE, or pads serve {out}")


@contextmanager
def told_if_it_fails(what: str, again: str) -> Iterator[None]:
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        why = (str(error).partition("\n")[0] or type(error).__name__).rstrip(".")
        print(f"pads: {what} ({why}); try again with `{again}`.", file=sys.stderr)


def recipe_config(name: str) -> Config:
    if Path(name, "config.json").exists():
        raise UserError(f"{name} is a run folder; go on with it by `pads train --resume {name}`.")
    return replace(lookup(RECIPES, name, "recipe")(), recipe=name)


def recipes_command(options: argparse.Namespace) -> None:
    if options.recipe is not None:
        print(to_json(recipe_config(options.recipe)), end="")
        return
    width = max(map(len, RECIPES))
    for name, recipe in RECIPES.items():
        print(f"{name:{width}}  {(recipe.__doc__ or '').strip().splitlines()[0]}")


def evaluate_command(options: argparse.Namespace) -> None:
    from pads.display import print_table
    from pads.model import evaluate_run
    from pads.runs import RunFolder

    run = RunFolder.open(options.run)
    changed: list[str] = []
    figures = evaluate_run(
        run, split=options.split, checkpoint=options.checkpoint, data_changed=options.data_changed, note=changed.append
    )
    if not run.is_finished:
        print(f"note: {run.path} is not finished; these are the figures of what it saved so far.", file=sys.stderr)
    is_selected = options.checkpoint == "selected" and run.selected_path.exists()
    protocol = "last" if not is_selected else "test-selected" if run.config.data.paper_protocol else "selected"
    if options.json:
        marks = {"data_changed": changed[0]} if changed else {}
        print(json.dumps({"split": options.split, "protocol": protocol, **marks, **figures}, indent=2))
    else:
        mark = ", data changed" if changed else ""
        print_table({"trained": figures}, f"{options.split} split, in percent (protocol: {protocol}{mark})")
        print("\n".join(changed), end="\n" if changed else "")


def report_command(options: argparse.Namespace) -> None:
    from pads.reports.report import write_report

    report = write_report(options.runs, options.out, map_method=options.map, classes=options.classes or [])
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(
        f"{report.page} ({report.page.stat().st_size / 1e6:.1f} MB), and {len(report.files)} files in {report.folder}"
    )


def study_command(options: argparse.Namespace) -> None:
    from pads.studies import print_report, run_study
    from pads.studies.claims import hold_claims, print_claims, write_claims
    from pads.studies.costs import print_costs

    if options.list:
        print_costs(options.recipe_base, len(options.seeds), options.bench)
        return
    if options.study is None:
        raise UserError(
            "name a study, for example `pads study controls --recipe-base emoji`; `pads study --list` shows all."
        )
    if options.study == "claims":
        base = options.recipe_base or "cub200"
        out = Path(options.out or f"studies/claims-{base}")
        held = hold_claims(out.parent, base)
        print_claims(held, base)
        print(f"written to {write_claims(held, base, out)}")
        return
    result = run_study(
        options.study,
        out=options.out,
        base=options.recipe_base,
        seeds=options.seeds,
        arms=options.arms,
        epochs=options.epochs,
        data=options.data,
        weights=options.weights,
        settings=options.set or [],
        tune=options.tune,
        engine=options.engine,
        jobs=options.jobs,
        gpus_per_run=options.gpus_per_run,
        drop_checkpoints=options.drop_checkpoints,
        commit=options.commit,
        plain=options.plain,
    )
    print_report(result)
    if result.failures:
        sys.exit(1)


def prepare_command(options: argparse.Namespace) -> None:
    from pads.data.prepare import prepare, split_lists
    from pads.display import progress_bars

    with progress_bars() as show:
        prepared = prepare(
            options.dataset,
            options.data,
            options.out,
            size=options.size,
            ratio=options.ratio,
            skip_bad_images=options.skip_bad_images,
            progress=show,
        )
    for note in prepared.benchmark.notes:
        print(note)
    counts = ", ".join(f"{split} {len(images):,}" for split, images in split_lists(prepared.benchmark).items())
    print(f"{prepared.path} holds {options.dataset} ({counts}), decoded and verified.")


def serve_command(options: argparse.Namespace) -> None:
    from pads.search.serve import serve

    serve(
        options.path,
        host=options.host,
        port=options.port,
        images=options.images,
        follow_links=options.follow_links,
        token=options.token,
        no_token=options.no_token,
    )


def push_command(options: argparse.Namespace) -> None:
    from pads.publish.hub import push
    from pads.runs import RunFolder
    from pads.runs.hub import HUB

    address = push(RunFolder.open(options.run), options.repo, private=options.private)
    print(f"{options.run} is at {address}")
    print(f'Use it: pads.load("{HUB}{options.repo}")')


def bench_command(options: argparse.Namespace) -> None:
    config = recipe_config(options.recipe)
    config = with_settings(replace(config, data=replace(config.data, root=options.data)), options.set or [])

    from pads.bench import bench, rows, write
    from pads.display import print_rows

    figures = bench(config, num_steps=options.steps)
    print_rows(rows(figures), f"{figures['network']} on {figures['device']}, batch {figures['batch']}")
    write(figures, Path(options.out))
    print(f"written to {options.out}")


def index_command(options: argparse.Namespace) -> None:
    from pads.display import progress_bars
    from pads.search import build_index
    from pads.search.index import described

    notes: list[str] = []
    try:
        with progress_bars() as show:
            index = build_index(
                options.run,
                options.images,
                options.out,
                checkpoint=options.checkpoint,
                rebuild=options.rebuild,
                data=options.data,
                device=options.device,
                progress=show,
                note=notes.append,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what was embedded is kept, and the same command goes on.") from None
    print("\n".join([*notes, *described(index)]))


def search_command(options: argparse.Namespace) -> None:
    from pads.search.search import print_answers

    print_answers(
        options.index,
        options.queries,
        list_file=options.list_file,
        k=options.k,
        label=options.label,
        precision=options.precision,
        as_json=options.json,
        show=options.show,
        sheet=options.sheet,
        images=options.images,
    )


def export_command(options: argparse.Namespace) -> None:
    from pads.publish import export_run

    path = export_run(options.run, options.to, options.out, checkpoint=options.checkpoint, note=print)
    print(f"{path} is complete; {path / 'README.md'} is its model card.")
