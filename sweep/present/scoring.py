"""`sweep score`: results that a person already has in files, scored; rows as they are read, or a TREC run."""

__all__ = ["run_lines", "score_file", "score_run", "summary_lines"]

import math
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from metrics import Judgments, LabelScale, Measure, Scores, bounds, evaluate
from metrics.documents import Convention
from metrics.files import read_qrels, read_run
from metrics.foundry import Aggregate, score_rows
from sweep.artifacts import replaced
from sweep.collection.records import read_json_lines
from sweep.errors import InputError

NAMED = 5


def score_file(
    rows: Path,
    output: Path | None,
    *,
    scale: tuple[int, int],
    convention: Convention,
    thresholds: list[str],
    measures: list[str],
    data_mapping: list[str],
) -> dict[str, Any]:
    """Write one JSON list of results a row to `output` (None: standard output) and return the summary.

    Rows are read, scored and written in turn, so that memory does not grow with the file. Raises InputError naming the
    file and what is wrong with which row, StorageError where `output` cannot be written.
    """
    if output is not None and output.resolve() == rows.resolve():
        raise InputError(f"{output}: the results would take the place of the rows; give -o another file")
    limits = dict(_threshold(text) for text in thresholds)
    example = ("FIELD={{item.NAME}}", "retrieved_documents={{item.hits}}")
    mapping = dict(_pair(text, "--data-mapping", *example) for text in data_mapping)
    aggregate, lines = Aggregate(), _Lines()
    with _output(output) as out:
        try:
            for result in score_rows(
                lines.of(rows),
                ground_truth_label_min=scale[0],
                ground_truth_label_max=scale[1],
                thresholds=limits,
                convention=convention,
                measures=measures,
                data_mapping=mapping,
            ):
                aggregate.add(result)
                out.write(orjson.dumps(result.results, option=orjson.OPT_APPEND_NEWLINE))
        except ValueError as fault:
            name = "standard input" if str(rows) == "-" else rows
            raise InputError(f"{name}{lines.place(str(fault))}: {fault}") from fault
    return {
        "rows": aggregate.rows,
        "left_out": {reason: asdict(rows) for reason, rows in aggregate.left_out.items()},
        "means": aggregate.means,
        "pass_rates": aggregate.pass_rates,
    }


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Say the summary of rows in lines for a terminal."""
    lines = [f"{'metric':<28}{'mean':>10}{'pass rate':>11}"] if summary["means"] else []
    for metric, mean in summary["means"].items():
        rate = summary["pass_rates"].get(metric)
        lines.append(f"{metric:<28}{mean:>10.4f}" + ("" if rate is None else f"{rate:>11.1%}"))
    lines.append(f"{summary['rows']} rows scored")
    for reason, rows in summary["left_out"].items():
        lines.append(f"{rows['count']} left out: {reason} (rows {_some(rows['first'], rows['count'])})")
    return lines


def score_run(
    qrels: Path,
    run: Path,
    measures: list[str],
    *,
    scale: tuple[int, int],
    relevant_from: int | None,
    convention: Convention,
    hole_bounds: bool,
) -> dict[str, Any]:
    """Score a TREC run by a qrels file: means and the value of each scored query, and which queries are left out.

    hole_bounds: also the least and greatest mean over all labels that unjudged results could have. Raises InputError
    for files that cannot be read, unknown measures, and where no query can be scored.
    """
    try:
        wanted = list(dict.fromkeys(map(Measure.parse, measures)))
        labels = LabelScale(*scale)
        judgments = Judgments.from_dict(read_qrels(qrels, labels).by_query, labels, relevant_from=relevant_from)
        results, repeats = read_run(run)
        scores = evaluate(judgments, results, [*wanted, Measure("holes_ratio")], convention=convention)
        means = {str(measure): scores.mean(measure) for measure in wanted}
    except ValueError as fault:
        raise InputError(str(fault)) from fault
    found: dict[str, Any] = {"means": means}
    if hole_bounds:
        bound = bounds(judgments, results, wanted, convention=convention)
        found["hole_bounds"] = {
            str(m): [float(b.low[scores.scored].mean()), float(b.high[scores.scored].mean())] for m, b in bound.items()
        }
    return {
        **found,
        "scored": int(scores.scored.sum()),
        "holes_ratio": scores.mean("holes_ratio"),
        **_left_out(scores),
        "results_named_twice": repeats,
        "queries": _per_query(scores, wanted),
    }


def run_lines(found: Mapping[str, Any], *, per_query: bool) -> tuple[list[str], list[str]]:
    """Say the scores as trec_eval does, (measure, query or "all", value), and what to know about them."""
    lines = [
        _line(measure, query, value)
        for query, values in (found["queries"].items() if per_query else ())
        for measure, value in values.items()
    ]
    for measure, mean in found["means"].items():
        lines.append(_line(measure, "all", mean))
        if "hole_bounds" in found:
            ends = zip(("least", "greatest"), found["hole_bounds"][measure], strict=True)
            lines += [_line(f"{measure} {name}", "all", value) for name, value in ends]
    queries = "1 query" if found["scored"] == 1 else f"{found['scored']} queries"
    notes = [f"{queries} scored; mean share of unjudged results (holes): {found['holes_ratio']:.1%}"]
    said = {
        "without_results": "without results, counted as 0",
        "without_judgments": "without judgments, left out",
        "without_relevant_document": "without a relevant document, left out",
        "with_scores_not_finite": "with a score that is NaN or infinite, ranked last",
    }
    for key, what in said.items():
        if found[key]:
            notes.append(f"{len(found[key])} {what}: {_some(found[key], len(found[key]))}")
    if found["results_named_twice"]:
        notes.append(f"rows that name a document again: {found['results_named_twice']}; its best score counts")
    return lines, notes


def _left_out(scores: Scores) -> dict[str, list[str]]:
    return {
        "without_results": list(scores.without_results),
        "without_judgments": list(scores.unjudged),
        "without_relevant_document": list(scores.without_relevant),
        "with_scores_not_finite": list(scores.not_finite),
    }


def _per_query(scores: Scores, measures: list[Measure]) -> dict[str, dict[str, float]]:
    columns = {str(measure): scores.values[measure].tolist() for measure in measures}
    rows = [row for row, counts in enumerate(scores.scored) if counts]
    return {scores.queries[row]: {measure: column[row] for measure, column in columns.items()} for row in rows}


def _line(measure: str, query: str, value: float) -> str:
    return f"{measure:<22}\t{query}\t{value:.4f}"


def _some(names: list[Any], count: int) -> str:
    return ", ".join(map(str, names[:NAMED])) + (", …" if count > NAMED else "")


@contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    """Open a temporary file that takes its place when all rows are written; standard output for None."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with replaced(path) as temporary, temporary.open("wb") as out:
        yield out


class _Lines:
    """Rows of a file, and the line of each: blank lines are no rows."""

    def __init__(self) -> None:
        self._rows = [0]  # the first row, and the lines skipped before it, wherever lines were skipped
        self._skipped = [0]

    def of(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the rows as they are read; "-" is standard input."""
        for row, record in enumerate(read_json_lines(Path("/dev/stdin") if str(path) == "-" else path), start=1):
            if record.line - row > self._skipped[-1]:
                self._rows.append(row)
                self._skipped.append(record.line - row)
            yield record.fields

    def place(self, fault: str) -> str:
        """Name the line of the row that a fault speaks of."""
        named = re.search(r"\brow (\d+)", fault)
        return f", line {int(named[1]) + self._skipped[bisect_right(self._rows, int(named[1])) - 1]}" if named else ""


def _pair(text: str, option: str, form: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{option} {text!r}: give {form}, as {example}")
    return name.strip(), value.strip()


def _threshold(text: str) -> tuple[str, float]:
    name, value = _pair(text, "--threshold", "METRIC=NUMBER", "ndcg@3=0.7")
    try:
        if math.isfinite(number := float(value)):
            return name, number
    except ValueError:
        pass
    raise InputError(f"--threshold {text!r}: {value!r} is not a number; give METRIC=NUMBER, as ndcg@3=0.7")
