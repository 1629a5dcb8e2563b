"""From a name to an encoder: the packaged model, a folder, a hub's id, static:MODEL, or what the study declares."""

__all__ = ["EncoderSpec", "Models"]

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sweep.artifacts import fingerprint
from sweep.errors import ModelError
from sweep.retrieval.embedding import Encoder, SentenceTransformerEncoder
from sweep.retrieval.endpoint import EndpointEncoder
from sweep.retrieval.models import Model, find_model
from sweep.retrieval.static_encoder import STATIC, static_model

_OF_MODELS = {"query_prompt", "passage_prompt", "dtype"}
_OF_ENDPOINTS = {"api_key_env", "batch_size", "parallel", "requests_per_minute", "dimensions", "tokenizer"}


class EncoderSpec(BaseModel):
    """One entry of a study's `encoders`: a model with other settings than its own, or an endpoint.

    model: id or folder; at an endpoint its name there. query_prefix, passage_prefix: put before every text.
    query_prompt, passage_prompt: one of the model's own prompts by name. max_seq_length: tokens read, special ones
    included. dtype: default bfloat16 where the processor multiplies it, else float32. endpoint: the base URL of an
    OpenAI-compatible service, with api_key_env (the environment variable that holds the key), batch_size, parallel
    (requests under way), requests_per_minute, dimensions, and tokenizer (the model whose tokens count its texts).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    query_prefix: str | None = None
    passage_prefix: str | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_seq_length: int | None = Field(default=None, ge=8)
    dtype: Literal["bfloat16", "float16", "float32"] | None = None
    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/@\s]+(/[^\s?#]*)?$")
    api_key_env: str | None = Field(default=None, min_length=1)
    batch_size: int = Field(default=64, ge=1, le=2048)
    parallel: int = Field(default=4, ge=1, le=64)
    requests_per_minute: float | None = Field(default=None, gt=0)
    dimensions: int | None = Field(default=None, ge=1)
    tokenizer: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for role in ("query", "passage"):
            if getattr(self, f"{role}_prefix") is not None and getattr(self, f"{role}_prompt") is not None:
                raise ValueError(f"give {role}_prefix or {role}_prompt, not both")
        if idle := sorted((_OF_MODELS if self.endpoint else _OF_ENDPOINTS) & self.model_fields_set):
            where = "an endpoint" if self.endpoint else "a model without endpoint"
            raise ValueError(f"{', '.join(idle)} does not belong to {where}; leave it out")
        if self.endpoint and self.tokenizer is None:
            raise ValueError("an endpoint needs tokenizer: the model whose tokens count its texts")
        return self


class Models:
    """The encoders and tokenizers of a study by name: packaged, a folder, a hub id, static:MODEL, or declared.

    declared: the study's `encoders`. folder: what paths are relative to. cache: where static encoders are kept.
    """

    def __init__(self, declared: Mapping[str, EncoderSpec], folder: Path, cache: Path) -> None:
        self.declared, self.folder, self.cache = dict(declared), folder, cache
        self.encoder = lru_cache(maxsize=None)(self._encoder)
        self.tokenizer_fingerprint = lru_cache(maxsize=None)(self._tokenizer_fingerprint)

    def _encoder(self, name: str) -> Encoder:
        """Return the encoder of a name; its model is loaded, and a static one made, when a text needs it.

        Raises ModelError for a model that cannot be had, an unknown prompt, and more tokens than it has positions for.
        """
        spec = self.declared.get(name)
        if spec is None:
            return SentenceTransformerEncoder(self.model(name))
        if spec.endpoint:
            return EndpointEncoder(name, spec, self.tokenizer(name))
        model = self.model(name)
        if spec.max_seq_length and not model.contextual:
            raise ModelError(f"encoders.{name}: {spec.model} reads texts of any length; leave max_seq_length out")
        positions = model.positions
        if spec.max_seq_length and positions and spec.max_seq_length > positions:
            raise ModelError(
                f"encoders.{name}: max_seq_length {spec.max_seq_length}: {spec.model} has {positions} positions"
            )
        prompts = {role: _prompt(name, spec, model, role) for role in ("query", "passage")}
        return SentenceTransformerEncoder(model, prompts, spec.max_seq_length, spec.dtype)

    def model(self, name: str) -> Model:
        """Return the files of a local model. Raises ModelError."""
        spec = self.declared.get(name)
        if spec and spec.endpoint:
            raise ModelError(f"{name} is an endpoint; a model with files is needed here")
        source = spec.model if spec else name
        if source.startswith(STATIC):
            return static_model(name, find_model(source.removeprefix(STATIC), self.folder), self.cache)
        model = find_model(source, self.folder)
        return Model(name, model.folder) if spec else model

    def tokenizer(self, name: str) -> Any:
        """Return the `tokenizers.Tokenizer` of a model or endpoint, without truncation. Raises ModelError."""
        spec = self.declared.get(name)
        source = (spec.tokenizer or spec.model) if spec else name
        return find_model(source.removeprefix(STATIC), self.folder).tokenizer

    def _tokenizer_fingerprint(self, name: str) -> str:
        """Return the hash of a tokenizer alone: models that share one share its chunks."""
        return fingerprint(self.tokenizer(name).to_str())


def _prompt(name: str, spec: EncoderSpec, model: Model, role: Literal["query", "passage"]) -> str:
    prefix, wanted = getattr(spec, f"{role}_prefix"), getattr(spec, f"{role}_prompt")
    if wanted is None:
        return model.prompts[role] if prefix is None else str(prefix)
    if wanted not in model.stated_prompts:
        there = ", ".join(sorted(model.stated_prompts)) or "none"
        raise ModelError(f"encoders.{name}: {role}_prompt {wanted!r}: {spec.model} has {there}; or give {role}_prefix")
    return model.stated_prompts[wanted]
