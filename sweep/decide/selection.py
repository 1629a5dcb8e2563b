"""From a score table and costs to one recommended configuration, and how sure that is (DESIGN §6, steps 1 to 5)."""

__all__ = ["Selection", "main_effects", "select"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metrics.inference import (
    EQUAL,
    NonInferior,
    confidence_set,
    non_inferior,
    smooth,
)
from sweep.errors import InputError, NothingFeasibleError, nearest
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import PARAMETERS

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The answer. Configurations are named by their index in what `select` was given; arrays are (C,).

    recommended is the cheapest of good_enough; argmax has the greatest plain mean; may_be_best is the confidence set of
    the best. means are plain means; estimates are the smoothed ones, and loss_bounds what each loses at most against
    the greatest estimate (simultaneously, at the level asked for): both nan where not feasible. weight, 0…1, is the
    share of what the swept settings' main effects leave unexplained that was kept. more_queries is about how many
    more judged queries would let `promising` qualify, the cheapest of those cheaper than the recommended whose
    estimated loss is at most half the tolerance; both are None where there is none.
    """

    recommended: int
    argmax: int
    may_be_best: tuple[int, ...]
    good_enough: tuple[int, ...]
    means: Floats
    estimates: Floats
    loss_bounds: Floats
    weight: float
    promising: int | None
    more_queries: int | None
    reason: str

    @property
    def clear(self) -> bool:
        """Whether one configuration alone may be the best."""
        return len(self.may_be_best) == 1


def main_effects(configurations: Sequence[Configuration]) -> Floats:
    """The additive model of the swept settings, float64 (C, p): an intercept, and a column for each value but one.

    None counts as a value: a parameter that exists under a condition only has its effects within that condition, and
    the column that tells whether it exists is in the span. Columns may depend on each other.
    """
    columns = [np.ones(len(configurations))]
    settings = [c.settings for c in configurations]
    for name in dict.fromkeys(name for each in settings for name in each):
        of_each = [each.get(name) for each in settings]
        for value in sorted(set(of_each), key=_known_first)[1:]:
            columns.append(np.array([v == value for v in of_each], dtype=np.float64))
    return np.column_stack(columns)


def select(
    configurations: Sequence[Configuration],
    table: Floats,
    costs: Mapping[str, Floats],
    feasible: Mask,
    *,
    cost_order: Sequence[str],
    tolerance: float,
    violated: Mapping[str, Mask] | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> Selection:
    """Choose from C configurations with scores `table` (C, Q), costs (each (C,), less is better) and `feasible` (C,).

    The choice depends on the set of configurations, not on their order: equal costs go to the better estimate, equal
    estimates (to 1e-6) to fewer results, then the smaller index, then the smaller settings in declared order.
    `violated` maps each constraint, as the user wrote it, to the configurations that break it, for the message only.

    Raises NothingFeasibleError naming the constraint that excludes most, InputError for an unknown or non-finite cost
    or a negative tolerance, ValueError for scores that are not finite.
    """
    _check(costs, feasible, cost_order, tolerance)
    if not feasible.any():
        raise NothingFeasibleError(_why_nothing(len(configurations), violated or {}))
    index_bytes = costs.get("index_bytes", np.zeros(len(configurations)))
    order = [int(i) for i in np.flatnonzero(feasible)]
    order.sort(key=lambda i: _canonical(configurations[i], float(index_bytes[i])))
    rows = np.ascontiguousarray(table[order])
    rng = np.random.default_rng(seed)
    estimates, smoother = smooth(rows, main_effects([configurations[i] for i in order]))
    best = confidence_set(rows, rng, level=level)
    shown = non_inferior(rows, smoother, tolerance, rng, level=level)

    prices = [tuple(float(np.round(costs[name][i], 6)) for name in cost_order) for i in order]
    ranks = [(*price, -round(float(e), 6)) for price, e in zip(prices, estimates, strict=True)]
    chosen = min(np.flatnonzero(shown.members), key=ranks.__getitem__)  # the first of equals: canonical order
    cheaper = [i for i in range(len(order)) if prices[i] < prices[chosen] and shown.loss[i] <= tolerance / 2 + EQUAL]
    promising = min(cheaper, key=ranks.__getitem__) if cheaper else None
    more = None if promising is None else _more_queries(shown, promising, tolerance, table.shape[1])
    means = table.mean(axis=1)
    recommended = order[chosen]
    return Selection(
        recommended=recommended,
        argmax=order[np.flatnonzero(means[order] >= means[order].max() - EQUAL)[0]],
        may_be_best=tuple(sorted(order[r] for r in np.flatnonzero(best))),
        good_enough=tuple(sorted(order[r] for r in np.flatnonzero(shown.members))),
        means=means,
        estimates=_spread(estimates, order, len(configurations)),
        loss_bounds=_spread(shown.bound, order, len(configurations)),
        weight=smoother.weight,
        promising=None if promising is None else order[promising],
        more_queries=more,
        reason=_reason(shown, tolerance, None if promising is None else configurations[order[promising]], more),
    )


def _canonical(configuration: Configuration, index_bytes: float) -> tuple[Any, ...]:
    settings = configuration.settings
    names = (*PARAMETERS, *sorted(settings.keys() - PARAMETERS.keys()))
    return configuration.top_k, index_bytes, [_known_first(settings.get(n)) for n in names]


def _known_first(value: Any) -> tuple[Any, ...]:
    """A sort key for the values of one parameter, of which some are None."""
    return (1,) if value is None else (0, type(value).__name__, value)


def _spread(values: Floats, order: list[int], size: int) -> Floats:
    full = np.full(size, np.nan)
    full[order] = values
    return full


def _more_queries(shown: NonInferior, row: int, tolerance: float, n: int) -> int | None:
    """By the square-root law: the bound meets the tolerance once the error is down to (tolerance − loss) / critical."""
    room = tolerance - float(shown.loss[row])
    if n == 1 or room <= 0:
        return None
    return max(1, ceil(n * (shown.critical * float(shown.error[row]) / room) ** 2) - n)


def _reason(shown: NonInferior, tolerance: float, promising: Configuration | None, more: int | None) -> str:
    good = int(shown.members.sum())
    if len(shown.members) == 1:
        return "the only feasible configuration"
    text = f"cheapest of {good} that are shown to lose at most {tolerance:g} against the greatest estimate"
    if good == 1:
        text = f"the greatest estimate; no other is shown to lose at most {tolerance:g} against it"
    if promising is None:
        return text
    if more is None:
        return f"{text}: these queries are too few to tell whether the cheaper {promising.id} is"
    return (
        f"{text}: about {more} more {'query' if more == 1 else 'queries'} would let the cheaper {promising.id} qualify"
    )


def _why_nothing(total: int, violated: Mapping[str, Mask]) -> str:
    counts = {name: int(broken.sum()) for name, broken in violated.items()}
    if not any(counts.values()):
        return f"none of {total} configurations is complete: see the failed trials"
    most = max(counts, key=counts.__getitem__)
    return (
        f"none of {total} configurations is feasible: the constraint {most!r} excludes {counts[most]}; "
        "loosen it or widen the space"
    )


def _check(costs: Mapping[str, Floats], feasible: Mask, cost_order: Sequence[str], tolerance: float) -> None:
    if not tolerance >= 0:
        raise InputError(f"tolerance: {tolerance} is not allowed; allowed: a number from 0")
    for name in cost_order:
        if name not in costs:
            raise InputError(f"cost: {name!r} was not measured{nearest(name, costs)}; allowed: {', '.join(costs)}")
        if not np.isfinite(costs[name][feasible]).all():
            row = int(np.flatnonzero(feasible & ~np.isfinite(costs[name]))[0])
            raise InputError(
                f"cost: {name} of configuration {row} is {costs[name][row]}; measure it or mark it not feasible"
            )
