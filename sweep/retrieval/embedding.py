"""Texts → vectors, each distinct text once for each encoder, kept as batches finish.

Texts of equal token length share a batch. So no batch is padded, and a text's vector does not depend on what else is
in its batch: an interrupted, extended or parallel run gives the same vectors, bit for bit.
"""

__all__ = ["Encoder", "SentenceTransformerEncoder", "batches", "batches_under_way", "embed", "several_at_once", "unit"]

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sweep.artifacts import Rows, digest_texts, fingerprint
from sweep.errors import ModelError
from sweep.retrieval.models import Model, without_loading_bar

Floats = npt.NDArray[np.float32]
Role = Literal["query", "passage"]
Batch = TypeVar("Batch")
Out = TypeVar("Out")
BATCH_TOKENS = 4096
BATCH_TEXTS = 64


class Encoder(Protocol):
    """What turns texts into vectors."""

    name: str
    limit: int | None  # tokens of a text that it reads; None for no limit

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors would."""

    def prompt(self, role: Role) -> str:
        """Return the text put before every text of this role."""

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of each text, special tokens and truncation left aside, int32 (n,)."""

    @property
    def parallel(self) -> int:
        """How many batches to have under way at once."""

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        """Return unit vectors of one batch, float32 (n, d)."""


class SentenceTransformerEncoder:
    """A sentence-transformers model; loaded when the first text needs it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.name
        self.limit = model.limit

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's files and the precision."""
        return fingerprint("sentence-transformers", self.model.fingerprint, precision())

    def prompt(self, role: Role) -> str:
        """Return the model's own prompt for the role."""
        return self.model.prompts[role]

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of each text by the model's tokenizer, int32 (n,)."""
        counts: list[int] = []
        for at in range(0, len(texts), 1000):
            encoded = self.model.tokenizer.encode_batch(list(texts[at : at + 1000]), add_special_tokens=False)
            counts += [len(e.ids) for e in encoded]
        return np.array(counts, np.int32)

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        """Return unit vectors, float32 (n, d)."""
        vectors = self._loaded.encode(
            list(texts), prompt=self.prompt(role), batch_size=len(texts), show_progress_bar=False,
            convert_to_tensor=True,
        )  # fmt: skip
        return unit(vectors.float().cpu().numpy())

    def token_vectors(self, texts: Sequence[str], role: Role) -> list[Floats]:
        """Return the unit vectors of each text's tokens, special tokens included, float32 (tokens, d) each."""
        vectors = self._loaded.encode(
            list(texts), prompt=self.prompt(role), batch_size=len(texts), show_progress_bar=False,
            output_value="token_embeddings", convert_to_tensor=True,
        )  # fmt: skip
        return [unit(v.float().cpu().numpy()) for v in vectors]

    @property
    def parallel(self) -> int:
        """One batch a core: cores share one small batch badly, and the vectors are the same bit for bit."""
        return batches_under_way(self._loaded)

    @cached_property
    def _loaded(self) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer

        options = {"dtype": getattr(torch, precision()), "use_safetensors": True}
        try:
            with without_loading_bar():
                return SentenceTransformer(str(self.model.folder), model_kwargs=options, local_files_only=True)
        except Exception as fault:
            raise ModelError(f"{self.name}: cannot be loaded from {self.model.folder}: {fault}") from fault


def batches_under_way(model: Any) -> int:
    """Return how many batches suit the device of a loaded model: one a core, one on an accelerator."""
    import torch

    return 1 if model.device.type != "cpu" else int(torch.get_num_threads())


def precision() -> str:
    """Return "bfloat16" where the processor multiplies it in hardware, else "float32"."""
    import torch

    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


def embed(
    encoder: Encoder,
    rows: Rows,
    texts: Sequence[str],
    role: Role,
    advance: Callable[[int], None] = lambda tokens: None,
) -> tuple[Floats, int]:
    """Return (unit vectors float32 (n, d) of `texts`, how many texts were embedded now).

    Vectors stored in `rows` are read; the others are computed in batches, each stored as it finishes. `advance` is
    told the tokens of each batch. Raises ModelError for a text whose vector is not finite.
    """

    def compute(missing: npt.NDArray[np.int64]) -> Iterator[tuple[list[int], Floats]]:
        tokens = encoder.count_tokens([texts[i] for i in missing])
        plan = list(batches(tokens if encoder.limit is None else np.minimum(tokens, encoder.limit)))

        def encode(batch: list[int]) -> Floats:
            return encoder.encode([texts[missing[i]] for i in batch], role)

        for batch, vectors in zip(plan, several_at_once(encode, plan, encoder.parallel), strict=True):
            chosen = missing[batch].tolist()
            bad = ~np.isfinite(vectors).all(axis=1)
            if bad.any():
                raise ModelError(f"{encoder.name}: no finite vector for the text {texts[chosen[bad.argmax()]][:80]!r}")
            yield chosen, vectors
            advance(int(tokens[batch].sum()))

    vectors, missing = rows.fill(digest_texts(texts, encoder.prompt(role) + "\0"), compute)
    return vectors, len(missing)


def several_at_once(one: Callable[[Batch], Out], plan: Sequence[Batch], workers: int) -> Iterator[Out]:
    """Yield `one(batch)` for each batch in order, `workers` of them under way at a time, each on one core."""
    if workers == 1 or len(plan) == 1:
        yield from map(one, plan)
        return
    import torch
    from joblib import Parallel, delayed

    def on_one_core(batch: Batch) -> Out:
        torch.set_num_threads(1)
        return one(batch)

    before = torch.get_num_threads()
    try:
        yield from Parallel(workers, backend="threading", return_as="generator")(map(delayed(on_one_core), plan))
    finally:
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


def unit(vectors: Floats) -> Floats:
    """Return the vectors at length one, float32 C-contiguous; a zero vector stays zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0), np.float32)
