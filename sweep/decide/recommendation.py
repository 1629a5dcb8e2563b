"""The outcomes of a study → what to ship, how sure that is, and what it costs, next to the baseline."""

__all__ = ["Line", "Recommendation", "recommend"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics import Judgments, Measure, Rankings, bounds
from metrics.inference import PairedDifference, mean_intervals, paired_difference
from sweep.decide.selection import Selection, select
from sweep.optimize.outcome import Outcome
from sweep.optimize.study_spec import QUANTITIES, StudySpec
from sweep.retrieval.configuration import Configuration

RUNNERS_UP = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One configuration as the answer shows it.

    scores: mean over the scored queries, holes counting as irrelevant. intervals: 95 % of the mean. hole_bounds: the
    least and greatest mean over all labels that the holes could have. Both for all measures of the recommended and the
    baseline, for the objective's of the others. costs: context_tokens and rerank_pairs (mean of a query), index_bytes,
    latency_ms.
    estimate: smoothed mean of the objective's measure.
    """

    configuration: Configuration
    scores: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    hole_bounds: Mapping[str, tuple[float, float]]
    costs: Mapping[str, float]
    estimate: float
    may_be_best: bool
    good_enough: bool
    feasible: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as values that JSON knows; None for what is not a number."""
        return {
            "id": self.configuration.id,
            "settings": self.configuration.settings,
            "scores": {n: _number(v) for n, v in self.scores.items()},
            "intervals": {n: [_number(x) for x in v] for n, v in self.intervals.items()},
            "hole_bounds": {n: list(v) for n, v in self.hole_bounds.items()},
            "costs": {n: _number(v) for n, v in self.costs.items()},
            "estimate": _number(self.estimate),
            "may_be_best": self.may_be_best,
            "good_enough": self.good_enough,
            "feasible": self.feasible,
        }


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of a study; `recommended` is the cheapest configuration that is shown to be good enough.

    differences: recommended − baseline on the same queries, for each measure; empty without a baseline. runners_up:
    the next best by estimate. scored, unjudged, without_relevant: queries that count, and ids of those that do not.
    """

    measure: Measure
    tolerance: float
    recommended: Line
    baseline: Line | None
    argmax: Line
    differences: Mapping[str, PairedDifference]
    runners_up: tuple[Line, ...]
    selection: Selection
    scored: int
    unjudged: tuple[str, ...]
    without_relevant: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as values that JSON knows."""
        s = self.selection
        return {
            "objective": {"maximize": str(self.measure), "tolerance": self.tolerance},
            "recommended": self.recommended.to_dict(),
            "reason": s.reason,
            "baseline": self.baseline.to_dict() if self.baseline else None,
            "difference_to_baseline": {n: _difference(d) for n, d in self.differences.items()},
            "argmax": self.argmax.to_dict(),
            "runners_up": [line.to_dict() for line in self.runners_up],
            "may_be_best": len(s.may_be_best),
            "good_enough": len(s.good_enough),
            "clear_winner": s.clear,
            "more_queries": s.more_queries,
            "queries": {
                "scored": self.scored,
                "without_judgments": list(self.unjudged),
                "without_relevant_document": list(self.without_relevant),
            },
        }


def recommend(spec: StudySpec, judgments: Judgments, outcomes: Sequence[Outcome], baseline: int) -> Recommendation:
    """Choose from the outcomes by the study's objective, constraints, tolerance and cost order.

    baseline: position in `outcomes`, −1 for none. Raises NothingFeasibleError.
    """
    scored = judgments.answerable
    measure = spec.objective.maximize
    table = np.array([o.scores[measure][scored] for o in outcomes]).reshape(len(outcomes), int(scored.sum()))
    costs = {name: np.array([o.quantity(name) for o in outcomes]) for name in QUANTITIES}
    violated = {
        f"{name} {limit}": np.array([limit.excess(o.value(name, scored)) > 0 for o in outcomes])
        for name, limit in spec.constraints.items()
    }
    feasible = ~np.any([np.zeros(len(outcomes), bool), *violated.values()], axis=0)
    selection = select(
        [o.configuration for o in outcomes],
        table,
        costs,
        feasible,
        cost_order=spec.cost,
        tolerance=spec.tolerance,
        violated=violated,
        seed=spec.seed,
    )

    others = np.argsort(-np.nan_to_num(selection.estimates, nan=-np.inf), kind="stable").tolist()
    runners = [i for i in others if feasible[i] and i != selection.recommended][:RUNNERS_UP]
    best = outcomes[selection.recommended]
    lines = _lines(outcomes, [selection.recommended, baseline, selection.argmax, *runners], selection, spec, judgments)
    return Recommendation(
        measure=measure,
        tolerance=spec.tolerance,
        recommended=lines[selection.recommended],
        baseline=lines.get(baseline),
        argmax=lines[selection.argmax],
        differences={
            str(m): paired_difference(v[scored], outcomes[baseline].scores[m][scored]) for m, v in best.scores.items()
        }
        if baseline >= 0
        else {},
        runners_up=tuple(lines[i] for i in runners),
        selection=selection,
        scored=int(scored.sum()),
        unjudged=tuple(q for q, has in zip(judgments.queries, judgments.judged, strict=True) if not has),
        without_relevant=tuple(
            q for q, has, ok in zip(judgments.queries, judgments.judged, scored, strict=True) if has and not ok
        ),
    )


def _lines(
    outcomes: Sequence[Outcome],
    wanted: Sequence[int],
    selection: Selection,
    spec: StudySpec,
    judgments: Judgments,
) -> dict[int, Line]:
    """Return the lines of the wanted outcomes (−1 is none), their intervals from the same draws of queries."""
    scored = judgments.answerable
    chosen = [i for i in dict.fromkeys(wanted) if i >= 0]
    measures = {i: spec.reported if i in wanted[:2] else (spec.objective.maximize,) for i in chosen}
    shown = [(i, m) for i in chosen for m in measures[i]]
    rows = np.array([outcomes[i].scores[m][scored] for i, m in shown])
    intervals = mean_intervals(rows, np.random.default_rng(spec.seed)).tolist()
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for (i, m), (low, high) in zip(shown, intervals, strict=True):
        found.setdefault(i, {})[str(m)] = (low, high)
    return {
        i: Line(
            configuration=outcomes[i].configuration,
            scores=outcomes[i].means(scored),
            intervals=found[i],
            hole_bounds=_hole_bounds(outcomes[i], judgments, measures[i], spec),
            costs={name: outcomes[i].quantity(name) for name in QUANTITIES},
            estimate=float(selection.estimates[i]),
            may_be_best=i in selection.may_be_best,
            good_enough=i in selection.good_enough,
            feasible=bool(np.isfinite(selection.estimates[i])),
        )
        for i in chosen
    }


def _hole_bounds(
    outcome: Outcome, judgments: Judgments, measures: Sequence[Measure], spec: StudySpec
) -> dict[str, tuple[float, float]]:
    """Mean over the scored queries of the least and of the greatest value of each measure."""
    ranked = Rankings(outcome.documents, np.zeros(outcome.documents.shape, np.float32))
    found, scored = bounds(judgments, ranked, measures, convention=spec.convention), judgments.answerable
    return {str(m): (float(low[scored].mean()), float(high[scored].mean())) for m, (low, high) in found.items()}


def _difference(d: PairedDifference) -> dict[str, Any]:
    mean, interval = _number(d.mean), [_number(d.low), _number(d.high)]
    return {"mean": mean, "interval": interval, "p": _number(d.p), "wins": d.wins, "ties": d.ties, "losses": d.losses}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
