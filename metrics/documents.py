"""Measures of ranked documents, as arithmetic on labels.

Symbols
    Q, C, R   queries, configurations; R = Q·C ranked lists, query by query
    r, k      a rank, from 1; a cutoff
    l, x      a label; x = l − min, its height above the bottom of the scale
    level     l − min + 1, and 0 for a document without a judgment: an index into a weight table

A measure yields float64 (R,) at each of the ascending cutoffs, in one pass down the ranks; a caller that keeps an
array copies it. What a label is worth is a table with one weight a level, so the two conventions (`Weights`) differ in
tables and not in code. A ratio whose denominator is 0 is 0, never NaN.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import log2
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metrics.hits import Chosen, Float, Hits, Ideal
from metrics.judgments import LabelScale

PERSISTENCE = 0.8
"""Of rank-biased precision: how likely the reader goes on to the next result."""

UNCUT = 1 << 62
"""The cutoff that leaves nothing out."""

Convention = Literal["scaled", "foundry"]
Values = Iterator[Float]
Cutoffs = Sequence[int]


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
    """What the measures read: the judged documents that were retrieved, and those that there are.

    found: hits of R lists. counts: int64 (R,), retrieved documents. ideal: the best rankings of Q queries.
    """

    weights: Weights
    found: Hits
    counts: NDArray[np.int64]
    ideal: Ideal

    @cached_property
    def condensed(self) -> "LabelTable":
        """The same without the holes: judged documents move up to fill the gaps.

        Sakai, "Alternatives to Bpref", SIGIR 2007.
        """
        found = Hits(self.found.indptr, self.found.nth.astype(np.int32), self.found.level)
        return replace(self, found=found)

    @cached_property
    def relevant(self) -> Chosen:
        """The relevant hits."""
        return self.found.from_level(int(np.argmax(self.weights.relevant > 0)))

    @cached_property
    def relevant_judged(self) -> Float:
        """How many relevant documents there are: float64 (Q,)."""
        return self.total(self.weights.relevant)

    def total(self, weights: Float) -> Float:
        """Sum a weight over all judged documents of each query: float64 (Q,)."""
        return self.ideal.sums(weights, [UNCUT])[0]


def ndcg(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Normalised discounted cumulative gain, gain 2^x − 1, discount log2(r + 1); 0…1.

    Burges et al., "Learning to Rank using Gradient Descent", ICML 2005. The ideal is over all judged documents.
    """
    return _normalised(table, cutoffs, table.weights.gain)


def ndcg_linear(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """NDCG with gain x, 0…1: trec_eval's ndcg_cut. Järvelin and Kekäläinen, TOIS 20(4), 2002, discount log2(r + 1)."""
    return _normalised(table, cutoffs, table.weights.linear)


def xdcg(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """How good the first k are in themselves, 0…100: Σ x·0.6^(r−1), as a share of the most that k ranks can give."""
    decay = np.array([0.6**r for r in range(table.found.depth)])  # Python's power: the published evaluator's bits
    most = list(np.array([*accumulate(0.6**r for r in range(100))])[:, None])  # further terms would not change a bit
    over = [most[min(cutoff, len(most)) - 1] for cutoff in cutoffs]
    return table.found.sums(decay[:, None] * table.weights.percent, cutoffs, over=over)


def fidelity(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Share of the judged documents' weight, 2^(x+1) − 1 above the minimum label, that was retrieved; 0…1."""
    weights = table.weights.fidelity
    return table.found.sums(weights, cutoffs, over=[table.total(weights)] * len(cutoffs))


def max_relevance(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Greatest label in the first k; the scale's minimum (foundry convention: 0) where none is judged. min…max."""
    return table.found.largest(table.weights.label, cutoffs, start=table.weights.label[0])


def holes(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Retrieved documents without a judgment, a count. Lower is better."""
    judged, counts = table.found.sums(np.ones_like(table.weights.gain), cutoffs), table.counts.astype(np.float64)
    return (np.minimum(counts, cutoff) - known for cutoff, known in zip(cutoffs, judged, strict=True))


def holes_ratio(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Holes as a share of the retrieved documents, 0…1; 0 where nothing is retrieved. Lower is better."""
    for cutoff, found in zip(cutoffs, holes(table, cutoffs), strict=True):
        yield found / np.clip(table.counts, 1, cutoff)


def recall(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Share of the relevant documents found, 0…1. trec_eval's recall."""
    return table.found.sums(table.weights.relevant, cutoffs, over=[table.relevant_judged] * len(cutoffs))


def precision(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Relevant documents among the first k, divided by k however few came back; 0…1. trec_eval's P."""
    sums = table.found.sums(table.weights.relevant, cutoffs)
    return (part / cutoff for cutoff, part in zip(cutoffs, sums, strict=True))


def hit(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """1 where the first k hold a relevant document, else 0. trec_eval's success."""
    return table.relevant.first.sums(table.weights.relevant, cutoffs)


def mrr(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """1 / rank of the first relevant document, 0 where the first k hold none; 0…1. trec_eval's recip_rank."""
    first = table.relevant.first
    return first.sums(table.weights.relevant / _ranks(first), cutoffs)


def average_precision(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Precision at each relevant document found, summed, divided by the number of relevant ones; 0…1.

    trec_eval's map and map_cut.
    """
    weights, times = table.weights.relevant / _ranks(table.found), table.relevant.counts
    return table.found.sums(weights, cutoffs, times, over=[table.relevant_judged] * len(cutoffs))


def rbp(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """Rank-biased precision with persistence p = 0.8: (1 − p) Σ p^(r−1) over the relevant among the first k; 0…1.

    Moffat and Zobel, TOIS 27(1), 2008.
    """
    return table.found.sums(_rank_bias(table) * table.weights.relevant, cutoffs)


def rbp_residual(table: LabelTable, cutoffs: Cutoffs) -> Values:
    """What rank-biased precision leaves open: the weight of the holes and of all ranks past the first k; 0…1.

    Whatever the labels of the documents there, RBP lies between rbp and rbp + rbp_residual. Lower is better.
    Source: as `rbp`.
    """
    sums = table.found.sums(_rank_bias(table) * np.ones_like(table.weights.gain), cutoffs)
    return (np.maximum(1 - known, 0) for known in sums)


def _rank_bias(table: LabelTable) -> Float:
    return np.array([[(1 - PERSISTENCE) * PERSISTENCE**r] for r in range(table.found.depth)])


def _normalised(table: LabelTable, cutoffs: Cutoffs, gain: Float) -> Values:
    found, ideal = (gain / discounts(hits.depth)[:, None] for hits in (table.found, table.ideal.hits))
    return table.found.sums(found, cutoffs, over=table.ideal.sums(ideal, cutoffs))


def _ranks(hits: Hits) -> NDArray[np.intp]:
    return np.arange(1, hits.depth + 1)[:, None]


def discounts(depth: int) -> Float:
    """Return log2(r + 1) for the ranks 1…depth; by the same function as the published evaluator, bit for bit."""
    return np.array([log2(rank + 1) for rank in range(1, depth + 1)])
