"""An encoder behind an OpenAI-compatible endpoint: POST {endpoint}/embeddings."""

__all__ = ["EndpointEncoder"]

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweep.artifacts import fingerprint
from sweep.errors import ModelError
from sweep.retrieval.embedding import Role
from sweep.retrieval.http import Client, RequestFailedError
from sweep.retrieval.models import token_counts
from sweep.retrieval.vectors import Floats

if TYPE_CHECKING:
    from sweep.retrieval.encoders import EncoderSpec

TIMEOUT = 60.0
REQUEST_TOKENS = 100_000  # services refuse larger requests
TOO_LARGE = 413
CURES = {
    400: "; check model, dimensions and max_seq_length",
    401: "; check the key that api_key_env names",
    403: "; check the key that api_key_env names, and what it may use",
    404: "; check endpoint and model",
    413: "; use smaller chunks",
}


class EndpointEncoder:
    """Asks a service for vectors; its tokens are counted by the tokenizer that the study names for it.

    Texts of more tokens than `max_seq_length` are cut before they are sent, for services refuse them. tokens_read: as
    the service counts them.
    """

    def __init__(self, name: str, spec: "EncoderSpec", tokenizer: Any) -> None:
        self.name, self._spec, self._tokenizer = name, spec, tokenizer
        self.tokens_read = 0
        self._lock = threading.Lock()
        self.limit, self.query_limit = (self._room(role) for role in ("passage", "query"))
        key = {} if spec.api_key_env is None else {"Authorization": spec.api_key_env}
        self._client = Client(
            f"{str(spec.endpoint).rstrip('/')}/embeddings",
            key,
            timeout=TIMEOUT,
            requests_per_minute=spec.requests_per_minute,
            prefix="Bearer ",
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the endpoint, the model, the dimensions, the prompts, and what cuts long texts; never of the key."""
        cut = self._spec.max_seq_length and [self._spec.max_seq_length, fingerprint(self._tokenizer.to_str())]
        prompts = {role: self.prompt(role) for role in ("query", "passage")}
        return fingerprint("endpoint", self._client.url, self._spec.model, self._spec.dimensions, prompts, cut)

    def prompt(self, role: Role) -> str:
        """Return the prefix that the study gives for the role."""
        return (self._spec.query_prefix if role == "query" else self._spec.passage_prefix) or ""

    def count_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of each text by the tokenizer named for it, int32 (n,)."""
        return token_counts(self._tokenizer, texts)

    @property
    def waited(self) -> float:
        """Seconds for which requests were held back: the service's limit is no latency."""
        return self._client.waited

    @property
    def parallel(self) -> int:
        """How many requests to have under way at once."""
        return self._spec.parallel

    def batches(self, tokens: npt.NDArray[np.int32]) -> Iterator[list[int]]:
        """Put `batch_size` texts into a request, fewer where they are long."""
        batch: list[int] = []
        total = 0
        for at, count in enumerate(tokens.tolist()):
            if batch and (len(batch) == self._spec.batch_size or total + count > REQUEST_TOKENS):
                yield batch
                batch, total = [], 0
            batch.append(at)
            total += count
        if batch:
            yield batch

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        """Return the vectors of one batch as the service gives them, float32 (n, d); too large a batch goes in halves.

        Raises ModelError for a refusal, and for an answer without one vector of numbers for each text.
        """
        payload: dict[str, Any] = {
            "model": self._spec.model,
            "input": self._inputs(texts, role),
            "encoding_format": "float",
        }
        if self._spec.dimensions is not None:
            payload["dimensions"] = self._spec.dimensions
        try:
            answer = self._client.post(payload)
        except RequestFailedError as fault:
            if fault.status == TOO_LARGE and len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate([self.encode(texts[:half], role), self.encode(texts[half:], role)])
            raise ModelError(f"encoders.{self.name}: {fault}{CURES.get(fault.status, '')}") from None
        vectors = self._vectors(answer, len(texts))
        with self._lock:
            self.tokens_read += _tokens_used(answer)
        return vectors

    def _room(self, role: Role) -> int | None:
        """Return the most tokens of a text that are read after the role's prompt."""
        if self._spec.max_seq_length is None:
            return None
        room = self._spec.max_seq_length - int(self.count_tokens([self.prompt(role)])[0])
        if room < 1:
            raise ModelError(
                f"encoders.{self.name}: {role}_prefix leaves no room in {self._spec.max_seq_length} tokens"
            )
        return room

    def _inputs(self, texts: Sequence[str], role: Role) -> list[str]:
        limit = self.limit if role == "passage" else self.query_limit
        if limit is not None:
            found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
            ends = [e.offsets[limit - 1][1] if len(e.ids) > limit else None for e in found]
            texts = [text[:end] for text, end in zip(texts, ends, strict=True)]
        return [self.prompt(role) + text for text in texts]

    def _vectors(self, answer: Any, count: int) -> Floats:
        try:
            found = {int(row["index"]): row["embedding"] for row in answer["data"]}
            vectors = np.array([found[i] for i in range(len(answer["data"]))], np.float32)
        except (TypeError, KeyError, ValueError, OverflowError):
            vectors = np.empty((0, 0), np.float32)
        if vectors.ndim != 2 or len(vectors) != count or not vectors.size:
            raise ModelError(
                f"encoders.{self.name}: {self._client.url} does not answer with one vector of numbers for each of "
                f"{count} texts; is it an OpenAI-compatible embeddings endpoint?"
            )
        if self._spec.dimensions not in (None, vectors.shape[1]):
            raise ModelError(
                f"encoders.{self.name}: asked for {self._spec.dimensions} dimensions, {self._client.url} gives "
                f"{vectors.shape[1]}; leave dimensions out, or give what the model can do"
            )
        return vectors


def _tokens_used(answer: Mapping[str, Any]) -> int:
    """Return the tokens that the service counted; 0 where it does not say."""
    usage = answer.get("usage")
    counts = [usage.get(key) for key in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if isinstance(count, int) and count > 0), 0)
