"""Judgments and runs as text files: one (query, document, label) or (query, document, score) a line.

UTF-8 with or without a byte order mark, LF or CRLF line ends, plain or gzip (told from the content). Columns are split
at tabs where a line has one, else at blanks. Every error is a ValueError that names file and line.
"""

__all__ = ["Qrels", "RunFile", "place", "read_lines", "read_qrels", "read_run"]

import gzip
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from typing import NamedTuple

from metrics.judgments import LabelScale

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEADERS = frozenset({"grade", "label", "rating", "rel", "relevance", "score"})
_BUFFER = 1 << 17  # bytes: a row of many documents would take several reads of the standard buffer
INTEGRAL = re.compile(r"([+-]?[0-9]{1,18})(?:\.0*)?")


class Qrels(NamedTuple):
    """{query id: {document id: label}} in file order, and how many rows only repeated one."""

    by_query: dict[str, dict[str, int]]
    repeats: int


class RunFile(NamedTuple):
    """{query id: {document id: score}} in file order, and how many rows named a document again."""

    by_query: dict[str, dict[str, float]]
    repeats: int


def place(path: Path, line: int) -> str:
    """Name a line of a file, the first being 1."""
    return f"{path}, line {line}"


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line with its end) for every line of `path` that is not blank, as it is read.

    Raises ValueError for a file that is missing, unreadable or a torn gzip file.
    """
    try:
        with BufferedReader(FileIO(path), _BUFFER) as raw:
            packed = raw.peek(2).startswith(GZIP_MAGIC)
            with gzip.open(raw) if packed else raw as lines:
                for number, line in enumerate(lines, start=1):
                    if number == 1:
                        line = line.removeprefix(BYTE_ORDER_MARK)
                    if line and not line.isspace():
                        yield number, line
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file ({error}); copy or download it again") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None


def decoded(path: Path, number: int, line: bytes) -> str:
    """Decode a line without its end; raises ValueError, with its place, for one that is not UTF-8."""
    try:
        return line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place(path, number)}: not UTF-8 ({error.reason}); save the file as UTF-8") from None


def read_qrels(path: Path, scale: LabelScale | None = None) -> Qrels:
    """Read labels: three columns (query, document, label), as BEIR writes them, or TREC's four (query, iteration,
    document, label). A first row that ends in a column name is a header; an identical repeat counts once.

    scale: default 0…4. Raises ValueError for a row of another width, a blank id, a label that is not an integer (3.0 is
    3) or is outside the scale, two labels for one pair, and a file without labels.
    """
    scale = scale or LabelScale()
    by_query: dict[str, dict[str, int]] = {}
    first_line: dict[tuple[str, str], int] = {}
    repeats = 0
    for line, query, document, value in _rows(path, QRELS_COLUMNS):
        label = _label(value, scale, f"{place(path, line)}: query {query!r}, document {document!r}")
        labels = by_query.setdefault(query, {})
        if document not in labels:
            labels[document], first_line[query, document] = label, line
        elif labels[document] == label:
            repeats += 1
        else:
            raise ValueError(
                f"{place(path, line)}: query {query!r}, document {document!r} has label {label} here and "
                f"{labels[document]} in line {first_line[query, document]}; keep one"
            )
    if not by_query:
        raise ValueError(f"{path}: no labels; rows of query id, document id and label are expected")
    return Qrels(by_query, repeats)


def read_run(path: Path) -> RunFile:
    """Read search results as trec_eval does: six columns (query, iteration, document, rank, score, tag).

    The order is that of the scores; ranks and tags are not looked at. A document that comes again keeps its best score.
    Raises ValueError for a row of another width, a blank id, a score that is not a number, and a file without results.
    """
    by_query: dict[str, dict[str, float]] = {}
    repeats = 0
    for line, query, document, value in _rows(path, RUN_COLUMNS):
        try:
            score = float(value)
        except ValueError:
            where = f"{place(path, line)}: query {query!r}, document {document!r}"
            raise ValueError(f"{where}: score {value!r} is not a number") from None
        scores = by_query.setdefault(query, {})
        if document in scores:
            repeats += 1
        scores[document] = better(score, scores[document]) if document in scores else score
    if not by_query:
        raise ValueError(f"{path}: no results; rows of query id, Q0, document id, rank, score and tag are expected")
    return RunFile(by_query, repeats)


def better(one: float, other: float) -> float:
    """Return the greater of two scores of one document; NaN is the least."""
    return one if one > other or other != other else other


QRELS_COLUMNS = {3: (1, 2), 4: (2, 3)}  # width → the columns of document and value; the query's is the first
RUN_COLUMNS = {6: (2, 4)}
_LAYOUTS = {
    3: "3 (query, document, label)",
    4: "4 (query, iteration, document, label)",
    6: "6 (query, iteration, document, rank, score, tag)",
}


def _rows(path: Path, columns: dict[int, tuple[int, int]]) -> Iterator[tuple[int, str, str, str]]:
    """Yield line number, query id, document id and value of every row; the first row sets the width."""
    width = 0
    for number, line in read_lines(path):
        row = decoded(path, number, line)
        cells = row.split("\t") if "\t" in row else row.split()
        if not cells:  # nothing but separators of Unicode
            continue
        if not width:
            width = len(cells)
            if cells[-1].strip().lower() in HEADERS:
                continue
        if len(cells) != width or width not in columns:
            wanted = [width] if width in columns else columns
            layouts = " or ".join(_LAYOUTS[count] if width not in columns else str(count) for count in wanted)
            raise ValueError(
                f"{place(path, number)}: {len(cells)} columns, expected {layouts}, split at tabs or blanks"
            )
        at, value = columns[width]
        query, document = cells[0], cells[at]
        if not query.strip() or not document.strip():
            raise ValueError(f"{place(path, number)}: blank {'document' if query.strip() else 'query'} id")
        yield number, query, document, cells[value].strip()


def _label(text: str, scale: LabelScale, pair: str) -> int:
    matched = INTEGRAL.fullmatch(text)
    if not matched:
        raise ValueError(f"{pair}: label {text!r} is not an integer")
    label = int(matched[1])
    if not scale.min <= label <= scale.max:
        raise ValueError(
            f"{pair}: label {label} is outside the scale {scale.min}…{scale.max}; "
            "correct it, or state the scale (a study's labels.min and labels.max; --label-min, --label-max; LabelScale)"
        )
    return label
