"""`sweep score`: a file of rows in, a file of result rows out, a summary at the end."""

__all__ = ["score_file", "summary_lines"]

import json
import math
import re
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from metrics.documents import Convention
from metrics.foundry import Aggregate, score_rows
from sweep.artifacts import replaced
from sweep.collection.records import read_json_lines
from sweep.errors import InputError


def score_file(
    rows: Path,
    output: Path | None,
    *,
    label_min: int,
    label_max: int,
    convention: Convention,
    thresholds: list[str],
) -> dict[str, Any]:
    """Write one JSON list of results a row to `output` (None: standard output) and return the summary.

    Raises InputError naming the file and what is wrong with which row, StorageError where `output` cannot be written.
    """
    if output is not None and output.resolve() == rows.resolve():
        raise InputError(f"{output}: the results would take the place of the rows; give -o another file")
    limits = dict(map(_threshold, thresholds))
    aggregate = Aggregate()
    lines = array("q")  # of the rows read so far: blank lines are no rows
    with _output(output) as out:
        try:
            scored = score_rows(
                _rows(rows, lines), label_min=label_min, label_max=label_max, thresholds=limits, convention=convention
            )
            for result in scored:
                aggregate.add(result)
                out.write(json.dumps(list(result.results), ensure_ascii=False, allow_nan=False) + "\n")
        except ValueError as fault:
            raise InputError(f"{rows}{_line(str(fault), lines)}: {fault}") from fault
    return {
        "rows": aggregate.rows,
        "left_out": aggregate.left_out,
        "means": aggregate.means,
        "pass_rates": aggregate.pass_rates,
    }


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Say the summary in lines for a terminal."""
    lines = [f"{'metric':<28}{'mean':>10}{'pass rate':>11}"] if summary["means"] else []
    for metric, mean in summary["means"].items():
        rate = summary["pass_rates"].get(metric)
        lines.append(f"{metric:<28}{mean:>10.4f}" + ("" if rate is None else f"{rate:>11.1%}"))
    lines.append(f"{summary['rows']} rows scored")
    for reason, numbers in summary["left_out"].items():
        named = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
        lines.append(f"{len(numbers)} left out: {reason} (rows {named})")
    return lines


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Open a temporary file that takes its place when all rows are written; standard output for None."""
    if path is None:
        yield sys.stdout
        return
    with replaced(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        yield out


def _rows(path: Path, lines: "array[int]") -> Iterator[dict[str, Any]]:
    for record in read_json_lines(Path("/dev/stdin") if str(path) == "-" else path):
        lines.append(record.line)
        yield record.fields


def _line(fault: str, lines: "array[int]") -> str:
    row = re.search(r"\brow (\d+)", fault)
    return f", line {lines[int(row[1]) - 1]}" if row else ""


def _threshold(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        if not equals or not math.isfinite(float(number)):
            raise ValueError
        return name, float(number)
    except ValueError:
        raise InputError(f"--threshold {text!r}: give METRIC=NUMBER, as ndcg@3=0.7") from None
