"""A person's own retriever asked every query, its answers kept, so that none is asked for twice."""

__all__ = ["Calls", "CallsFailedError"]

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank
from sweep.artifacts import Artifact, fingerprint
from sweep.artifacts.files import lock_of, locked
from sweep.retrieval.chunk_stages import ChunkStages
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.models import token_counts
from sweep.retrieval.retriever import CallFailedError, Found, Retriever, RetrieverSpec, make_retriever

KEEP_EVERY = 32  # calls
GIVE_UP = 8  # calls, all failed: the retriever is down
_NAMED = 3


class CallsFailedError(Exception):
    """Some queries were not answered; the text says which, and why. The answers to the others are kept."""


class _Answer(NamedTuple):
    """One query's documents, their scores, the tokens handed over, and the time it took in ms."""

    items: list[int]
    scores: list[float]
    tokens: int
    ms: float


class Calls:
    """Runs the retrievers of a study over the collection's queries."""

    def __init__(self, stages: ChunkStages, declared: Mapping[str, RetrieverSpec], folder: Path) -> None:
        self._stages, self._collection = stages, stages.collection
        self.retriever = lru_cache(maxsize=None)(lambda name: make_retriever(name, declared, folder))
        self._codes = {name: code for code, name in enumerate(self._collection.judgments.documents)}

    def find(self, c: Configuration) -> tuple[Rankings, npt.NDArray[np.int64], float]:
        """Return the documents found for every query (Q, ≤ top_k), the tokens handed over (Q,), the median ms.

        Raises CallsFailedError where not every query was answered; asking again asks only for what is missing.
        """
        retriever, store = self.retriever(str(c.retriever)), self._stages.store
        collection = self._collection
        key = fingerprint(
            retriever.fingerprint, dict(c.options), c.top_k, collection.documents_fingerprint,
            collection.queries_fingerprint, list(collection.dangling_documents),
            self._stages.models.tokenizer_fingerprint(self._stages.tokenizer),
        )  # fmt: skip
        with locked(lock_of(store.root, "calls", key)):
            known = store.get("calls", key)
            answers = {} if known is None else _unpacked(known)
            failed = self._ask(c, retriever, key, answers)
        if failed:
            self._refuse(failed, len(answers))
        table = _packed(answers, c.top_k)
        order = np.argsort(table["queries"])
        found = rank(table["items"][order], table["scores"][order], c.top_k)
        return found, table["tokens"][order], float(np.median(table["ms"])) if answers else 0.0

    def _ask(self, c: Configuration, retriever: Retriever, key: str, answers: dict[int, _Answer]) -> dict[int, str]:
        """Ask for what is missing, KEEP_EVERY queries at a time; return the reason of each that failed."""
        queries, failed = self._collection.query_texts, dict[int, str]()
        options = {name.partition(".")[2]: value for name, value in c.options}
        missing = [i for i in range(len(queries)) if i not in answers]

        def one(i: int) -> _Answer | str:
            start = time.perf_counter()
            try:
                found = retriever.find(queries[i], c.top_k, options)
                return self._read(found, c.top_k, 1e3 * (time.perf_counter() - start))
            except CallFailedError as fault:
                return str(fault)

        with ThreadPoolExecutor(retriever.spec.parallel) as pool:
            for at in [0, *range(GIVE_UP, len(missing), KEEP_EVERY)]:
                self._stages.progress.stage(f"asking {retriever.name}, query {at + 1} of {len(missing)}")
                part = missing[at : at + KEEP_EVERY] if at else missing[:GIVE_UP]
                for i, answer in zip(part, pool.map(one, part), strict=True):
                    if isinstance(answer, str):
                        failed[i] = answer
                    else:
                        answers[i] = answer
                if answers:
                    self._stages.store.put("calls", key, Artifact(_packed(answers, c.top_k)))
                else:
                    break
        return failed

    def _read(self, found: Found, top_k: int, ms: float) -> _Answer:
        """Turn ids into codes and count tokens, of the first top_k by score."""
        unknown = next((name for name in found.ids if name not in self._codes), None)
        if unknown is not None:
            raise CallFailedError(
                f"document {unknown!r} is not in the collection; add it to the corpus, or return the corpus' ids"
            )
        order = sorted(range(len(found.ids)), key=lambda j: (-found.scores[j], self._codes[found.ids[j]]))[:top_k]
        items = [self._codes[found.ids[j]] for j in order]
        return _Answer(items, [found.scores[j] for j in order], self._tokens(found, order, items), ms)

    def _tokens(self, found: Found, order: Sequence[int], items: Sequence[int]) -> int:
        if found.texts is not None:
            tokenizer = self._stages.models.tokenizer(self._stages.tokenizer)
            return int(token_counts(tokenizer, [str(found.texts[j]) for j in order]).sum())
        sizes = np.diff(self._stages.tokens.indptr)
        return int(sum(sizes[code] for code in dict.fromkeys(items) if code < len(sizes)))

    def _refuse(self, failed: Mapping[int, str], answered: int) -> None:
        names = self._collection.queries
        some = "; ".join(f"query {names[i]!r}: {why}" for i, why in list(failed.items())[:_NAMED])
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        given_up = not answered and len(failed) < len(names)
        count = f"none of the first {len(failed)} of" if given_up else f"{len(failed)} of"
        raise CallsFailedError(f"{count} {len(names)} queries were{'' if given_up else ' not'} answered: {some}{more}")


def _packed(answers: Mapping[int, _Answer], top_k: int) -> dict[str, npt.NDArray[Any]]:
    items = np.full((len(answers), top_k), -1, np.int32)
    scores = np.full((len(answers), top_k), -np.inf, np.float32)
    for row, answer in enumerate(answers.values()):
        items[row, : len(answer.items)] = answer.items
        scores[row, : len(answer.scores)] = answer.scores
    return {
        "queries": np.array(list(answers), np.int64),
        "items": items,
        "scores": scores,
        "tokens": np.array([a.tokens for a in answers.values()], np.int64),
        "ms": np.array([a.ms for a in answers.values()], np.float64),
    }


def _unpacked(known: Artifact) -> dict[int, _Answer]:
    rows = zip(*(known[name].tolist() for name in ("queries", "items", "scores", "tokens", "ms")), strict=True)
    answers = {}
    for query, items, scores, tokens, ms in rows:
        count = sum(item >= 0 for item in items)
        answers[query] = _Answer(items[:count], scores[:count], tokens, ms)
    return answers
