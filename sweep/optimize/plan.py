"""What a study file asks for on its collection: the baseline, the grid, who reads which chunks, its identity."""

__all__ = ["Plan"]

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from sweep.artifacts import CODE, fingerprint
from sweep.collection.collection import Collection
from sweep.collection.loading import load
from sweep.errors import CollectionError, SettingsError
from sweep.optimize.space import Grid, Range
from sweep.optimize.study_file import StudyFile
from sweep.retrieval.configuration import DEFAULT_ENCODER, Configuration, Value
from sweep.retrieval.models import find_model

if TYPE_CHECKING:
    from sweep.retrieval.pipeline import Pipeline

COMMON_CHUNK_SIZE = 512


class Plan:
    """A study file and the collection that it names."""

    def __init__(self, file: StudyFile) -> None:
        self.file = file
        self.spec = file.spec

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

    @cached_property
    def targets(self) -> dict[str, Configuration]:
        """The baseline and every configuration of the grid, by id."""
        return {c.id: c for c in (self.baseline, *(self.grid or ()))}

    def check(self, pipeline: "Pipeline") -> None:
        """Check what would only show while running: labels, runnable points, and chunks against the models' limits.

        Raises CollectionError where no query has a relevant document or no document a token, SettingsError for a space
        without a point that can run, and where a model would not read the end of chunks and that is not allowed.
        """
        if not self.collection.judgments.answerable.any():
            raise CollectionError("no query has a relevant document, so nothing can be scored; check labels and scale")
        if self.grid == ():
            reasons = "; ".join(f"{count} × {reason}" for reason, count in self.invalid.items())
            raise SettingsError(f"space: no combination can be run: {reasons}")
        if not len(pipeline.stages.chunks(self.baseline.chunk_size, self.baseline.chunk_overlap)):
            raise CollectionError("empty collection: no document has a character that is a token")
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

    def result_key(self, c: Configuration) -> str:
        """Return the fingerprint of all that a configuration's rankings depend on, labels aside."""
        data = (self.collection.documents_fingerprint, self.collection.queries_fingerprint)
        models = [self._model(name) for name in (self.tokenizer, *c.models)]
        return f"{c.id}-{fingerprint(data, models, c.settings)}"


def _ends(values: Sequence[Value] | Range) -> Sequence[Value]:
    """Return a list as it is, a range by its ends."""
    return (values.low, values.high) if isinstance(values, Range) else values
