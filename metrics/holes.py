"""What the holes leave open: the least and greatest value of a measure over all ways to fill them.

A filling gives each retrieved document without a judgment a label of the scale, as if it had been judged: in the
ranking and among all that is judged, from which ideal rankings and totals are made. That the holes stay as they are is
one more way, so the measure's own value always lies between its bounds. All bounds are exact:

- what does not depend on the ideal is least with all holes at the bottom of the scale, greatest with all at its top;
- recall and fidelity are greatest with the holes of the first k at the top and those below at the bottom, and least the
  other way round;
- map: among fillings with as many relevant holes the earliest are best and the latest worst; all numbers are tried;
- ndcg: fractional programming (Dinkelbach 1967, Management Science 13:492). For a guess q of the best ratio, the
  filling that is best for DCG − q·IDCG gives the next guess. Among fillings with the same labels the better ones stand
  first (or, for the least value, last), so that filling is found by how many holes get each label, level by level from
  the top. Holes below the first k matter only to the ideal, and no more than k of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metrics.documents import UNCUT, Convention, LabelTable, discounts
from metrics.evaluate import distinct, join, label_table, score
from metrics.hits import Codes, Float, Hits, Ideal
from metrics.inputs import Qrels, Results, judgments_of
from metrics.judgments import best_order
from metrics.measures import Measure

_CELLS = 1 << 20  # ranked documents worked on at a time
_EQUAL = 1e-15


class Bounds(NamedTuple):
    """The least and the greatest value of a measure: float64 (Q,) each."""

    low: Float
    high: Float


def bounds(
    judgments: Qrels, rankings: Results, measures: Iterable[Measure | str], *, convention: Convention = "scaled"
) -> dict[Measure, Bounds]:
    """Bound each measure for each query over all ways to fill the holes of its ranking.

    judged(m) is m once the holes are filled.
    Arguments and errors as in `evaluate`.
    """
    known, wanted = judgments_of(judgments), distinct(measures)
    table = label_table(known, join(known, rankings).retrieved, convention)
    found = {measure: Bounds(values.copy(), values.copy()) for measure, values in score(table, wanted).items()}
    step = max(1, _CELLS // max(1, int(table.counts.max(initial=0))))
    for start in range(0, len(table.counts), step):
        lists = _Lists.of(table, start, min(start + step, len(table.counts)))
        for measure, (low, high) in found.items():
            rows = slice(start, start + len(lists.holes))
            least, greatest = _BOUND.get(measure.name, _monotone)(lists, measure, measure.cutoff or UNCUT)
            low[rows], high[rows] = np.minimum(low[rows], least), np.maximum(high[rows], greatest)
    return found


@dataclass(frozen=True, eq=False)
class _Lists:
    """Some queries: level intp (R, K), 0 where unjudged; holes bool (R, K)."""

    table: LabelTable
    level: Codes
    holes: NDArray[np.bool_]

    @classmethod
    def of(cls, table: LabelTable, start: int, stop: int) -> "_Lists":
        """Take the queries start…stop−1 out of a table."""
        counts = table.counts[start:stop]
        found, ideal = table.found.part(start, stop), Ideal(table.ideal.hits.part(start, stop))
        here = replace(table, found=found, counts=counts, ideal=ideal)
        level = np.zeros((stop - start, int(counts.max(initial=0))), np.intp)
        level[found.row, found.rank] = found.level
        return cls(here, level, (np.arange(level.shape[1]) < counts[:, None]) & (level == 0))

    def first(self, cutoff: int) -> "_Lists":
        """Leave out what is below a cutoff, for measures without an ideal."""
        return replace(self, level=self.level[:, :cutoff], holes=self.holes[:, :cutoff])

    @property
    def top(self) -> int:
        """The level of the greatest label."""
        return len(self.table.weights.gain) - 1

    def filled(self, levels: Codes | int) -> LabelTable:
        """Judge the holes: levels intp (R, K), or one for all."""
        dense = np.where(self.holes, levels, self.level)
        row, rank = np.nonzero(dense)
        ideal, hole = self.table.ideal.hits, np.nonzero(self.holes)
        return replace(
            self.table,
            found=Hits.of(np.bincount(row, minlength=len(dense)), rank, dense[row, rank]),
            ideal=best_order(
                np.concatenate([ideal.row, hole[0]]), np.concatenate([ideal.level, dense[hole]]), len(dense)
            ),
        )

    def value(self, measure: Measure, cutoff: int, levels: Codes | int) -> Float:
        """Evaluate a measure with the holes filled."""
        return next(measure.definition.function(self.filled(levels), [cutoff])).copy()


def _monotone(lists: _Lists, measure: Measure, cutoff: int) -> Bounds:
    lists = lists.first(cutoff)
    return Bounds(lists.value(measure, cutoff, 1), lists.value(measure, cutoff, lists.top))


def _share(lists: _Lists, measure: Measure, cutoff: int) -> Bounds:
    first = np.arange(lists.level.shape[1]) < cutoff
    return Bounds(
        lists.value(measure, cutoff, np.where(first, 1, lists.top)),
        lists.value(measure, cutoff, np.where(first, lists.top, 1)),
    )


def _average_precision(lists: _Lists, _: Measure, cutoff: int) -> Bounds:
    depth = lists.level.shape[1]
    relevant = lists.table.weights.relevant[lists.level]
    share = np.where(np.arange(depth) < cutoff, 1 / np.arange(1, depth + 1), 0.0)
    before = np.cumsum(relevant, axis=1) - relevant
    weighed = relevant * share
    base = ((before + 1) * weighed).sum(axis=1, keepdims=True)
    after = weighed.sum(axis=1, keepdims=True) - np.cumsum(weighed, axis=1)
    holes, at = lists.holes, np.arange(1, int(lists.holes.sum(axis=1).max(initial=0)) + 1)
    earlier = np.cumsum(holes, axis=1)  # relevant holes up to and with each, the earliest ones being relevant
    later = (holes * share).sum(axis=1, keepdims=True) - np.cumsum(holes * share, axis=1)
    best = np.cumsum(_gather(holes, (before + earlier) * share + after), axis=1)
    worst = np.cumsum(_gather(holes[:, ::-1], ((before + 1) * share + after + later)[:, ::-1]), axis=1)
    whole = lists.table.relevant_judged[:, None]
    number = np.minimum(at, holes.sum(axis=1)[:, None])  # past a list's last hole nothing is added
    none = base / np.maximum(whole, 1)
    return Bounds(
        np.concatenate([none, (base + worst) / (whole + number)], axis=1).min(axis=1),
        np.concatenate([none, (base + best) / (whole + number)], axis=1).max(axis=1),
    )


def _gather(holes: NDArray[np.bool_], values: Float) -> Float:
    """Move the values at the holes of each row to its front, 0 after the last: float64 (R, most holes of a row)."""
    counts = holes.sum(axis=1)
    front = np.zeros((len(holes), int(counts.max(initial=0))))
    front[np.arange(front.shape[1]) < counts[:, None]] = values[holes]
    return front


def _gain(lists: _Lists, measure: Measure) -> Float:
    return lists.table.weights.gain if measure.name == "ndcg" else lists.table.weights.linear


def _ndcg(lists: _Lists, measure: Measure, cutoff: int) -> Bounds:
    gain, table = _gain(lists, measure), lists.table
    depth = lists.level.shape[1]
    discount = np.where(np.arange(depth) < cutoff, 1 / discounts(depth), 0.0)
    known = (gain[lists.level] * discount).sum(axis=1)
    below = np.cumsum(lists.holes[:, cutoff:], axis=1) if cutoff < depth else np.zeros((len(known), 0), np.intp)
    holes = lists.holes & np.concatenate([np.ones((len(known), depth - below.shape[1]), bool), below <= cutoff], axis=1)
    counts = holes.sum(axis=1)
    first = _from_zero(_gather(holes, np.broadcast_to(discount, holes.shape)))
    number = np.minimum(np.arange(first.shape[1]), counts[:, None])
    last = first[np.arange(len(first)), counts][:, None] - np.take_along_axis(first, counts[:, None] - number, axis=1)
    judged = np.zeros((len(counts), lists.top + 2), np.intp)
    np.add.at(judged, (table.ideal.hits.row, table.ideal.hits.level), 1)
    at_least = np.cumsum(judged[:, ::-1], axis=1)[:, ::-1]  # judged documents of a level or above
    places = int(at_least[:, 0].max(initial=0)) + first.shape[1]
    ideal = _from_zero(np.where(np.arange(places) < cutoff, 1 / discounts(places), 0.0)[None])[0]
    problem = _Fill(gain, known, counts, at_least, ideal)
    return Bounds(0.0 - problem.greatest(last, -1.0), problem.greatest(first, 1.0))  # 0, never −0


def _from_zero(values: Float) -> Float:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class _Fill:
    """The fillings of the holes of R rankings, for ndcg.

    gain: float64 (levels,). known: (R,), DCG of the judged. counts: int (R,), holes. at_least: int (R, levels + 1),
    judged documents of each level or above. ideal: float64 (places + 1,), discounts of the first ideal ranks, summed.
    """

    gain: Float
    known: Float
    counts: NDArray[np.integer]
    at_least: Codes
    ideal: Float

    def greatest(self, places: Float, sign: float) -> Float:
        """Return the greatest sign · DCG / IDCG: float64 (R,).

        places: float64 (R, H + 1), the discounts of the first 0…H holes summed, in the order in which they get labels
        from the top down.
        """
        ratio: Float = np.full(len(self.known), min(sign, 0.0))
        while True:
            dcg, idcg = self._best(places, sign, ratio)
            better = np.divide(sign * dcg, idcg, out=np.zeros_like(dcg), where=idcg > 0)
            done = not np.any(better > ratio + _EQUAL)
            ratio = np.maximum(ratio, better)
            if done:
                return ratio

    def _best(self, places: Float, sign: float, ratio: Float) -> tuple[Float, Float]:
        """Find the filling with the greatest sign · DCG − ratio · IDCG; return its DCG and IDCG, (R,) each."""
        ratio, rows, m = ratio[:, None], np.arange(len(ratio)), np.arange(places.shape[1])
        value, idcg = np.where(m == 0, 0.0, -np.inf) + 0 * places, np.zeros_like(places)
        for level in range(len(self.gain) - 1, 0, -1):  # state: how many holes have this level or a higher one
            gain = self.gain[level]
            above, upto = (self.ideal[self.at_least[:, at, None] + m] for at in (level + 1, level))
            start = value - gain * (sign * places - ratio * above)
            best = np.maximum.accumulate(start, axis=1)
            chosen = np.maximum.accumulate(np.where(start == best, m, 0), axis=1)
            value = best + gain * (sign * places - ratio * upto)
            idcg = gain * upto + np.take_along_axis(idcg - gain * above, chosen, axis=1)
        idcg = idcg[rows, self.counts]
        dcg: Float = (value[rows, self.counts] + ratio[:, 0] * idcg) * sign + self.known
        return dcg, idcg


_BOUND: dict[str, Callable[[_Lists, Measure, int], Bounds]] = {
    "fidelity": _share,
    "map": _average_precision,
    "ndcg": _ndcg,
    "ndcg_linear": _ndcg,
    "recall": _share,
}
