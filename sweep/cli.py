"""The `sweep` command: parses, calls, prints. Results on stdout; progress and messages on stderr.

Exit codes: 0 ok · 1 failed while running · 2 usage, study file or data · 3 nothing feasible · 130 interrupted.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sweep.errors import InputError, SweepError

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Which search settings should I ship? Sweep them on your own labelled queries.\n\n"
    "  sweep check studies/quickstart.yaml\n\n"
    "  sweep run studies/quickstart.yaml\n\n"
    "  sweep export studies/quickstart.yaml --target json -o settings/\n\n"
    "--debug, anywhere, shows where a fault comes from.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Convention = Literal["foundry", "scaled"]
StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file: .yaml, .toml or .json.")]
StorageOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Optuna storage; default: SQLite in .sweep/<study>/study.db.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import importlib.metadata

        _print_lines([importlib.metadata.version("retrieval-sweep")])
        raise typer.Exit


@app.command()
def check(study: StudyArgument, as_json: JsonOption = False) -> None:
    """Check a study file and its data before any work; runs nothing.

    sweep check studies/quickstart.yaml
    """
    from sweep.present.checking import check_lines, check_study

    found = check_study(study)
    _print(found) if as_json else _print_lines(check_lines(found))


@app.command()
def run(
    study: StudyArgument,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Total of distinct configurations, earlier runs counted.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="Most seconds of this run.")] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study, or what is left of it, and print what to ship.

    Ctrl-C keeps what is finished; the same command goes on from there. A finished study answers at once.

    sweep run studies/quickstart.yaml

    sweep run studies/quickstart.yaml --trials 20 --json
    """
    import sweep
    from sweep.present.answer import answer, answer_dict

    with _progress() as progress:
        results = sweep.run(study, trials=trials, timeout=timeout, storage=storage, progress=progress)
        results.recommendation  # noqa: B018 - made while the bar still shows
    _print(answer_dict(results)) if as_json else _print_rich(answer(results))


@app.command()
def export(
    study: StudyArgument,
    target: Annotated[str, typer.Option(help="What to write the settings for: json.")],
    config: Annotated[str, typer.Option(help='"best", "baseline", or the id of a configuration.')] = "best",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder; default: print.")
    ] = None,
    storage: StorageOption = None,
) -> None:
    """Write the settings of a configuration for another system.

    sweep export studies/quickstart.yaml --target json

    sweep export studies/quickstart.yaml --target json --config 3254323e -o settings/
    """
    import sweep
    from sweep.errors import nearest
    from sweep.export import TARGETS, text, write

    if target not in TARGETS:
        raise InputError(f"--target {target!r} is unknown{nearest(target, TARGETS)}; allowed: {', '.join(TARGETS)}")
    bundle = TARGETS[target](sweep.load(study, storage=storage), config)
    if output is None:
        _write("".join(text(content) for content in bundle.values()))
    else:
        _print_lines([str(path) for path in write(bundle, output)])


@app.command()
def score(
    rows: Annotated[
        Path | None, typer.Argument(metavar="ROWS", help="JSONL, one query a line; - is standard input.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(metavar="FILE", help="Labels, as TREC or BEIR write them.")] = None,
    run_file: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Search results, as TREC's.")] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("-m", "--measure", metavar="MEASURE", help="Such as ndcg@10 or judged(map); may be given often."),
    ] = None,
    per_query: Annotated[bool, typer.Option("-q", help="With --run: a line for each query too.")] = False,
    hole_bounds: Annotated[
        bool, typer.Option("--hole-bounds", help="With --run: the least and greatest mean, whatever the holes' labels.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Result rows; default: print.")
    ] = None,
    label_min: Annotated[int, typer.Option(help="Least label of the scale.")] = 0,
    label_max: Annotated[int, typer.Option(help="Greatest label of the scale.")] = 4,
    relevant_from: Annotated[
        int | None, typer.Option(metavar="LABEL", help="With --run: least relevant label; default: label-min + 1.")
    ] = None,
    convention: Annotated[
        Convention | None,
        typer.Option(help="foundry (the published evaluator's figures; rows' default) or scaled (--run's default)."),
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(metavar="METRIC=NUMBER", help="When a metric passes; may be given often.")
    ] = None,
    data_mapping: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD={{item.NAME}}", help="Where a row keeps a field; may be given often."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score search results that you already have: rows of the document retrieval evaluator, or a TREC run.

    A row holds retrieval_ground_truth, a list of {document_id, query_relevance_label}, and retrieved_documents, a
    list of {document_id, relevance_score}. Result rows go to stdout and the summary to stderr; with -o the rows go to
    the file and the summary to stdout. Files may be gzip.

    sweep score rows.jsonl -o results.jsonl

    sweep score rows.jsonl --label-max 3 --threshold ndcg@3=0.7 -m ndcg@10

    sweep score rows.jsonl --data-mapping "retrieved_documents={{item.search.hits}}"

    sweep score --qrels qrels.txt --run run.txt.gz -m ndcg@10 -m fidelity -q
    """
    from sweep.present import scoring

    scale = (label_min, label_max)
    if rows is not None:
        _refuse("with ROWS", {"--qrels": qrels, "--run": run_file, "-q": per_query, "--hole-bounds": hole_bounds})
        _refuse("with ROWS", {"--relevant-from": relevant_from})
        summary = scoring.score_file(
            rows,
            output,
            scale=scale,
            convention=convention or "foundry",
            thresholds=threshold or [],
            measures=measure or [],
            data_mapping=data_mapping or [],
        )
        to = sys.stderr if output is None else sys.stdout
        _print(summary, to=to) if as_json else _print_lines(scoring.summary_lines(summary), to=to)
        return
    if qrels is None or run_file is None or not measure:
        raise InputError("give a file of ROWS, or --qrels FILE --run FILE -m MEASURE")
    _refuse("with --run", {"-o": output, "--threshold": threshold, "--data-mapping": data_mapping})
    found = scoring.score_run(
        qrels,
        run_file,
        measure,
        scale=scale,
        relevant_from=relevant_from,
        convention=convention or "scaled",
        hole_bounds=hole_bounds,
    )
    if as_json:
        _print(found if per_query else {name: value for name, value in found.items() if name != "queries"})
        return
    lines, notes = scoring.run_lines(found, per_query=per_query)
    _print_lines(lines)
    _print_lines(notes, to=sys.stderr)


cache = typer.Typer(
    help="Look at and bound what studies keep in .sweep/cache to share.\n\n"
    "  sweep cache info\n\n"
    "  sweep cache prune --max-size 2GB",
    no_args_is_help=True,
)
app.add_typer(cache, name="cache")


@cache.command()
def info(as_json: JsonOption = False) -> None:
    """Say what the cache holds, by stage: artifacts, size, last use.

    sweep cache info

    sweep cache info --json
    """
    from sweep.present.caching import cache_info, info_lines

    found = cache_info()
    _print(found) if as_json else _print_lines(info_lines(found))


@cache.command()
def prune(
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Remove until so much is left, such as 2GB or 500MB.")
    ] = None,
    unused_days: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Remove what was not used for so many days.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what was not used for longest. A study that needs it builds it again; results are kept elsewhere.

    With both limits, what either of them removes.

    sweep cache prune --max-size 2GB

    sweep cache prune --unused-days 30
    """
    from sweep.present.caching import prune_cache, prune_lines

    found = prune_cache(max_size, unused_days)
    _print(found) if as_json else _print_lines(prune_lines(found))


def _refuse(where: str, given: dict[str, Any]) -> None:
    """Refuse options that have no meaning here."""
    for option, value in given.items():
        if value:
            raise InputError(f"{option} has no meaning {where}; leave it out")


def main() -> None:
    """Run the command; every fault becomes one line on stderr and an exit code."""
    debug = "--debug" in sys.argv
    sys.argv = [a for a in sys.argv if a != "--debug"]
    try:
        _quiet()
        app()
    except SystemExit as stop:
        if stop.code == 130:  # Ctrl-C where nothing of a study was under way
            _fail("stopped", 130)
        raise
    except SweepError as fault:
        if debug:
            raise
        _fail(str(fault), fault.exit_code)
    except Exception as fault:
        if debug:
            raise
        _fail(f"unexpected {type(fault).__name__}: {fault} (a fault of sweep; --debug shows where)", 1)


def _quiet() -> None:
    """Keep the libraries' own bars and warnings off the terminal."""
    import logging
    import os
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)


def _fail(text: str, code: int) -> None:
    print(f"error: {text}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _print(values: Any, to: Any = None) -> None:
    _write(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", to)


def _print_lines(lines: list[str], to: Any = None) -> None:
    _write("".join(f"{line}\n" for line in lines), to)


def _write(text: str, to: Any = None) -> None:
    (to or sys.stdout).write(text)


def _print_rich(content: "RenderableType") -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(content)
        return
    console = Console(highlight=False, width=160)
    with console.capture() as captured:
        console.print(content)
    _print_lines([line.rstrip() for line in captured.get().splitlines()])


@contextmanager
def _progress() -> Iterator[Any]:
    """Show what is being done and how long is left, on stderr where that is a terminal."""
    from sweep.retrieval.progress import Silent

    if not sys.stderr.isatty():
        yield Silent()
        return
    from sweep.present.progress import Bar

    with Bar() as bar:
        yield bar


if __name__ == "__main__":
    main()
