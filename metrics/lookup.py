"""The join: which judged documents stand where in the rankings. The one place where rankings and judgments meet.

By codes, a block of queries at a time is spread over a scratch table with one cell a document, which the rankings read.
By ids, each ranked id is looked up among the judged ids of its query, and only what is tied is compared as text.
"""

from collections.abc import Mapping
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metrics.hits import Hits
from metrics.judgments import Judgments, check_text
from metrics.rankings import check_score, descending

HOLE = np.iinfo(np.int16).min
"""Stands where a ranked document has no judgment; no label scale reaches it."""

_SCRATCH, _CELLS = 1 << 21, 1 << 16  # bytes of the table, ranked documents looked up at a time: both stay in the cache
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)

Run = Mapping[str, Mapping[str, float]]


class Retrieved(NamedTuple):
    """Judged documents of R rankings, and int64 (R,): how many documents each ranking holds."""

    found: Hits
    counts: NDArray[np.int64]


class Joined(NamedTuple):
    """Rankings, joined.

    unknown: queries with results that the judgments do not list, ascending. odd: bool (Q,), a query has a score that is
    not finite.
    """

    retrieved: Retrieved
    unknown: tuple[str, ...]
    odd: NDArray[np.bool_]


def by_codes(judgments: Judgments, items: NDArray[np.int32], depth: int | None = None) -> Retrieved:
    """Join rankings of document codes, (C, Q, K) best first with −1 at the end, as R = Q·C rankings, query by query.

    depth: how many ranks are looked at; default all. Raises ValueError for another number of rows than queries, and an
    item that is not a document code.
    """
    configurations, queries, _ = items.shape
    width = len(judgments.documents) + 1
    if queries != len(judgments.queries):
        raise ValueError(f"there are {len(judgments.queries)} queries but {queries} rankings; give one row a query")
    if items.size and items.max() >= width - 1:
        raise ValueError(f"item {items.max()} is ranked, but document codes end at {width - 2}")
    counts, items = lengths(items).T.ravel(), items[:, :, :depth].transpose(1, 0, 2)
    depth = items.shape[2]
    block = max(1, min(_SCRATCH // width, _CELLS // max(1, configurations * depth)))
    levels = judgments.levels.astype(np.min_scalar_type(judgments.scale.max - judgments.scale.min + 1))
    scratch, starts = np.zeros(block * width, levels.dtype), np.arange(block)[:, None, None] * width
    place = np.empty((min(block, queries), *items.shape[1:]), np.intp)
    read = np.empty(items.shape, levels.dtype)
    for start in range(0, queries, block):
        stop = min(start + block, queries)
        entries = slice(judgments.indptr[start], judgments.indptr[stop])
        here = judgments.cells[entries] - start * width
        scratch[here] = levels[entries]
        # padding, −1, reads the cell before the row's own: the spare last cell of a row, always 0
        at = np.add(items[start:stop], starts[: stop - start], out=place[: stop - start])
        scratch.take(at, mode="wrap", out=read[start:stop])
        scratch[here] = 0
    hit = read.reshape(len(counts), depth) != 0
    hits, found = np.count_nonzero(hit, axis=1), np.flatnonzero(hit)
    ranks = found - np.repeat(np.arange(len(hit)) * depth, hits)
    return Retrieved(Hits.of(hits, ranks, read.ravel().take(found)), counts)


def lengths(items: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the documents in lists (…, K), which −1 pads at the end: int64 (…)."""
    counts = np.full(items.shape[:-1], items.shape[-1], dtype=np.int64)
    if items.shape[-1]:
        short = np.nonzero(items[..., -1] < 0)
        counts[short] = np.count_nonzero(items[short] >= 0, axis=1)
    return counts


def by_ids(judgments: Judgments, run: Run) -> Joined:
    """Join a run, {query id: {document id: score}} in any order; a query that it lacks has an empty ranking.

    Raises ValueError for a score that is not a number, naming query and document, and for an id that is not text.
    """
    none: dict[str, float] = {}
    rows = [run.get(query, none) for query in judgments.queries]
    known = set(judgments.queries)
    unknown = tuple(sorted(query for query in run if query not in known))
    counts = np.fromiter(map(len, rows), np.int64, count=len(rows))
    total, ends, there = int(counts.sum()), np.cumsum(counts), np.arange(counts.max(initial=0)) < counts[:, None]
    scores = _scores(judgments.queries, rows, total)
    keys = _keys(scores, there)
    mixed = np.flatnonzero(np.any(keys[:, 1:] <= keys[:, :-1], axis=1, where=there[:, 1:]))  # not best first already
    ordered = np.sort(keys[mixed], axis=1)
    tied = mixed[np.any(ordered[:, 1:] == ordered[:, :-1], axis=1, where=there[mixed, 1:])]
    for row in tied.tolist():  # a place stands for an id once the ids are in order
        rows[row] = {document: rows[row][document] for document in sorted(rows[row])}
        scores[ends[row] - counts[row] : ends[row]] = list(rows[row].values())
    keys = _keys(scores, there) if tied.size else keys
    labels = (map(judged.get, row, repeat(HOLE)) for judged, row in zip(judgments.by_id, rows, strict=True))
    bottom = judgments.scale.min - 1
    levels = np.zeros(there.shape, np.int16)
    levels[there] = np.maximum(np.fromiter(chain.from_iterable(labels), np.int16, count=total), bottom) - bottom
    places = np.sort(keys[mixed].astype(np.uint64) << _HALF | np.arange(there.shape[1], dtype=np.uint64), axis=1)
    levels[mixed] = np.take_along_axis(levels[mixed], (places & _LOW).astype(np.intp), axis=1)
    hit = levels != 0
    found = Hits.of(np.count_nonzero(hit, axis=1), np.nonzero(hit)[1], levels[hit])
    odd = np.zeros(len(rows), np.bool_)
    odd[np.repeat(np.arange(len(rows)), counts)[~np.isfinite(scores)]] = True
    return Joined(Retrieved(found, counts), unknown, odd)


def _scores(queries: tuple[str, ...], rows: list[Mapping[str, float]], total: int) -> NDArray[np.float64]:
    """Return the scores of all rows, one after the other: float64 (total,)."""
    try:
        kinds = set(map(type, chain.from_iterable(row.values() for row in rows)))
        if kinds <= {float, int} and set(map(type, chain.from_iterable(rows))) <= {str}:
            return np.fromiter(chain.from_iterable(row.values() for row in rows), np.float64, count=total)
    except (TypeError, AttributeError, OverflowError):
        pass  # the fault is named below
    values = []
    for query, row in zip(queries, rows, strict=True):
        if not isinstance(row, Mapping):
            raise ValueError(f"query {query!r}: {{document id: score}} is needed, got {type(row).__name__}")
        check_text(row, "document")
        for document, score in row.items():
            try:
                values.append(check_score(score))
            except ValueError as error:
                raise ValueError(f"query {query!r}, document {document!r}: {error}") from None
    return np.array(values, dtype=np.float64)


def _keys(scores: NDArray[np.float64], there: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Lay out what ascends as the scores descend, the padding last: uint32 (Q, K)."""
    keys = np.full(there.shape, np.iinfo(np.uint32).max, np.uint32)
    keys[there] = descending(scores)
    return keys
