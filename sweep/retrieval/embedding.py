"""Texts → vectors, each distinct text once for each encoder, kept as batches finish.

Texts of equal token length share a batch. So no batch is padded, and a text's vector does not depend on what else is
in its batch: an interrupted, extended or parallel run gives the same vectors, bit for bit.
"""

__all__ = [
    "Encoder",
    "Role",
    "SentenceTransformerEncoder",
    "batches",
    "batches_under_way",
    "count_cut",
    "embed",
    "several_at_once",
]

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sweep.artifacts import Rows, digest_texts, fingerprint
from sweep.errors import ModelError
from sweep.retrieval.models import Model, load, precision, token_counts
from sweep.retrieval.vectors import Floats, unit

Role = Literal["query", "passage"]
Batch = TypeVar("Batch")
Out = TypeVar("Out")
BATCH_TOKENS = 4096
BATCH_TEXTS = 64


class Encoder(Protocol):
    """What turns texts into vectors."""

    name: str
    limit: int | None  # tokens of a passage that it reads; None for no limit
    query_limit: int | None  # the same of a query
    tokens_read: int  # so far, as a service counts them; 0 for a local model

    @property
    def waited(self) -> float:
        """Seconds so far for which a service was not asked, to keep within its limits; 0 for a local model."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors would, prompts included."""

    def prompt(self, role: Role) -> str:
        """Return the text put before every text of this role."""

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of each text, special tokens and truncation left aside, int32 (n,)."""

    @property
    def parallel(self) -> int:
        """How many batches to have under way at once."""

    def batches(self, tokens: npt.NDArray[np.int32]) -> Iterator[list[int]]:
        """Split the positions of texts with so many tokens, prompt included, into the batches for `encode`."""

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        """Return the vectors of one batch, float32 (n, d)."""


class SentenceTransformerEncoder:
    """A sentence-transformers model; loaded when the first text needs it.

    prompts: put before every text of a role; default: the model's own. max_seq_length: tokens that it reads, special
    ones included; default: the model's own. dtype: default as `models.precision`.
    """

    tokens_read, waited = 0, 0.0

    def __init__(
        self,
        model: Model,
        prompts: Mapping[str, str] | None = None,
        max_seq_length: int | None = None,
        dtype: str | None = None,
    ) -> None:
        self.model = model
        self.name = model.name
        self._prompts = dict(prompts or model.prompts)
        self._longest, self._dtype = max_seq_length or model.longest, dtype
        self.limit, self.query_limit = (model.room(self._prompts[r], self._longest) for r in ("passage", "query"))
        for role, limit in (("passage", self.limit), ("query", self.query_limit)):
            if limit is not None and limit < 1:
                raise ModelError(
                    f"{self.name}: the {role} prompt leaves no room in the {self._longest} tokens it reads"
                )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's files, the precision, the length read and the prompts."""
        return fingerprint("sentence-transformers", self.model.fingerprint, self.dtype, self._longest, self._prompts)

    @property
    def dtype(self) -> str:
        """The precision of the weights; a static model gains nothing from a low one."""
        return self._dtype or (precision() if self.model.contextual else "float32")

    def prompt(self, role: Role) -> str:
        """Return the text put before every text of this role."""
        return self._prompts[role]

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of each text by the model's tokenizer, int32 (n,)."""
        return token_counts(self.model.tokenizer, texts)

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        """Return the vectors of one batch as the model gives them, float32 (n, d)."""
        vectors = self._loaded.encode(
            list(texts), prompt=self.prompt(role), batch_size=len(texts), show_progress_bar=False,
            convert_to_tensor=True,
        )  # fmt: skip
        return np.ascontiguousarray(vectors.float().cpu().numpy(), np.float32)

    def token_vectors(self, texts: Sequence[str], role: Role) -> list[Floats]:
        """Return the unit vectors of each text's tokens, special tokens included, float32 (tokens, d) each."""
        vectors = self._loaded.encode(
            list(texts), prompt=self.prompt(role), batch_size=len(texts), show_progress_bar=False,
            output_value="token_embeddings", convert_to_tensor=True,
        )  # fmt: skip
        return [unit(v.float().cpu().numpy()) for v in vectors]

    def batches(self, tokens: npt.NDArray[np.int32]) -> Iterator[list[int]]:
        """Put texts together of which equally many tokens are read, so that none is padded."""
        most = self.model.room("", self._longest)
        return batches(tokens if most is None else np.minimum(tokens, most))

    @property
    def parallel(self) -> int:
        """One batch a core: cores share one small batch badly, and the vectors are the same bit for bit."""
        return batches_under_way(self._loaded)

    @cached_property
    def _loaded(self) -> Any:
        return load(self.model, "SentenceTransformer", self.dtype, self._longest)


def batches_under_way(model: Any) -> int:
    """Return how many batches suit the device of a loaded model: one a core, one on an accelerator."""
    import torch

    return 1 if model.device.type != "cpu" else int(torch.get_num_threads())


def embed(
    encoder: Encoder,
    rows: Rows,
    texts: Sequence[str],
    role: Role,
    advance: Callable[[int], None] = lambda tokens: None,
) -> tuple[Floats, int, int]:
    """Return (vectors float32 (n, d) of `texts`, as the model gives them, texts embedded now, tokens read for them).

    Vectors stored in `rows` are read; the others are computed in batches, each stored as it finishes. `advance` is
    told the tokens of each batch, prompts aside. Raises ModelError for a text whose vector is not finite, and
    StorageError for vectors of other dimensions than the stored ones.
    """
    read, before = 0, encoder.tokens_read
    prompt = encoder.prompt(role)

    def compute(missing: npt.NDArray[np.int64]) -> Iterator[tuple[list[int], Floats]]:
        nonlocal read
        tokens = encoder.count_tokens([prompt + texts[i] for i in missing])  # together: their tokens may join
        taken = int(encoder.count_tokens([prompt])[0])

        def encode(batch: list[int]) -> Floats:
            return encoder.encode([texts[missing[i]] for i in batch], role)

        for batch, vectors in several_at_once(encode, list(encoder.batches(tokens)), encoder.parallel):
            chosen = missing[batch].tolist()
            bad = ~np.isfinite(vectors).all(axis=1)
            if bad.any():
                raise ModelError(f"{encoder.name}: no finite vector for the text {texts[chosen[bad.argmax()]][:80]!r}")
            yield chosen, vectors
            read += int(tokens[batch].sum())
            advance(int(tokens[batch].sum()) - taken * len(batch))

    vectors, missing = rows.fill(digest_texts(texts, prompt + "\0"), compute)
    return vectors, len(missing), (encoder.tokens_read - before) or read


def count_cut(encoder: Encoder, texts: Sequence[str], role: Role) -> int:
    """Return of how many texts the encoder does not read the end."""
    limit = encoder.limit if role == "passage" else encoder.query_limit
    return 0 if limit is None else int((encoder.count_tokens(texts) > limit).sum())


def several_at_once(one: Callable[[Batch], Out], plan: Sequence[Batch], workers: int) -> Iterator[tuple[Batch, Out]]:
    """Yield (batch, `one(batch)`) as they finish, `workers` of them under way at a time, each on one core."""
    if workers == 1 or len(plan) == 1:
        yield from ((batch, one(batch)) for batch in plan)
        return
    from joblib import Parallel, delayed

    torch = sys.modules.get("torch")  # an endpoint works without

    def on_one_core(batch: Batch) -> tuple[Batch, Out]:
        if torch:
            torch.set_num_threads(1)
        return batch, one(batch)

    before = torch.get_num_threads() if torch else 0
    try:
        # as they finish: one that is slow must not hold back what others have done from being stored
        made = Parallel(workers, backend="threading", return_as="generator_unordered")
        yield from made(map(delayed(on_one_core), plan))
    finally:
        if torch:
            torch.set_num_threads(before)


def batches(tokens: npt.NDArray[np.int32]) -> Iterator[list[int]]:
    """Yield positions of texts of equal token count, longest first, in batches of bounded size."""
    order = np.argsort(-tokens.astype(np.int64), kind="stable")
    counts = tokens[order]
    for run in np.split(order, np.flatnonzero(np.diff(counts)) + 1):
        if len(run):
            size = max(1, min(BATCH_TEXTS, BATCH_TOKENS // max(1, int(tokens[run[0]]))))
            for at in range(0, len(run), size):
                yield run[at : at + size].tolist()
