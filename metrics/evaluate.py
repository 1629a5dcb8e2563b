"""Judgments × rankings × measures → scores: per query first, mean last."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metrics.documents import UNCUT, Convention, LabelTable, Weights
from metrics.hits import Float
from metrics.inputs import Qrels, Results, judgments_of, results_of
from metrics.judgments import Judgments
from metrics.lookup import Joined, Retrieved, by_codes, by_ids
from metrics.measures import Measure
from metrics.rankings import Rankings

_CELLS = 1 << 20  # ranked documents scored at a time


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One value a query for each measure; every query of the judgments has its row, and none is NaN.

    values: float64 (Q,) each; 0 where nothing was retrieved (max_relevance: the bottom of its range).
    judged: bool (Q,), has a judgment. scored: bool (Q,), has a relevant judged document. Means are over the scored
    queries, which depend on the judgments alone and so are the same for every ranking. retrieved: bool (Q,), has a
    result. odd: bool (Q,), has a result whose score is not finite; such results are ranked last. unknown: queries that
    have results and are not among the judgments' queries, ascending.
    """

    queries: tuple[str, ...]
    values: dict[Measure, Float] = field(repr=False)
    judged: NDArray[np.bool_] = field(repr=False)
    scored: NDArray[np.bool_] = field(repr=False)
    retrieved: NDArray[np.bool_] = field(repr=False)
    odd: NDArray[np.bool_] = field(repr=False)
    unknown: tuple[str, ...] = field(default=(), repr=False)

    def mean(self, measure: Measure | str) -> float:
        """Return the mean over the scored queries.

        Raises ValueError for a measure that was not evaluated, and where no query has a relevant judged document.
        """
        wanted = _measure(measure)
        if wanted not in self.values:
            raise ValueError(f"{wanted} was not evaluated; there are {', '.join(map(str, self.values))}")
        if not self.scored.any():
            raise ValueError("no query has a relevant judged document, so there is no mean; check the labels")
        return float(self.values[wanted][self.scored].mean())

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Ids of the queries without any judgment: left out of means."""
        return self._named(~self.judged) + self.unknown

    @property
    def without_relevant(self) -> tuple[str, ...]:
        """Ids of the queries with judgments, none of them relevant: left out of means."""
        return self._named(self.judged & ~self.scored)

    @property
    def without_results(self) -> tuple[str, ...]:
        """Ids of the scored queries for which nothing was retrieved: they count as 0."""
        return self._named(self.scored & ~self.retrieved)

    @property
    def not_finite(self) -> tuple[str, ...]:
        """Ids of the queries with a result whose score is NaN or infinite."""
        return self._named(self.odd)

    def _named(self, mask: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.queries[row] for row in np.flatnonzero(mask))


def evaluate(
    judgments: Qrels,
    rankings: Results,
    measures: Iterable[Measure | str],
    *,
    convention: Convention = "scaled",
) -> Scores:
    """Score each query's ranking by each measure.

    judgments: `Judgments`, or {query id: {document id: label}}, a frame or a file with labels 0…4 (`judgments_of`).
    rankings: {query id: {document id: score}}, a frame or a file (`results_of`), or `Rankings` of document codes
    (chunks are collapsed first) with rows as judgments.queries. convention: see `documents.Weights`.
    Raises ValueError as these, `Measure.parse`, `Weights.of`, `by_codes` and `by_ids`.
    """
    known, wanted = judgments_of(judgments), distinct(measures)
    retrieved, unknown, odd = join(known, rankings, _reach(wanted))
    values = score(label_table(known, retrieved, convention), wanted)
    return Scores(known.queries, values, known.judged, known.answerable, retrieved.counts > 0, odd, unknown)


def evaluate_many(
    judgments: Judgments,
    rankings: NDArray[np.int32] | Sequence[Results],
    measures: Iterable[Measure | str],
    *,
    convention: Convention = "scaled",
) -> dict[Measure, Float]:
    """Score C configurations that were run on the same queries: float64 (C, Q) for each measure.

    rankings: document codes, int32 (C, Q, K), best first with −1 at the end, each document once a row; or a sequence of
    what `evaluate` takes. Worked on in blocks of configurations, so memory does not grow with C beyond the result.
    Means are over the scored queries: `values[:, judgments.answerable].mean(axis=1)`. Raises ValueError as `evaluate`.
    """
    wanted = distinct(measures)
    result = {measure: np.empty((len(rankings), len(judgments.queries))) for measure in wanted}
    done = 0
    for retrieved in _blocks(judgments, rankings, _reach(wanted)):
        stop = done + retrieved.found.lists // max(1, len(judgments.queries))
        for measure, values in score(label_table(judgments, retrieved, convention), wanted).items():
            result[measure][done:stop] = values.reshape(-1, stop - done).T
        done = stop
    return result


def label_table(judgments: Judgments, retrieved: Retrieved, convention: Convention = "scaled") -> LabelTable:
    """Put what was retrieved beside what was judged."""
    weights = Weights.of(judgments.scale, judgments.relevant_from, convention)
    return LabelTable(weights, retrieved.found, retrieved.counts, judgments.ideal)


def score(table: LabelTable, measures: Iterable[Measure]) -> dict[Measure, Float]:
    """Evaluate measures, each name once for all its cutoffs: float64 (R,) each."""
    cutoffs: dict[tuple[str, bool], set[int]] = {}
    for measure in measures:
        cutoffs.setdefault((measure.name, measure.condensed), set()).add(measure.cutoff or UNCUT)
    found: dict[tuple[str, bool, int], Float] = {}
    for measure in measures:
        name, condensed = measure.name, measure.condensed
        if (name, condensed, measure.cutoff or UNCUT) not in found:
            ascending = sorted(cutoffs[name, condensed])
            values = measure.definition.function(table.condensed if condensed else table, ascending)
            found.update(((name, condensed, k), v.copy()) for k, v in zip(ascending, values, strict=True))
    return {m: found[m.name, m.condensed, m.cutoff or UNCUT] for m in measures}


def join(judgments: Judgments, rankings: Results, depth: int | None = None) -> Joined:
    """Look up what is judged among the first `depth` of rankings of any form; None is all."""
    results = results_of(rankings)
    if not isinstance(results, Rankings):
        return by_ids(judgments, results)
    retrieved = by_codes(judgments, results.items[None], depth)
    odd = retrieved.counts > 0
    if results.items.shape[1]:  # scores that are not finite come last
        odd &= np.isneginf(results.scores[np.arange(len(odd)), np.maximum(retrieved.counts - 1, 0)])
    return Joined(retrieved, (), odd)


def _blocks(
    judgments: Judgments, rankings: NDArray[np.int32] | Sequence[Results], depth: int | None
) -> Iterator[Retrieved]:
    if isinstance(rankings, np.ndarray):
        if rankings.ndim != 3 or rankings.dtype.kind not in "iu":
            raise ValueError(f"document codes (C, Q, K) are needed, got {rankings.dtype} {rankings.shape}")
        cells = rankings.shape[1] * min(rankings.shape[2], depth or rankings.shape[2])
        step = max(1, _CELLS // max(1, cells))
        for start in range(0, len(rankings), step):
            yield by_codes(judgments, rankings[start : start + step], depth)
    else:
        for one in rankings:
            yield join(judgments, one, depth).retrieved


def _reach(measures: Iterable[Measure]) -> int | None:
    """Return the depth below which no measure looks; None where one looks at all that was retrieved."""
    cutoffs = [None if measure.condensed else measure.cutoff for measure in measures]
    return None if None in cutoffs else max((cutoff for cutoff in cutoffs if cutoff), default=1)


def distinct(measures: Iterable[Measure | str]) -> list[Measure]:
    """Parse measures and drop repeats."""
    return list(dict.fromkeys(map(_measure, measures)))


def _measure(measure: Measure | str) -> Measure:
    return Measure.parse(measure) if isinstance(measure, str) else measure
