"""Ranked chunks as the judged spans that they cover, so that every measure of ranked documents works on passages.

A span is found once, and the ideal ranking is over all spans of the query, whatever the chunking. Labels of chunks
(`chunk_labels`) have neither property: chunks that overlap would all be paid for the same span.
"""

import numpy as np
from numpy.typing import NDArray

from metrics.hits import Codes, ordinal
from metrics.judgments import Judgments
from metrics.lookup import HOLE
from metrics.rankings import Rankings
from metrics.spans import Chunks, Ints, Spans, check_codes, runs


def chunk_labels(spans: Spans, chunks: Chunks, rankings: Rankings, *, share: float = 0.5) -> NDArray[np.int16]:
    """Label each ranked chunk by the spans that it covers: int16 (Q, K).

    A chunk covers a span of its query when it holds at least `share` of the span's characters; it gets the greatest
    label among them, and `HOLE` where it covers none and in the padding. A span longer than chunk / share is covered by
    no chunk; the token measures know no such limit. For looking at results; to measure them use `passages`.

    Raises ValueError unless 0 < share ≤ 1, and for rankings and chunks as `evaluate_spans`.
    """
    labels = np.full(rankings.items.shape, HOLE, dtype=np.int16)
    place, span = _covered(spans, chunks, rankings, share)
    np.maximum.at(labels.reshape(-1), place, spans.label[span])
    return labels


def passages(spans: Spans, chunks: Chunks, rankings: Rankings, *, share: float = 0.5) -> tuple[Judgments, Rankings]:
    """Turn ranked chunks into ranked passages and spans into their judgments, for `evaluate` and all that takes both.

    A span stands at the place of the first chunk that covers it, as `chunk_labels` has it; the spans that one chunk
    brings follow each other by document, start and end, with its score. A chunk that covers only spans that were found
    before is dropped and the gap closes; one that covers none is a passage of its own, without a judgment. Cutoffs
    count passages: "recall@5" is over five of them, which one chunk may hold. To measure the first k chunks, give
    rankings.cut(k).

    A passage's id is "document start-end", both in ten digits, so the judgments name the same passages whatever the
    chunking; codes follow the ids and depend on the chunks. Equal ranges are one passage. Raises ValueError as
    `chunk_labels`.
    """
    place, span = _covered(spans, chunks, rankings, share)
    flat = rankings.items.ravel()
    bare = flat >= 0
    bare[place] = False
    alone = np.flatnonzero(bare)
    kept, nth = np.unique(flat[alone], return_inverse=True)
    ranges = ((s, c[kept]) for s, c in zip(_ranges(spans), _ranges(chunks), strict=True))
    ids, codes = _identify(spans.documents, *map(np.concatenate, ranges))
    of_spans, of_kept = codes[: len(spans.query)], codes[len(spans.query) :]

    at, item = np.concatenate([place, alone]), np.concatenate([of_spans[span], of_kept[nth]])
    order = np.argsort(at, kind="stable")
    at, item = at[order], item[order]
    row = at // max(1, rankings.items.shape[1])
    first = np.sort(np.unique(row * len(ids) + item, return_index=True)[1])
    at, item, row = at[first], item[first], row[first]
    column = ordinal(row)
    shape = (len(rankings.items), int(column.max(initial=-1)) + 1)
    items, scores = np.full(shape, -1, dtype=np.int32), np.full(shape, -np.inf, dtype=np.float32)
    items[row, column], scores[row, column] = item, rankings.scores.ravel()[at]
    columns = spans.query, of_spans, spans.label
    judgments = Judgments.from_arrays(spans.queries, ids, *columns, spans.scale, relevant_from=spans.relevant_from)
    return judgments, Rankings(items, scores)


def _ranges(of: Spans | Chunks) -> tuple[Ints, Ints, Ints]:
    return of.document, of.start, of.end


def _identify(documents: tuple[str, ...], document: Ints, start: Ints, end: Ints) -> tuple[list[str], Ints]:
    """Name the distinct ranges: their ids, ascending as text, and the code of each range among them, int32 (n,)."""
    distinct_ranges, nth = np.unique(np.stack([document, start, end]), axis=1, return_inverse=True)
    names = [f"{documents[d]} {s:010}-{e:010}" for d, s, e in distinct_ranges.T.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    codes = np.empty(len(names), np.int32)
    codes[order] = np.arange(len(names))
    return [names[at] for at in order], codes[nth.ravel()]


def _covered(spans: Spans, chunks: Chunks, rankings: Rankings, share: float) -> tuple[Codes, Codes]:
    """Pair ranked chunks with the spans of their query that they cover: intp (m,) each, ascending.

    The first is a chunk's place in the flat rankings, the second a span's place in `spans`.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    check_codes(spans, chunks, rankings)
    row, column = np.nonzero(rankings.items >= 0)
    chunk = rankings.items[row, column]
    width = len(spans.documents)
    of_span = spans.query.astype(np.int64) * width + spans.document
    wanted = row * width + chunks.document[chunk]
    low, high = np.searchsorted(of_span, wanted), np.searchsorted(of_span, wanted, side="right")
    nth, span = runs(low, high)
    chunk = chunk[nth]
    shared = np.minimum(chunks.end[chunk], spans.end[span]) - np.maximum(chunks.start[chunk], spans.start[span])
    # divided, not multiplied: 7 of 100 characters are the share 0.07, but 0.07 · 100 > 7
    enough = shared / (spans.end[span] - spans.start[span]) >= share
    return (row * rankings.items.shape[1] + column)[nth[enough]], span[enough]
