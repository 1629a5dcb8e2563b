"""Create, resume and run a study: every distinct configuration once, within the budget, Ctrl-C safe.

The whole grid where it fits the budget, its points handed to Optuna as waiting trials; else TPE. A study is in
`.sweep/<name>/`: `study.db` (Optuna, SQLite) and `results/` (per-query scores). What studies share: `.sweep/cache/`.
"""

__all__ = ["Completed", "Study"]

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.artifacts import CODE, Artifact, Store, fingerprint
from sweep.collection import Collection, load
from sweep.errors import CollectionError, SettingsError, StorageError, StudyInterrupted
from sweep.optimize.outcome import Outcome, OutcomeStore
from sweep.optimize.space import Grid, Range
from sweep.optimize.storage import without_trial_log
from sweep.optimize.study_file import StudyFile
from sweep.optimize.trial_store import TrialStore
from sweep.retrieval.configuration import DEFAULT_ENCODER, Configuration, Value
from sweep.retrieval.models import find_model
from sweep.retrieval.progress import Progress, Silent

if TYPE_CHECKING:
    import optuna

    from sweep.retrieval.pipeline import Pipeline

HOME = Path(".sweep")
COMMON_CHUNK_SIZE = 512
NOW = (
    "embedded",
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


class Study:
    """A study file on its collection, with its storage."""

    def __init__(self, file: StudyFile, home: Path = HOME, storage: str | None = None) -> None:
        self.file = file
        self.spec = file.spec
        self.home = home
        self.folder = home / self.spec.study
        self.own_storage = storage is None
        self.url = storage or f"sqlite:///{self.folder / 'study.db'}"

    @cached_property
    def collection(self) -> Collection:
        """The documents, queries and labels; read when first needed."""
        return load(self.spec.collection, self.file.folder)

    @property
    def encoders(self) -> tuple[str, ...]:
        """The encoders of the space, in order."""
        axis = next((a for a in self.spec.space.axes if a.name == "encoder"), None)
        return tuple(map(str, _ends(axis.values))) if axis else (DEFAULT_ENCODER,)

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
    def _grid(self) -> Grid | None:
        return self.spec.space.grid()

    @cached_property
    def grid(self) -> tuple[Configuration, ...] | None:
        """Every configuration of the space; None where there is no end.

        Those that share chunks stand side by side, deeper pools first: a smaller one is then read from stored pairs.
        """
        if self._grid is None:
            return None
        return tuple(sorted(self._grid.configurations, key=lambda c: (c.chunk_size, c.chunk_overlap, -(c.pool or 0))))

    @property
    def invalid(self) -> Mapping[str, int]:
        """Combinations of the space that cannot be run, counted by reason."""
        return {} if self._grid is None else self._grid.invalid

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

    def pipeline(self, progress: Progress | None = None) -> "Pipeline":
        """Return what runs configurations on the collection."""
        from sweep.retrieval.pipeline import Pipeline

        return Pipeline(
            self.collection,
            Store(self.home / "cache"),
            tokenizer=self.tokenizer,
            allow_truncation=self.spec.allow_truncation,
            folder=self.file.folder,
            progress=progress or Silent(),
        )

    def check(self, pipeline: "Pipeline") -> None:
        """Check what would only show while running: labels, runnable points, and chunks against the models' limits.

        Raises CollectionError where no query has a relevant document, SettingsError for a space without a point that
        can run, and where a model would not read the end of chunks and the study does not allow it.
        """
        if not self.collection.judgments.answerable.any():
            raise CollectionError("no query has a relevant document, so nothing can be scored; check labels and scale")
        if self.grid == ():
            reasons = "; ".join(f"{count} × {reason}" for reason, count in self.invalid.items())
            raise SettingsError(f"space: no combination can be run: {reasons}")
        for c in self.readers:
            pipeline.truncated(c)

    @property
    def readers(self) -> list[Configuration]:
        """One configuration for each chunking and the models that read it: what the study embeds and reranks."""
        asked = [self.baseline, *(self.grid or self._corners())]
        return list({(c.models, c.chunk_size, c.chunk_overlap): c for c in asked if c.models}.values())

    def _corners(self) -> Iterator[Configuration]:
        """Yield the listed encoders, sizes and overlaps, ends of ranges, of a space that is too large to list."""
        axes = {a.name: a for a in self.spec.space.axes}
        algorithms = axes["algorithm"].values if "algorithm" in axes else ("vector",)
        reading = [v for v in _ends(algorithms) if v != "keyword"]
        names = [n for n in ("encoder", "chunk_size", "chunk_overlap") if n in axes]
        for algorithm, *values in product(reading, *(_ends(axes[n].values) for n in names)):
            yield Configuration.of({"algorithm": algorithm, "top_k": 1, **dict(zip(names, values, strict=True))})

    def sampler(self, trials: int) -> "optuna.samplers.BaseSampler":
        """Return the sampler, seeded by how many trials there are: a resumed run goes on and does not repeat."""
        import optuna

        seed = int(fingerprint(self.spec.seed, trials)[:8], 16)
        if self.spec.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must stay the same for stored trials to count: data, models, code, and what is searched for."""
        axes = {a.name: a for a in self.spec.space.axes}
        rerankers = axes["reranker_model"].values if "reranker_model" in axes else (DEFAULT_ENCODER,)
        models = {*self.encoders, self.tokenizer, *self.baseline.models, *map(str, _ends(rerankers))}
        return {
            "documents": self.collection.documents_fingerprint,
            "queries": self.collection.queries_fingerprint,
            "labels": self.collection.labels_fingerprint,
            "source": dict(self.collection.source),
            "models": {name: self._model(name) for name in sorted(models)},
            "tokenizer": self.tokenizer,
            "objective": str(self.spec.objective.maximize),
            "convention": self.spec.convention,
            "allow_truncation": self.spec.allow_truncation,
            "space": self.spec.space.to_dict(),
            "code": CODE,
        }

    def _model(self, name: str) -> str:
        return find_model(name, self.file.folder).fingerprint

    def _result_key(self, c: Configuration) -> str:
        """Return the fingerprint of all that a configuration's rankings depend on, labels aside."""
        data = (self.collection.documents_fingerprint, self.collection.queries_fingerprint)
        models = [self._model(name) for name in (self.tokenizer, *c.models)]
        return f"{c.id}-{fingerprint(data, models, c.settings)}"

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
                return self._completed(
                    known, 0, {}, trials
                )  # without Optuna, whose import takes longer than all the rest
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
    def targets(self) -> dict[str, Configuration]:
        """The baseline and every configuration of the grid, by id."""
        return {c.id: c for c in (self.baseline, *(self.grid or ()))}

    @cached_property
    def outcomes(self) -> OutcomeStore:
        """The per-query results of this study."""
        collection, spec = self.collection, self.spec
        labels = collection.labels_fingerprint
        return OutcomeStore(self.folder, collection.judgments, labels, spec.reported, spec.convention, self._result_key)

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


def _ends(values: Sequence[Value] | Range) -> Sequence[Value]:
    """Return a list as it is, a range by its ends."""
    return (values.low, values.high) if isinstance(values, Range) else values
