"""Create, resume and run a study: every distinct configuration once, within the budget, Ctrl-C safe.

The whole grid where it fits the budget, its points handed to Optuna as waiting trials; else TPE. A study is in
`.sweep/<name>/`: `study.db` (Optuna, SQLite) and `results/` (per-query scores). What studies share: `.sweep/cache/`.
"""

__all__ = ["Completed", "Study"]

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.artifacts import Store, fingerprint
from sweep.collection import Collection, load
from sweep.errors import SettingsError, StorageError, StudyInterrupted
from sweep.optimize.objective import Objective, PointFailedError, describe
from sweep.optimize.outcome import Outcome, OutcomeStore
from sweep.optimize.storage import storage_faults
from sweep.optimize.study_file import StudyFile
from sweep.optimize.trial_store import TrialStore
from sweep.retrieval.configuration import DEFAULT_ENCODER, Configuration
from sweep.retrieval.models import find_model
from sweep.retrieval.pipeline import Pipeline, Progress, Silent

if TYPE_CHECKING:
    import optuna

HOME = Path(".sweep")
COMMON_CHUNK_SIZE = 512
ATTEMPTS = 3  # of a point that fails by accident
REPEATS = 5  # of known points that a sampler may draw in a row before an unknown one is given to it
TRIAL_UNITS = 500  # what a trial costs beside its models, in tokens read by one: for the progress bar


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """What is known after a run: outcomes in the order of the space, the baseline's among them.

    baseline: position of the baseline in `outcomes`. ran: configurations that were run now. invalid: combinations that
    cannot be run, by reason. failures: configuration → reason. work: see `pipeline.Work`, the last run's `texts` and
    `distinct` and this run's other counts. finished: whether nothing of the budget is left to do.
    """

    outcomes: tuple[Outcome, ...]
    baseline: int
    ran: int
    planned: int
    invalid: Mapping[str, int]
    failures: Mapping[str, str]
    work: Mapping[str, int]
    finished: bool


class Study:
    """A study file on its collection, with its storage."""

    def __init__(self, file: StudyFile, home: Path = HOME, storage: str | None = None) -> None:
        self.file = file
        self.spec = file.spec
        self.home = home
        self.folder = home / self.spec.study
        self.url = storage or f"sqlite:///{self.folder / 'study.db'}"

    @cached_property
    def collection(self) -> Collection:
        """The documents, queries and labels; read when first needed."""
        return load(self.spec.collection, self.file.folder)

    @property
    def encoders(self) -> tuple[str, ...]:
        """The encoders of the space, in order."""
        axis = next((a for a in self.spec.space.axes if a.name == "encoder"), None)
        return tuple(str(axis.values[i]) for i in range(len(axis.values))) if axis else (DEFAULT_ENCODER,)

    @property
    def tokenizer(self) -> str:
        """Whose tokens chunk sizes count: the study's choice, else the first encoder's."""
        return self.spec.tokenizer or self.encoders[0]

    @cached_property
    def baseline(self) -> Configuration:
        """What the answer is compared with: the study's own, else the common default, cut to what the encoder reads."""
        if self.spec.baseline_configuration is not None:
            return self.spec.baseline_configuration
        limit = find_model(self.encoders[0], self.file.folder).limit
        size = COMMON_CHUNK_SIZE if limit is None else min(COMMON_CHUNK_SIZE, limit)
        return Configuration.of({"encoder": self.encoders[0], "chunk_size": size, "algorithm": "vector", "top_k": 5})

    @cached_property
    def grid(self) -> tuple[Configuration, ...] | None:
        """Every configuration of the space, those that share chunks side by side; None where there is no end."""
        grid = self.spec.space.grid()
        if grid is None:
            return None
        return tuple(sorted(grid.configurations, key=lambda c: (c.chunk_size, c.chunk_overlap)))

    @property
    def invalid(self) -> Mapping[str, int]:
        """Combinations of the space that cannot be run, counted by reason."""
        grid = self.spec.space.grid()
        return {} if grid is None else grid.invalid

    def sampled(self, trials: int) -> bool:
        """Tell whether a sampler has to choose, because the space is larger than the budget or has no end."""
        if self.spec.sampler in ("tpe", "random"):
            return True
        if self.grid is None or len(self.grid) > trials:
            if self.spec.sampler == "grid":
                size = "without end" if self.grid is None else f"of {len(self.grid)} configurations"
                raise SettingsError(f"sampler: grid over a space {size} needs that many trials; the budget is {trials}")
            return True
        return False

    def pipeline(self, progress: Progress | None = None) -> Pipeline:
        """Return what runs configurations on the collection."""
        return Pipeline(
            self.collection,
            Store(self.home / "cache"),
            tokenizer=self.tokenizer,
            allow_truncation=self.spec.allow_truncation,
            folder=self.file.folder,
            progress=progress or Silent(),
        )

    def check_chunks(self, pipeline: Pipeline) -> list[tuple[str, int, float]]:
        """Return every (encoder, chunk size, overlap) that the study embeds.

        Raises SettingsError where an encoder would cut chunks short and the study does not allow it.
        """
        asked = [self.baseline, *(self.grid or ())]
        sets = list(dict.fromkeys((c.encoder, c.chunk_size, c.chunk_overlap) for c in asked if c.encoder))
        for encoder, size, overlap in sets:
            pipeline.truncated(encoder, size, overlap)
        return sets

    def _sampler(self, trials: int) -> "optuna.samplers.BaseSampler":
        """Return the sampler, seeded by how many trials there are: a resumed run goes on and does not repeat."""
        import optuna

        seed = int(fingerprint(self.spec.seed, trials)[:8], 16)
        if self.spec.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed, warn_independent_sampling=False)

    @property
    def identity(self) -> dict[str, Any]:
        """What must stay the same for stored trials to count: data, models, and what is searched for."""
        models = {*self.encoders, self.tokenizer} | {
            str(a.values[i]) for a in self.spec.space.axes if a.name == "reranker_model" for i in range(len(a.values))
        }
        return {
            "documents": self.collection.documents_fingerprint,
            "queries": self.collection.queries_fingerprint,
            "labels": self.collection.labels_fingerprint,
            "source": dict(self.collection.source),
            "models": {name: find_model(name, self.file.folder).fingerprint for name in sorted(models)},
            "tokenizer": self.tokenizer,
            "objective": str(self.spec.objective.maximize),
            "convention": self.spec.convention,
            "allow_truncation": self.spec.allow_truncation,
            "space": self.spec.space.to_dict(),
        }

    def stored(self) -> Completed | None:
        """Return what earlier runs left, without running anything; None where there was none."""
        if not self._store.exists():
            return None
        study = self._store.open(self.identity, None)
        return self._completed(study, ran=0, failures={}, work=study.user_attrs.get("work", {}))

    def run(
        self, trials: int | None = None, timeout: float | None = None, progress: Progress | None = None
    ) -> Completed:
        """Run what the budget leaves to do and return all outcomes.

        trials: total of distinct finished configurations (default: the study's budget). timeout: seconds of this run.
        Raises StudyInterrupted on Ctrl-C, StudyChangedError for a stored study of other data or another space,
        StorageError, and the InputErrors of the pipeline.
        """
        trials = trials or self.spec.budget.trials
        timeout = timeout or self.spec.budget.timeout
        sampled = self.sampled(trials)
        with self._alone():
            study = self._store.open(self.identity, self._sampler)
            missing = self._missing(study, trials, sampled)
            if not missing:
                return self._completed(study, ran=0, failures={}, work=study.user_attrs.get("work", {}))
            return self._work(study, missing, trials, timeout, sampled, progress or Silent())

    def _work(
        self,
        study: "optuna.Study",
        missing: int,
        trials: int,
        timeout: float | None,
        sampled: bool,
        progress: Progress,
    ) -> Completed:
        pipeline = self.pipeline(progress)
        progress.stage("checking chunks")
        sets = self.check_chunks(pipeline)
        progress.total(pipeline.missing_tokens(sets) + missing * TRIAL_UNITS)
        objective = Objective(self.spec, pipeline, self._outcomes, self.collection.judgments.answerable)
        before = len(self._store.finished(study))
        try:
            with storage_faults(self.url):
                self._run_baseline(study, objective)
                loop = self._sample if sampled else self._run_grid
                loop(study, objective, trials, timeout, progress)
        except KeyboardInterrupt:
            done = len(self._store.finished(study))
            raise StudyInterrupted(
                f"stopped with {done} configurations finished, which are kept; the same command goes on from here"
            ) from None
        with storage_faults(self.url):
            study.set_user_attr("work", pipeline.work.to_dict())
        ran = len(self._store.finished(study)) - before
        return self._completed(study, ran, objective.failures, pipeline.work.to_dict())

    def _run_baseline(self, study: "optuna.Study", objective: Objective) -> None:
        """Score the baseline first, as a trial without parameters where it is no point of the space."""
        if self.baseline.id in self._store.finished(study) or self._store.in_space(self.baseline):
            return
        from optuna.trial import create_trial

        try:
            outcome = objective.outcome(self.baseline)
        except PointFailedError:
            return
        constraints = {n: limit.excess(objective.value(outcome, n)) for n, limit in self.spec.constraints.items()}
        trial = create_trial(
            value=objective.value(outcome, str(self.spec.objective.maximize)),
            user_attrs=describe(outcome, objective.scored) | {"baseline": True},
            constraints=constraints or None,
        )
        study.add_trial(trial)

    def _run_grid(
        self,
        study: "optuna.Study",
        objective: Objective,
        _trials: int,
        timeout: float | None,
        progress: Progress,
    ) -> None:
        """Run every point that is not finished; one that fails by accident is tried again, within bounds."""
        for _ in range(ATTEMPTS):
            finished = self._store.finished(study)
            points = [c for c in self.grid or () if c.id not in finished]
            points.sort(key=lambda c: c != self.baseline)
            if not points:
                return
            waiting = {t.user_attrs.get("point") for t in self._store.trials(study, "WAITING")}
            for c in points:
                if c.id not in waiting:
                    study.enqueue_trial(dict(self.spec.space.params(c)), user_attrs={"point": c.id})
            self._optimize(study, objective, len(points), timeout, progress)

    def _sample(
        self,
        study: "optuna.Study",
        objective: Objective,
        trials: int,
        timeout: float | None,
        progress: Progress,
    ) -> None:
        """Let the sampler choose until `trials` distinct configurations are finished or none is left."""
        import time

        end = None if timeout is None else time.monotonic() + timeout
        repeats = 0
        if self._store.in_space(self.baseline) and self.baseline.id not in self._store.finished(study):
            study.enqueue_trial(dict(self.spec.space.params(self.baseline)), user_attrs={"point": self.baseline.id})
        while (done := len(self._store.finished(study))) < trials and repeats < 20 * REPEATS:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            if repeats >= REPEATS and self.grid is not None:
                unknown = [c for c in self.grid if c.id not in self._store.finished(study)]
                if not unknown:
                    return
                c = random.Random(f"{self.spec.seed} {len(study.trials)}").choice(unknown)
                study.enqueue_trial(dict(self.spec.space.params(c)), user_attrs={"point": c.id})
            self._optimize(study, objective, 1, left, progress)
            repeats = repeats + 1 if len(self._store.finished(study)) == done else 0

    def _optimize(
        self, study: "optuna.Study", objective: Objective, count: int, timeout: float | None, progress: Progress
    ) -> None:
        study.optimize(
            objective,
            n_trials=count,
            timeout=timeout,
            catch=(PointFailedError,),
            callbacks=[lambda _study, _trial: progress.advance(TRIAL_UNITS)],
        )

    def _missing(self, study: "optuna.Study", trials: int, sampled: bool) -> int:
        finished = self._store.finished(study)
        if sampled:
            most = trials if self.grid is None else min(trials, len(self.grid))
            return max(0, most - len(finished))
        return len({c.id for c in (self.baseline, *(self.grid or ()))} - finished.keys())

    @cached_property
    def _outcomes(self) -> OutcomeStore:
        return OutcomeStore(self.folder, self.collection.judgments, self.spec.reported, self.spec.convention)

    def _completed(
        self, study: "optuna.Study", ran: int, failures: Mapping[str, str], work: Mapping[str, int]
    ) -> Completed:
        found = self._store.finished(study)
        order = [c for c in dict.fromkeys((self.baseline, *(self.grid or ()), *found.values())) if c.id in found]
        outcomes = [o for c in order if (o := self._outcomes.get(c)) is not None]
        ids = [o.configuration.id for o in outcomes]
        planned = self.spec.budget.trials if self.grid is None else min(len(self.grid), self.spec.budget.trials)
        fresh = (
            work if ran else {**work, **dict.fromkeys(("embedded", "pairs_scored", "indexes_built", "searches_run"), 0)}
        )
        return Completed(
            outcomes=tuple(outcomes),
            baseline=ids.index(self.baseline.id) if self.baseline.id in ids else -1,
            ran=ran,
            planned=planned,
            invalid=self.invalid,
            failures=failures,
            work=fresh,
            finished=len(outcomes) >= planned,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the study against a second run on this machine."""
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "run.lock", timeout=0):
                yield
        except Timeout:
            raise StorageError(f"{self.folder}: another `sweep run` of this study is going on; wait for it") from None
        except PermissionError as fault:
            raise StorageError(f"{self.folder}: cannot be written: {fault.strerror}") from fault

    @cached_property
    def _store(self) -> TrialStore:
        return TrialStore(self.url, self.spec.study, self.spec.space, self.folder)
