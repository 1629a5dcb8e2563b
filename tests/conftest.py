"""Shared by the tests: real data beside the checkout, models, and an encoder and a reranker that need none."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from small_workspace import workspace as workspace  # a fixture

from sweep.artifacts import Store, fingerprint
from sweep.retrieval.embedding import Role, SentenceTransformerEncoder, batches
from sweep.retrieval.models import find_model
from sweep.retrieval.pair_rerankers import PairReranker
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.reranking import Pairs
from sweep.retrieval.vectors import Floats, unit

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the real test collections are not beside this checkout (../shared/data)")
    return SHARED


class HashEncoder:
    """An `Encoder` without a model: a text's vector is the sum of one random vector a word, drawn from its hash.

    It reads the first `limit` words, and records each text as it was read, prompt included.
    """

    parallel = 1
    tokens_read = 0

    def __init__(self, name: str = "hash", limit: int | None = None, query: str = "", passage: str = "") -> None:
        self.name, self.limit, self.query_limit = name, limit, limit
        self.prompts = {"query": query, "passage": passage}
        self.read: list[str] = []

    @property
    def fingerprint(self) -> str:
        return fingerprint("hash", self.name, self.limit, self.prompts)

    def prompt(self, role: Role) -> str:
        return self.prompts[role]

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        return np.array([len(text.split()) for text in texts], np.int32)

    def batches(self, tokens: npt.NDArray[np.int32]) -> Iterator[list[int]]:
        return batches(tokens)

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        read = [self.prompts[role] + text for text in texts]
        self.read += read
        return unit(np.stack([self._vector(text) for text in read]))

    def _vector(self, text: str) -> Floats:
        vector = np.zeros(16, np.float32)
        for word in text.split()[: self.limit]:
            seed = int.from_bytes(hashlib.blake2b(f"{self.name} {word}".encode(), digest_size=8).digest(), "big")
            vector += np.random.default_rng(seed).standard_normal(16, np.float32)
        return vector


class Liking(PairReranker):
    """A reranker that scores by a table of (query, passage), 0 elsewhere, and records each pair that it reads."""

    fingerprint = "liking"
    parallel = 1

    def __init__(self, scores: dict[tuple[str, str], float], batch: int = 4, batches: int = 10**6) -> None:
        self.scores, self.batch, self.left = scores, batch, batches
        self.read: list[tuple[str, str]] = []

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[npt.NDArray[np.int64]]:
        return [np.arange(len(pairs))[at : at + self.batch] for at in range(0, len(pairs), self.batch)]

    def score(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> Floats:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        read = [(queries[q], passages[p]) for q, p in pairs.tolist()]
        self.read += read
        return np.array([self.scores.get(pair, 0.0) for pair in read], np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def minilm() -> SentenceTransformerEncoder:
    """The packaged model, loaded once for all tests."""
    return SentenceTransformerEncoder(find_model(DEFAULT_ENCODER))


CopyModel = Callable[..., Path]


@pytest.fixture
def copy_model(tmp_path: Path) -> CopyModel:
    """Return what makes a folder with the packaged model, some of its JSON files' fields changed."""

    def copy(name: str, changed: dict[str, dict[str, Any]] | None = None) -> Path:
        source, folder = find_model(DEFAULT_ENCODER).folder, tmp_path / name
        for path in (p for p in source.rglob("*") if p.is_file()):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            fields = (changed or {}).get(path.name)
            if fields is None:
                target.symlink_to(path)
            else:
                target.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
        return folder

    return copy
