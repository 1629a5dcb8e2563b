"""Measures of ranked documents, as arithmetic on labels.

Symbols
    Q, K      queries; depth of the rankings                 r   rank, from 1
    l, x      a label; x = l − min, its height above the bottom of the scale
    level     l − min + 1, and 0 for a document without a judgment and for padding: an index into a weight table
    C         cutoffs, ascending; every measure returns float64 (C, Q), one row a cutoff

Arrays are rank-major, (K, Q): a measure is a loop over ranks that carries one running value a query and notes it at
each cutoff, so one pass gives every cutoff. What a label is worth is a table with one weight a level, so the two
conventions (`Weights`) differ in tables and not in code. A ratio whose denominator is 0 is 0, never NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import log2
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metrics.judgments import Judgments, LabelScale

HOLE = np.iinfo(np.int16).min
"""Stands in a label matrix where a place holds no judged document."""

_CELLS = 1 << 16  # float64 values in one block of ranks: stays in the cache

Convention = Literal["scaled", "foundry"]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """What each level is worth: six float64 tables of max − min + 2 entries, the first for no judgment.

    gain: ndcg. linear: ndcg_linear. percent: xdcg. fidelity: fidelity. label: max_relevance. relevant: 1 or 0.
    """

    gain: Float
    linear: Float
    percent: Float
    fidelity: Float
    label: Float
    relevant: Float

    @classmethod
    def of(cls, scale: LabelScale, relevant_from: int, convention: Convention) -> "Weights":
        """Make the tables of one convention.

        "scaled" measures a label by its height above the scale's minimum. "foundry" takes raw labels, as
        azure-ai-evaluation's DocumentRetrievalEvaluator does; on a scale that starts below 0 there is no sound reading
        of that, and the scaled tables are used. Raises ValueError for another convention.
        """
        if convention not in ("scaled", "foundry"):
            raise ValueError(f"convention must be 'scaled' or 'foundry', got {convention!r}")
        raw = convention == "foundry" and scale.min >= 0
        labels = np.arange(scale.min, scale.max + 1)
        x = labels if raw else labels - scale.min

        def table(weights: NDArray[Any], unjudged: float = 0.0) -> Float:
            return np.concatenate([[unjudged], weights], dtype=np.float64)

        return cls(
            gain=table(np.ldexp(1.0, x) - 1),
            linear=table(x),
            percent=table(25.0 * x if raw else 100.0 * x / (scale.max - scale.min)),
            fidelity=table(np.where(labels > scale.min, np.ldexp(1.0, x + 1) - 1, 0.0)),
            label=table(labels, 0.0 if raw else scale.min),
            relevant=table(labels >= relevant_from),
        )


@dataclass(frozen=True, eq=False)
class LabelTable:
    """What the measures read: the retrieved and the judged levels of every query.

    levels: intp (K, Q), rank-major. holes: bool (K, Q), retrieved without a judgment. counts: int64 (Q,), retrieved.
    judged_levels, judged_rows: intp (n,), level and query of each judgment, by query and then best first.
    """

    weights: Weights
    levels: NDArray[np.intp]
    holes: NDArray[np.bool_]
    counts: NDArray[np.int64]
    judged_levels: NDArray[np.intp]
    judged_rows: NDArray[np.intp]

    @classmethod
    def of(
        cls,
        labels: NDArray[np.int16],
        counts: NDArray[np.int64],
        judgments: Judgments,
        convention: Convention = "scaled",
        hole_label: int | None = None,
    ) -> "LabelTable":
        """Build from a label matrix int16 (Q, K), the lengths of its rows int64 (Q,), and all judgments.

        hole_label: count each retrieved hole as a document judged with this label, in the ideal ranking too.
        Raises ValueError for a hole_label outside the scale.
        """
        scale = judgments.scale
        if hole_label is not None and not scale.min <= hole_label <= scale.max:
            raise ValueError(f"hole_label must be within {scale.min}…{scale.max}, got {hole_label}")
        columns = np.ascontiguousarray(labels.T)
        levels = np.maximum(columns.astype(np.intp) - (scale.min - 1), 0)
        holes = (columns == HOLE) & (np.arange(len(columns))[:, None] < counts)
        judged_rows, judged_levels = judgments.rows, judgments.labels.astype(np.int64) - (scale.min - 1)
        if hole_label is not None:
            level = hole_label - scale.min + 1
            levels[holes] = level
            extra = np.repeat(np.arange(len(counts)), holes.sum(axis=0))
            judged_rows = np.concatenate([judged_rows, extra])
            judged_levels = np.concatenate([judged_levels, np.full(len(extra), level)])
        top = scale.max - scale.min + 1
        order = np.sort(judged_rows * (top + 1) + (top - judged_levels))
        weights = Weights.of(scale, judgments.relevant_from, convention)
        return cls(weights, levels, holes, counts, top - order % (top + 1), order // (top + 1))

    @property
    def queries(self) -> int:
        """Number of queries, Q."""
        return len(self.counts)

    @cached_property
    def judged(self) -> NDArray[np.int64]:
        """Judged documents of each query: int64 (Q,)."""
        return np.bincount(self.judged_rows, minlength=self.queries)

    @cached_property
    def depth(self) -> int:
        """The cutoff that leaves nothing out, of the retrieved or of the judged documents; at least 1."""
        return max(1, len(self.levels), int(self.judged.max(initial=0)))

    def ideal(self, depth: int) -> NDArray[np.intp]:
        """Return the levels of the best possible ranking of all judged documents: intp (depth, Q)."""
        depth = min(depth, int(self.judged.max(initial=0)))
        ranks = np.arange(depth)[:, None]
        starts = np.cumsum(self.judged) - self.judged
        at = np.minimum(starts + ranks, max(len(self.judged_levels) - 1, 0))
        return (
            np.where(ranks < self.judged, self.judged_levels[at], 0) if depth else np.zeros((0, self.queries), np.intp)
        )

    def total(self, weights: Float) -> Float:
        """Sum a weight over all judged documents of each query: float64 (Q,)."""
        return np.bincount(self.judged_rows, weights[self.judged_levels], minlength=self.queries).astype(np.float64)


def ndcg(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Normalised discounted cumulative gain, gain 2^x − 1, discount log2(r + 1); 0…1.

    Burges et al., "Learning to Rank using Gradient Descent", ICML 2005. The ideal is over all judged documents.
    """
    return _normalised(table, cutoffs, table.weights.gain)


def ndcg_linear(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """NDCG with gain x, 0…1: trec_eval's ndcg_cut. Järvelin and Kekäläinen, TOIS 20(4), 2002, discount log2(r + 1)."""
    return _normalised(table, cutoffs, table.weights.linear)


def xdcg(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """How good the first k are in themselves, 0…100: Σ x·0.6^(r−1), as a share of the most that k ranks can give."""
    decay = np.array([0.6**r for r in range(max(cutoffs))])
    whole = np.array(list(accumulate(decay)))  # in rank order, as the published evaluator adds
    found = _running(decay[:, None] * table.weights.percent, table.levels, cutoffs)
    return _ratio(found, whole[np.asarray(cutoffs) - 1][:, None])


def fidelity(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Share of the judged documents' weight, 2^(x+1) − 1 above the minimum label, that was retrieved; 0…1."""
    weights = table.weights.fidelity
    return _ratio(_running(weights[None], table.levels, cutoffs), table.total(weights))


def max_relevance(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Greatest label in the first k; the scale's minimum (foundry convention: 0) where none is judged. min…max."""
    return _running(table.weights.label[None], table.levels, cutoffs, np.maximum)


def holes(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Retrieved documents without a judgment, a count. Lower is better."""
    return _running(np.array([[0.0, 1.0]]), table.holes.view(np.uint8), cutoffs)


def holes_ratio(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Holes as a share of the retrieved documents, 0…1; 0 where nothing is retrieved. Lower is better."""
    retrieved = np.minimum(table.counts, np.asarray(cutoffs)[:, None])
    return _ratio(holes(table, cutoffs), retrieved)


def recall(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Share of the relevant documents found, 0…1. trec_eval's recall."""
    relevant = table.weights.relevant
    return _ratio(_running(relevant[None], table.levels, cutoffs), table.total(relevant))


def precision(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Relevant documents among the first k, divided by k however few came back; 0…1. trec_eval's P."""
    return _ratio(_running(table.weights.relevant[None], table.levels, cutoffs), np.asarray(cutoffs)[:, None])


def hit(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """1 where the first k hold a relevant document, else 0. trec_eval's success."""
    return _running(table.weights.relevant[None], table.levels, cutoffs, np.maximum)


def mrr(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """1 / rank of the first relevant document, 0 where the first k hold none; 0…1. trec_eval's recip_rank."""
    ranks = np.arange(1, max(cutoffs) + 1)[:, None]
    return _running(table.weights.relevant / ranks, table.levels, cutoffs, np.maximum)  # the first is the largest


def average_precision(table: LabelTable, cutoffs: Sequence[int]) -> Float:
    """Precision at each relevant document found, summed, divided by the number of relevant ones; 0…1.

    trec_eval's map and map_cut.
    """
    relevant = table.weights.relevant
    query, rank = np.nonzero(relevant.take(table.levels[: max(cutoffs)]).T)  # by query, then rank
    nth = np.arange(1, len(query) + 1) - np.searchsorted(query, query)
    at_hit = nth / (rank + 1)
    sums = [np.bincount(query, at_hit * (rank < cutoff), minlength=table.queries) for cutoff in cutoffs]
    return _ratio(np.stack(sums).astype(np.float64), table.total(relevant))


def _normalised(table: LabelTable, cutoffs: Sequence[int], gain: Float) -> Float:
    discount = np.array([log2(rank + 1) for rank in range(1, max(cutoffs) + 1)])
    discounted = gain / discount[:, None]
    return _ratio(_running(discounted, table.levels, cutoffs), _running(discounted, table.ideal(max(cutoffs)), cutoffs))


def _running(weights: Float, levels: NDArray[np.integer], cutoffs: Sequence[int], combine: np.ufunc = np.add) -> Float:
    """Combine each query's weights down the ranks and note the running value at each cutoff: float64 (C, Q).

    weights: (R, levels), one table a rank, or (1, levels), one for all. levels: integer (K, Q); K may be short of R.
    """
    queries = levels.shape[1]
    if queries == 1:  # NumPy sums a lone column pairwise; a query's value must not depend on the others
        return _running(weights, np.repeat(levels, 2, axis=1), cutoffs, combine)[:, :1]
    step = max(1, _CELLS // max(queries, 1))
    running, result, done = np.full(queries, weights[0, 0]), np.empty((len(cutoffs), queries)), 0
    for row, cutoff in enumerate(cutoffs):
        end = min(cutoff, len(levels))
        for start in range(done, end, step):
            block = levels[start : min(start + step, end)]
            tables = np.arange(start, start + len(block))[:, None] * weights.shape[1] if len(weights) > 1 else 0
            terms = weights.take(block + tables)
            combine(terms[0], running, out=terms[0])
            running = combine.reduce(terms, axis=0)
        result[row], done = running, end
    return result


def _ratio(part: Float, whole: NDArray[np.float64] | NDArray[np.int64]) -> Float:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
