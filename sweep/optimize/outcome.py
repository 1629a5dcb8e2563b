"""What one configuration scored and cost, query by query, kept beside the study under the configuration's id."""

__all__ = ["Outcome", "OutcomeStore"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from metrics import Judgments, Measure, Rankings, evaluate
from metrics.documents import Convention
from sweep.artifacts import Artifact, Store, fingerprint
from sweep.optimize.study_spec import LIMITED
from sweep.retrieval.configuration import Configuration

if TYPE_CHECKING:
    from sweep.retrieval.pipeline import Result

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One configuration on every query of the collection, in the collection's order.

    scores: float64 (Q,) for each measure, holes counting as irrelevant. documents, chunks: int32 (Q, K) codes as
    ranked, −1 pads. context_tokens: int64 (Q,). latency_ms: median of one query. truncated: share of chunks cut by the
    encoder. ann_recall: share of an exact search's first chunks that an approximate index finds, 1 for an exact one.
    pool_recall: float64 (Q,), share of the relevant documents that a reranker saw; empty without one. notes: what was
    done otherwise than asked, and why.
    """

    configuration: Configuration
    scores: Mapping[Measure, Floats]
    documents: npt.NDArray[np.int32]
    chunks: npt.NDArray[np.int32]
    context_tokens: npt.NDArray[np.int64]
    latency_ms: float
    index_bytes: int
    rerank_pairs: int
    truncated: float
    ann_recall: float
    pool_recall: Floats
    notes: tuple[str, ...]

    def means(self, scored: npt.NDArray[np.bool_]) -> dict[str, float]:
        """Return the mean of each measure over the scored queries, bool (Q,)."""
        return {str(m): float(v[scored].mean()) for m, v in self.scores.items()}

    def value(self, name: str, scored: npt.NDArray[np.bool_]) -> float:
        """Return a quantity, or the mean of a measure over the scored queries."""
        if name in LIMITED:
            return self.quantity(name)
        return float(self.scores[Measure.parse(name)][scored].mean())

    def quantity(self, name: str) -> float:
        """Return one of `study_spec.LIMITED`; context_tokens are the mean of a query."""
        if name == "context_tokens":
            return float(self.context_tokens.mean()) if len(self.context_tokens) else 0.0
        return float(getattr(self, name))


class OutcomeStore:
    """The outcomes of one study, in a folder.

    key: the fingerprint of all that a configuration's rankings depend on. labels: that of the judgments; where it, the
    measures or the convention are others than a result was scored with, it is scored again from its rankings.
    precision: of the models at hand; a result of another one does not count. None takes any: nothing is to be run.
    """

    def __init__(
        self,
        folder: Path,
        judgments: Judgments,
        labels: str,
        measures: tuple[Measure, ...],
        convention: Convention,
        key: Callable[[Configuration], str],
    ) -> None:
        self._store = Store(folder)
        self._judgments = judgments
        self._measures = measures
        self._convention: Convention = convention
        self._scoring = fingerprint(list(map(str, measures)), convention, labels)
        self._key = key
        self.precision: str | None = None
        self._read: dict[str, Outcome] = {}

    def get(self, configuration: Configuration) -> Outcome | None:
        """Return the outcome, scored again from its rankings where the measures asked for have changed since."""
        if configuration.id in self._read:
            return self._read[configuration.id]
        found = self._store.get("results", self._key(configuration))
        if found is None or (self.precision and found.meta["precision"] not in (None, self.precision)):
            return None
        if found.meta["scoring"] != self._scoring:
            return self._save(configuration, found, Rankings(found["documents"], found["document_scores"]))
        return self._outcome(configuration, found)

    def put(self, configuration: Configuration, result: "Result") -> Outcome:
        """Score a result and keep it."""
        pool = {} if result.pool is None else {"pool": result.pool.items}
        facts = Artifact(
            {"chunks": result.chunks.items, "context_tokens": result.context_tokens, **pool},
            {
                "settings": configuration.settings,
                "precision": self.precision if configuration.models else None,
                "latency_ms": result.latency_ms,
                "index_bytes": result.index_bytes,
                "rerank_pairs": result.rerank_pairs,
                "truncated": result.truncated,
                "ann_recall": result.ann_recall,
                "notes": list(result.notes),
            },
        )
        return self._save(configuration, facts, result.documents)

    def _save(self, configuration: Configuration, facts: Artifact, documents: Rankings) -> Outcome:
        names, arrays = [str(m) for m in self._measures], dict(facts.arrays)
        arrays |= {"documents": documents.items, "document_scores": documents.scores}
        scores = evaluate(self._judgments, documents, self._measures, convention=self._convention)
        arrays["scores"] = np.stack([scores.values[m] for m in self._measures])
        if "pool" in arrays:
            seen = Rankings(arrays["pool"], np.zeros(arrays["pool"].shape, np.float32))
            arrays["pool_recall"] = evaluate(self._judgments, seen, ["recall"]).values[Measure("recall")]
        artifact = Artifact(arrays, {**facts.meta, "measures": names, "scoring": self._scoring})
        self._store.put("results", self._key(configuration), artifact)
        return self._outcome(configuration, artifact)

    def _outcome(self, configuration: Configuration, a: Artifact) -> Outcome:
        self._read[configuration.id] = Outcome(
            configuration=configuration,
            scores=dict(zip(self._measures, a["scores"], strict=True)),
            documents=a["documents"],
            chunks=a["chunks"],
            context_tokens=a["context_tokens"],
            latency_ms=float(a.meta["latency_ms"]),
            index_bytes=int(a.meta["index_bytes"]),
            rerank_pairs=int(a.meta["rerank_pairs"]),
            truncated=float(a.meta["truncated"]),
            ann_recall=float(a.meta["ann_recall"]),
            pool_recall=a.arrays.get("pool_recall", np.empty(0)),
            notes=tuple(a.meta["notes"]),
        )
        return self._read[configuration.id]
