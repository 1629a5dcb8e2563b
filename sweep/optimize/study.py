"""Create, resume and run a study: every distinct configuration once, within the budget, Ctrl-C safe.

The whole grid where it fits the budget, its points handed to Optuna as waiting trials; else TPE. A study is in
`.sweep/<name>/`: `study.db` (Optuna, SQLite) and `results/` (per-query scores). What studies share: `.sweep/cache/`.
"""

__all__ = ["Completed", "Study"]

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.artifacts import Artifact, Store, fingerprint
from sweep.errors import StorageError, StudyInterrupted
from sweep.optimize.outcome import Outcome, OutcomeStore
from sweep.optimize.plan import Plan
from sweep.optimize.storage import without_trial_log
from sweep.optimize.study_file import StudyFile
from sweep.optimize.trial_store import TrialStore
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.progress import Progress, Silent

if TYPE_CHECKING:
    import optuna

    from sweep.retrieval.pipeline import Pipeline

HOME = Path(".sweep")
NOW = (
    "embedded",
    "tokens_embedded",
    "pairs_scored",
    "passages_read",
    "indexes_built",
    "indexes_reused",
    "searches_run",
    "searches_reused",
)


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


class Study(Plan):
    """A plan with its storage."""

    def __init__(self, file: StudyFile, home: Path = HOME, storage: str | None = None) -> None:
        super().__init__(file, home)
        self.folder = home / self.spec.study
        self.own_storage = storage is None
        self.url = storage or f"sqlite:///{self.folder / 'study.db'}"

    def pipeline(self, progress: Progress | None = None) -> "Pipeline":
        """Return what runs configurations on the collection."""
        from sweep.retrieval.pipeline import Pipeline

        return Pipeline(
            self.collection,
            Store(self.cache),
            tokenizer=self.tokenizer,
            encoders=self.spec.encoders,
            retrievers=self.spec.retrievers,
            allow_truncation=self.spec.allow_truncation,
            folder=self.file.folder,
            progress=progress or Silent(),
        )

    def sampler(self, trials: int) -> "optuna.samplers.BaseSampler":
        """Return the sampler, seeded by how many trials there are: a resumed run goes on and does not repeat."""
        import optuna

        seed = int(fingerprint(self.spec.seed, trials)[:8], 16)
        if self.spec.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed)

    def stored(self) -> Completed | None:
        """Return what earlier runs left, without running anything; None where there was none."""
        if not self.trial_store.exists():
            return None
        known = self._record()
        if known is None:
            with without_trial_log():
                study = self.trial_store.read(self.identity)
                if study is None:
                    return None
                known = _Record(self.trial_store.finished(study), study.user_attrs.get("work", {}))
        return self._completed(known, 0, {}, self.spec.budget.trials)

    def run(
        self, trials: int | None = None, timeout: float | None = None, progress: Progress | None = None
    ) -> Completed:
        """Run what the budget leaves to do and return all outcomes.

        trials: total of distinct finished configurations (default: the study's budget). timeout: seconds of this run.
        Raises StudyInterrupted on Ctrl-C, StudyChangedError for a stored study of other data or another space,
        StorageError, and the InputErrors of the pipeline.
        """
        from sweep.optimize.runner import Runner

        trials = self.spec.budget.trials if trials is None else trials
        timeout = self.spec.budget.timeout if timeout is None else timeout
        sampled = self.sampled(trials)
        with self._alone():
            known = self._record()
            if known and not self.left(known.finished, trials, sampled):
                # without Optuna, whose import takes longer than all the rest
                return self._completed(known, 0, {}, trials)
            self._digests.drop("finished", self._digest_key)  # what an interrupted run leaves is in Optuna's storage
            with without_trial_log():
                runner = Runner(self, trials, timeout, progress or Silent())
                before = runner.finished()
                if self.left(before, trials, sampled):
                    runner.run(sampled)
                known = _Record(runner.finished(), runner.work)
            self._keep(known)
            return self._completed(known, len(known.finished) - len(before), runner.failures, trials)

    def left(self, finished: Mapping[str, Configuration], trials: int, sampled: bool) -> int:
        """Return how many configurations are still to run, the baseline among them."""
        if not sampled:
            return len(self.targets.keys() - finished.keys())
        most = trials if self.grid is None else min(trials, len(self.targets))
        return max(int(self.baseline.id not in finished), most - len(self.counted(finished)))

    def counted(self, finished: Mapping[str, Configuration]) -> dict[str, Configuration]:
        """Return the finished configurations that are points of the space, or today's baseline."""
        return {i: c for i, c in finished.items() if i in self.targets or self.trial_store.in_space(c)}

    @cached_property
    def outcomes(self) -> OutcomeStore:
        """The per-query results of this study."""
        collection, spec = self.collection, self.spec
        labels = collection.labels_fingerprint
        return OutcomeStore(self.folder, collection.judgments, labels, spec.reported, spec.convention, self.result_key)

    @cached_property
    def trial_store(self) -> TrialStore:
        """The trials of this study."""
        return TrialStore(self.url, self.spec.study, self.spec.space, self.folder)

    def _completed(self, known: "_Record", ran: int, failures: Mapping[str, str], trials: int) -> Completed:
        counted = self.counted(known.finished)
        order = {**self.targets, **counted}
        outcomes = [o for i, c in order.items() if i in counted and (o := self.outcomes.get(c)) is not None]
        ids = [o.configuration.id for o in outcomes]
        planned = len(counted) + self.left(known.finished, trials, self.sampled(trials))
        return Completed(
            outcomes=tuple(outcomes),
            baseline=ids.index(self.baseline.id) if self.baseline.id in ids else -1,
            ran=ran,
            planned=planned,
            invalid=self.invalid,
            failures=failures,
            work=known.work if ran else {**known.work, **dict.fromkeys(NOW, 0)},
            finished=len(outcomes) >= planned,
        )

    def _record(self) -> "_Record | None":
        """Return what the last run of this very study left, or None: a digest of Optuna's storage, which counts."""
        found = self._digests.get("finished", self._digest_key) if self.trial_store.exists() else None
        if found is None:
            return None
        finished = {c.id: c for c in map(Configuration.of, found.meta["finished"])}
        if any(self.outcomes.get(c) is None for c in finished.values()):
            return None
        return _Record(finished, found.meta["work"])

    def _keep(self, known: "_Record") -> None:
        meta = {"finished": [c.settings for c in known.finished.values()], "work": dict(known.work)}
        self._digests.put("finished", self._digest_key, Artifact({}, meta))

    @property
    def _digests(self) -> Store:
        return Store(self.folder)

    @cached_property
    def _digest_key(self) -> str:
        return fingerprint(self.url, self.identity)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the study against a second run on this machine."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / "run.lock", timeout=0)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise StorageError(f"{self.folder}: another `sweep run` of this study is going on; wait for it") from None
        except OSError as fault:
            raise StorageError(f"{self.folder}: cannot be written: {fault.strerror}") from fault
        try:
            yield
        except KeyboardInterrupt:
            raise StudyInterrupted("stopped before a configuration was begun; the same command starts again") from None
        finally:
            lock.release()


@dataclass(frozen=True, slots=True)
class _Record:
    """Finished configurations by id, and the counts of the last run's work."""

    finished: Mapping[str, Configuration]
    work: Mapping[str, int]
