"""A study in Python: run it, load it, look at what it found.

import sweep

study = sweep.run("studies/quickstart.yaml")
print(study.best.settings)
study.trials().sort_values("ndcg@10")
"""

__all__ = ["StudyResults", "load", "run"]

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.decide.inert import inert
from sweep.decide.recommendation import Recommendation, recommend
from sweep.errors import InputError, NothingFeasibleError, nearest
from sweep.optimize.outcome import Outcome
from sweep.optimize.study import Completed, Study
from sweep.optimize.study_file import load_study, make_study
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.progress import Progress

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class StudyResults:
    """What a study has found so far."""

    study: Study
    completed: Completed

    @cached_property
    def recommendation(self) -> Recommendation:
        """What to ship and how sure that is. Raises NothingFeasibleError where no configuration is left to choose."""
        done = self.completed
        if not done.outcomes:
            reasons = "; ".join(f"{what}: {why}" for what, why in list(done.failures.items())[:3]) or "none was run"
            raise NothingFeasibleError(f"no configuration of study {self.study.spec.study!r} is finished ({reasons})")
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # small products: more threads cost more than they save, and sum in another order
            return recommend(self.study.spec, self.study.collection.judgments, done.outcomes, done.baseline)

    @property
    def best(self) -> Configuration:
        """The recommended configuration."""
        return self.recommendation.recommended.configuration

    def outcome(self, name: str) -> Outcome:
        """Return the outcome of "best", "baseline" or a configuration's id. Raises InputError for another name."""
        if name == "best":
            name = self.best.id
        if name == "baseline":
            name = self.study.baseline.id
        known = {o.configuration.id: o for o in self.completed.outcomes}
        if name not in known:
            cure = "`sweep run STUDY --json` and `StudyResults.trials()` list them"
            raise InputError(
                f"configuration {name!r} is not in this study{nearest(name, ('best', 'baseline', *known))}; {cure}"
            )
        return known[name]

    def trials(self) -> "pd.DataFrame":
        """Return a row a configuration: its settings, mean scores over the scored queries, and costs."""
        import pandas as pd

        scored = self.study.collection.judgments.answerable
        rows = [
            {
                **o.configuration.settings,
                **o.means(scored),
                "context_tokens": o.quantity("context_tokens"),
                "latency_ms": o.latency_ms,
                "index_bytes": o.index_bytes,
                "rerank_pairs": o.rerank_pairs,
                "ann_recall": o.ann_recall,
                "pool_recall": float(o.pool_recall[scored].mean()) if o.pool_recall.size else None,
            }
            for o in self.completed.outcomes
        ]
        return pd.DataFrame(rows, index=pd.Index([o.configuration.id for o in self.completed.outcomes], name="id"))

    @cached_property
    def inert(self) -> tuple[str, ...]:
        """The swept parameters that changed no ranking."""
        return inert(self.completed.outcomes)

    @cached_property
    def analyzer(self) -> str:
        """What the analyzer "auto" stands for on the documents of this study."""
        return self.study.pipeline().stages.analyzer("auto")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done otherwise than asked, and why, each once."""
        return tuple(dict.fromkeys(note for o in self.completed.outcomes for note in o.notes))

    def scores(self) -> "pd.DataFrame":
        """Return a row for each configuration, scored query and measure: columns id, query, measure, score."""
        import pandas as pd

        scored = self.study.collection.judgments.answerable
        queries = [q for q, ok in zip(self.study.collection.queries, scored, strict=True) if ok]
        frames = [
            pd.DataFrame({"id": o.configuration.id, "query": queries, "measure": str(m), "score": v[scored]})
            for o in self.completed.outcomes
            for m, v in o.scores.items()
        ]
        return pd.concat(frames, ignore_index=True)


def run(
    study: str | Path | Mapping[str, Any],
    *,
    trials: int | None = None,
    timeout: float | None = None,
    storage: str | None = None,
    progress: Progress | None = None,
) -> StudyResults:
    """Run a study file, or a mapping of the same form, and return its results; finished work is not done again.

    trials: total of distinct configurations. timeout: seconds of this run. Raises a SweepError that says what is wrong.
    """
    opened = _study(study, storage)
    return StudyResults(opened, opened.run(trials, timeout, progress))


def load(study: str | Path | Mapping[str, Any], *, storage: str | None = None) -> StudyResults:
    """Return the results that earlier runs of a study left, without running anything. Raises InputError for none."""
    opened = _study(study, storage)
    stored = opened.stored()
    if stored is None:
        run_it = f"`sweep run {study}`" if opened.file.path else "sweep.run(...)"
        raise InputError(f"study {opened.spec.study!r} has no results in {opened.folder}; {run_it} makes them")
    return StudyResults(opened, stored)


def _study(study: str | Path | Mapping[str, Any], storage: str | None) -> Study:
    return Study(make_study(study) if isinstance(study, Mapping) else load_study(study), storage=storage)
