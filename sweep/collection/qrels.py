"""Relevance labels from a text file: (query, document, label) rows, checked one by one.

Three columns (query, document, label), as BEIR writes them, or TREC's four (query, iteration, document, label), split
at tabs where a line has one, else at blanks. A first row that ends in a column name is a header.
"""

__all__ = ["Labels", "read_labels"]

import re
from pathlib import Path
from typing import NamedTuple

from metrics.judgments import LabelScale
from sweep.collection.records import place, read_lines
from sweep.errors import CollectionError

HEADERS = frozenset({"grade", "label", "rating", "rel", "relevance", "score"})
INTEGRAL = re.compile(r"([+-]?[0-9]{1,18})(?:\.0*)?")


class Labels(NamedTuple):
    """The labels of a file, {query id: {document id: label}} in file order, and how many rows only repeated one."""

    by_query: dict[str, dict[str, int]]
    repeats: int


def read_labels(path: Path, scale: LabelScale) -> Labels:
    """Read the labels in `path`; an identical repeat counts once.

    Raises CollectionError, with file and line, for a row of another width, a blank id, a label that is not an integer
    (3.0 is 3) or is outside `scale`, two labels for one pair, and a file without labels.
    """
    by_query: dict[str, dict[str, int]] = {}
    first_line: dict[tuple[str, str], int] = {}
    repeats = 0
    width = 0
    for line, text in read_lines(path):
        cells = text.split("\t") if "\t" in text else text.split()
        if not width:
            width = len(cells)
            if cells[-1].strip().lower() in HEADERS:
                continue
        query, document, label = _row(cells, width, place(path, line), scale)
        labels = by_query.setdefault(query, {})
        if document not in labels:
            labels[document], first_line[query, document] = label, line
        elif labels[document] == label:
            repeats += 1
        else:
            raise CollectionError(
                f"{place(path, line)}: query {query!r}, document {document!r} has label {label} here and "
                f"{labels[document]} in line {first_line[query, document]}; keep one"
            )
    if not by_query:
        raise CollectionError(f"{path}: no labels; rows of query id, document id and label are expected")
    return Labels(by_query, repeats)


def _row(cells: list[str], width: int, where: str, scale: LabelScale) -> tuple[str, str, int]:
    if len(cells) != width or width not in (3, 4):
        wanted = width if width in (3, 4) else "3 (query, document, label) or 4 (query, iteration, document, label)"
        raise CollectionError(f"{where}: {len(cells)} columns, expected {wanted}, split at tabs or blanks")
    query, document, text = cells[0], cells[-2], cells[-1].strip()
    if not query.strip() or not document.strip():
        raise CollectionError(f"{where}: blank {'document' if query.strip() else 'query'} id")
    pair = f"{where}: query {query!r}, document {document!r}"
    matched = INTEGRAL.fullmatch(text)
    if not matched:
        raise CollectionError(f"{pair}: label {text!r} is not an integer")
    value = int(matched[1])
    if not scale.min <= value <= scale.max:
        raise CollectionError(
            f"{pair}: label {value} is outside the scale {scale.min}…{scale.max}; "
            "correct it, or set labels.min and labels.max"
        )
    return query, document, value
