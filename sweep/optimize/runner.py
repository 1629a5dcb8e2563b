"""One run of a study: the baseline first, then the grid's missing points or what a sampler chooses."""

__all__ = ["Runner"]

import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sweep.errors import StudyInterrupted
from sweep.optimize.objective import ATTEMPTS, Objective, PointFailedError, describe
from sweep.optimize.storage import storage_faults
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.models import precision
from sweep.retrieval.progress import Progress

if TYPE_CHECKING:
    from sweep.optimize.study import Study

REPEATS = 5  # of known points that a sampler may draw in a row before an unknown one is given to it
FRUITLESS = 100  # draws in a row that bring nothing new: the space is exhausted
TRIAL_UNITS = 500  # what a trial costs beside its models, in tokens read by one: for the progress bar


class Runner:
    """Runs trials on the open study, which nobody else on this machine runs meanwhile."""

    def __init__(self, study: "Study", trials: int, timeout: float | None, progress: Progress) -> None:
        self._study, self._trials, self._progress = study, trials, progress
        self._end = None if timeout is None else time.monotonic() + timeout
        self._optuna = study.trial_store.open(study.identity, study.sampler)
        self.work: Mapping[str, int] = self._optuna.user_attrs.get("work", {})
        self.failures: dict[str, str] = {}
        if study.readers:
            study.outcomes.precision = precision()

    def finished(self) -> dict[str, Configuration]:
        """Return the configurations of complete trials whose results can be read, by id."""
        known = self._study.trial_store.finished(self._optuna)
        return {i: c for i, c in known.items() if self._study.outcomes.get(c) is not None}

    def run(self, sampled: bool) -> None:
        """Run what is left. Raises StudyInterrupted on Ctrl-C, StorageError, and the InputErrors of the pipeline."""
        try:
            with storage_faults(self._study.url):
                self._run(sampled)
        except KeyboardInterrupt:
            self._study.trial_store.end_stale(self._optuna)
            raise StudyInterrupted(
                f"stopped with {len(self.finished())} configurations finished, which are kept; "
                f"the same command goes on from here"
            ) from None

    def _run(self, sampled: bool) -> None:
        study, pipeline = self._study, self._study.pipeline(self._progress)
        study.check(pipeline)
        finished = self.finished()
        left = [c for i, c in study.targets.items() if i not in finished]
        trials = study.left(finished, self._trials, sampled)
        self._progress.total(pipeline.units(left) + trials * TRIAL_UNITS)
        objective = Objective(
            study.spec, pipeline, study.outcomes, study.collection.judgments.answerable, self.failures
        )
        for _ in study.trial_store.trials(self._optuna, "WAITING"):  # a killed run did not come to it
            self._optimize(objective)
        self._baseline(objective)
        self._sample(objective) if sampled else self._grid(objective)
        embedded = [c for c in self.finished().values() if c.encoder is not None]
        pipeline.stages.count_texts((str(c.encoder), c.chunking) for c in embedded)
        self.work = pipeline.work.to_dict()
        self._optuna.set_user_attr("work", dict(self.work))

    def _baseline(self, objective: Objective) -> None:
        """Score the baseline first: as a point, or as a trial without parameters where it is no point of the space."""
        baseline, spec = self._study.baseline, self._study.spec
        if baseline.id in self.finished():
            return
        if self._study.trial_store.in_space(baseline):
            self._run_point(baseline, objective)
            return
        from optuna.trial import create_trial

        try:
            outcome = objective.outcome(baseline)
        except PointFailedError:
            return
        constraints = {n: limit.excess(outcome.value(n, objective.scored)) for n, limit in spec.constraints.items()}
        trial = create_trial(
            value=outcome.value(str(spec.objective.maximize), objective.scored),
            user_attrs=describe(outcome, objective.scored) | {"baseline": True},
            constraints=constraints or None,
        )
        self._optuna.add_trial(trial)

    def _grid(self, objective: Objective) -> None:
        """Run every point that is not finished; one that fails by accident is tried again, within bounds."""
        for _ in range(ATTEMPTS):
            finished = self.finished()
            for c in self._study.grid or ():
                if self._over():
                    return
                if c.id not in finished and objective.may_try(c):
                    self._run_point(c, objective)

    def _sample(self, objective: Objective) -> None:
        """Let the sampler choose until enough distinct configurations are finished or none is left."""
        fruitless = 0
        done = len(self._study.counted(self.finished()))
        while done < self._trials and fruitless < FRUITLESS and not self._over():
            if fruitless >= REPEATS and self._study.grid is not None:
                finished = self.finished()
                unknown = [c for c in self._study.grid if c.id not in finished and objective.may_try(c)]
                if not unknown:
                    return
                chance = random.Random(f"{self._study.spec.seed} {len(self._optuna.trials)}")
                self._run_point(chance.choice(unknown), objective)
            else:
                self._optimize(objective)
            now = len(self._study.counted(self.finished()))
            fruitless = fruitless + 1 if now == done else 0
            done = now

    def _run_point(self, c: Configuration, objective: Objective) -> None:
        """Run one point. None waits: Optuna reads all that do anew for each trial."""
        self._optuna.enqueue_trial(dict(self._study.spec.space.params(c)))
        self._optimize(objective)

    def _optimize(self, objective: Objective) -> None:
        self._optuna.optimize(
            objective,
            n_trials=1,
            timeout=None if self._end is None else max(0.0, self._end - time.monotonic()),
            catch=(PointFailedError,),
            callbacks=[lambda _study, _trial: self._progress.advance(TRIAL_UNITS)],
        )

    def _over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end
