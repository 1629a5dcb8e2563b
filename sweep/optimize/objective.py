"""Optuna trial → configuration → rankings → scores → value and constraints."""

__all__ = ["ATTEMPTS", "Objective", "PointFailedError", "describe"]

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sweep.errors import SettingsError, SweepError
from sweep.optimize.outcome import Outcome, OutcomeStore
from sweep.optimize.study_spec import LIMITED, StudySpec
from sweep.retrieval.configuration import Configuration

if TYPE_CHECKING:
    import optuna

    from sweep.retrieval.pipeline import Pipeline


ATTEMPTS = 3  # of a point that fails by accident, in one run


class PointFailedError(Exception):
    """One configuration could not be run or scored; the study goes on. The text says which, and why."""


@dataclass
class Objective:
    """What Optuna calls for every trial."""

    spec: StudySpec
    pipeline: "Pipeline"
    outcomes: OutcomeStore
    scored: npt.NDArray[np.bool_]
    failures: dict[str, str]
    attempts: Counter[str] = field(default_factory=Counter)

    def __call__(self, trial: "optuna.Trial") -> float:
        """Return the objective's mean over the scored queries.

        Raises PointFailedError for a configuration that fails by itself, and SweepError for what would fail them all.
        """
        settings = self.spec.space.suggest(trial)
        try:
            configuration = Configuration.of(settings)
        except SettingsError as fault:  # values that exclude each other, as a pool below top_k
            raise PointFailedError(str(fault)) from fault
        outcome = self.outcome(configuration)
        for name, limit in self.spec.constraints.items():
            trial.set_constraint(name, limit.excess(outcome.value(name, self.scored)))
        for name, facts in describe(outcome, self.scored).items():
            trial.set_user_attr(name, facts)
        return outcome.value(str(self.spec.objective.maximize), self.scored)

    def outcome(self, configuration: Configuration) -> Outcome:
        """Return what the configuration scores, from the study's folder or by running it."""
        if not self.may_try(configuration):
            raise PointFailedError(f"{configuration.short}: failed {ATTEMPTS} times")
        self.attempts[configuration.id] += 1
        try:
            self.pipeline.progress.configuration(configuration.short)
            known = self.outcomes.get(configuration)
            found = known or self.outcomes.put(configuration, self.pipeline.run(configuration))
            value = found.value(str(self.spec.objective.maximize), self.scored)
        except SettingsError as fault:  # its values do not fit its models: it would fail again
            self.attempts[configuration.id] = ATTEMPTS
            self.failures[configuration.short] = str(fault)
            raise PointFailedError(f"{configuration.short}: {fault}") from fault
        except (SweepError, KeyboardInterrupt):
            raise
        except Exception as fault:
            self.failures[configuration.short] = f"{type(fault).__name__}: {fault}"
            raise PointFailedError(f"{configuration.short}: {type(fault).__name__}: {fault}") from fault
        if not np.isfinite(value):
            self.failures[configuration.short] = f"{self.spec.objective.maximize} is {value}"
            raise PointFailedError(f"{configuration.short}: {self.spec.objective.maximize} is {value}")
        self.failures.pop(configuration.short, None)
        return found

    def may_try(self, configuration: Configuration) -> bool:
        """Tell whether a configuration has attempts left in this run."""
        return self.attempts[configuration.id] < ATTEMPTS


def describe(outcome: Outcome, scored: npt.NDArray[np.bool_]) -> dict[str, object]:
    """Return what a trial carries beside its value: the configuration's id and settings, mean scores, costs."""
    facts = {name: outcome.quantity(name) for name in LIMITED} | {"truncated": outcome.truncated}
    if outcome.pool_recall.size:
        facts["pool_recall"] = float(outcome.pool_recall[scored].mean())
    return {
        "configuration": outcome.configuration.id,
        "settings": outcome.configuration.settings,
        "scores": outcome.means(scored),
        "costs": facts,
    }
