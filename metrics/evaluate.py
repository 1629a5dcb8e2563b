"""Judgments × rankings × measures → scores: per query first, mean last."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metrics.documents import HOLE, Convention, Float, LabelTable
from metrics.judgments import Judgments
from metrics.measures import Measure
from metrics.rankings import Rankings

_SCRATCH = 1 << 20  # int16 cells, 2 MB: stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One value a query for each measure; every query of the judgments has its row, and none is NaN.

    values: float64 (Q,) each; 0 where nothing was retrieved (max_relevance: the bottom of its range).
    judged: bool (Q,), has a judgment. scored: bool (Q,), has a relevant judged document. Means are over the scored
    queries, which depend on the judgments alone and so are the same for every ranking.
    """

    queries: tuple[str, ...]
    values: dict[Measure, Float] = field(repr=False)
    judged: NDArray[np.bool_] = field(repr=False)
    scored: NDArray[np.bool_] = field(repr=False)

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
        """Ids of the queries without any judgment."""
        return self._named(~self.judged)

    @property
    def without_relevant(self) -> tuple[str, ...]:
        """Ids of the queries with judgments, none of them relevant."""
        return self._named(self.judged & ~self.scored)

    def _named(self, mask: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.queries[row] for row in np.flatnonzero(mask))


def evaluate(
    judgments: Judgments,
    rankings: Rankings,
    measures: Iterable[Measure | str],
    *,
    convention: Convention = "scaled",
    hole_label: int | None = None,
) -> Scores:
    """Score each query's ranking by each measure.

    rankings: documents (chunks are collapsed first), rows as judgments.queries. convention: see `documents.Weights`.
    hole_label: count every retrieved hole as judged with this label, in the ideal ranking too; a second evaluation with
    judgments.scale.max shows how far the holes can move a measure. The holes are still counted, and the scored queries
    stay the same. Raises ValueError as `label_matrix`, `Measure.parse`, `Weights.of` and `LabelTable.of`.
    """
    wanted = dict.fromkeys(_measure(measure) for measure in measures)
    table = LabelTable.of(label_matrix(judgments, rankings), rankings.counts, judgments, convention, hole_label)
    depth = {measure: measure.cutoff or table.depth for measure in wanted}
    found: dict[tuple[str, int], Float] = {}
    for name, definition in {measure.name: measure.definition for measure in wanted}.items():
        cutoffs = sorted({depth[measure] for measure in wanted if measure.name == name})
        found.update(zip([(name, cutoff) for cutoff in cutoffs], definition.function(table, cutoffs), strict=True))
    values = {measure: found[measure.name, depth[measure]] for measure in wanted}
    return Scores(judgments.queries, values, judgments.judged, judgments.answerable)


def label_matrix(judgments: Judgments, rankings: Rankings) -> NDArray[np.int16]:
    """Look up the label of each ranked document: int16 (Q, K), HOLE where it has none and in the padding.

    This is the only join. A block of queries at a time is spread over a scratch table with one cell a document; the
    rankings read from it; its cells are reset. Raises ValueError for another number of rows than queries, and an item
    that is not a document code.
    """
    queries, width = len(judgments.queries), len(judgments.documents) + 1
    if len(rankings.items) != queries:
        raise ValueError(f"there are {queries} queries but {len(rankings.items)} rankings; give one row a query")
    if rankings.items.max(initial=-1) >= width - 1:
        raise ValueError(f"item {rankings.items.max()} is ranked, but document codes end at {width - 2}")
    block = max(1, _SCRATCH // width)
    scratch = np.full(block * width, HOLE, dtype=np.int16)
    labels = np.empty(rankings.items.shape, dtype=np.int16)
    rows = judgments.rows
    for start in range(0, queries, block):
        stop = min(start + block, queries)
        entries = slice(judgments.indptr[start], judgments.indptr[stop])
        cells = (rows[entries] - start) * width + judgments.items[entries]
        scratch[cells] = judgments.labels[entries]
        # padding, −1, reads the cell before the row's own: the spare last cell of a row, always HOLE
        labels[start:stop] = scratch.take(rankings.items[start:stop] + np.arange(stop - start)[:, None] * width)
        scratch[cells] = HOLE
    return labels


def _measure(measure: Measure | str) -> Measure:
    return Measure.parse(measure) if isinstance(measure, str) else measure
