"""A static encoder made on the spot from another one: a vector for each token of its vocabulary, averaged over a text.

Each token goes through the model by itself; the vectors are centred, turned to their first 256 principal components,
and weighed down by how common a token is, which its place in the vocabulary tells (Zipf's law). Arora, Liang and Ma, "A
Simple but Tough-to-Beat Baseline for Sentence Embeddings" (2017), for the weights. Thousands of texts a second a core,
at a clearly lower quality than the model's own.
"""

__all__ = ["STATIC", "static_model"]

import shutil
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sweep.artifacts import fingerprint
from sweep.artifacts.files import locked
from sweep.retrieval.embedding import batches_under_way, several_at_once
from sweep.retrieval.models import Model, load, without_loading_bar
from sweep.retrieval.vectors import Floats

STATIC = "static:"
DIMENSIONS = 256
SMOOTHING = 1e-4
RECIPE = 1  # raise when the same model gives another static one
_BATCH = 256  # tokens


@dataclass(frozen=True)
class StaticModel(Model):
    """The static encoder of another model; its files are made when it is first loaded."""

    source: Model

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model that it is made from, and how."""
        return fingerprint("static", self.source.fingerprint, RECIPE)

    @cached_property
    def tokenizer(self) -> Any:
        """The source's tokenizer."""
        return self.source.tokenizer

    @property
    def longest(self) -> None:
        """It reads texts of any length."""
        return None

    @property
    def contextual(self) -> bool:
        """Each token has one vector."""
        return False

    @property
    def stated_prompts(self) -> dict[str, str]:
        """It has none."""
        return {}

    def ready(self) -> None:
        """Make the files where they are not there; several processes make them once."""
        if not (self.folder / "modules.json").exists():
            with locked(self.folder.with_suffix(".lock")):
                if not (self.folder / "modules.json").exists():
                    _make(self.source, self.folder)


def static_model(name: str, source: Model, cache: Path) -> Model:
    """Return the static encoder of a model, kept below `cache`."""
    return StaticModel(name, cache / "static" / fingerprint("static", source.fingerprint, RECIPE), source)


def _make(source: Model, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    vectors = _weighed(_token_vectors(source), source.tokenizer)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        with without_loading_bar():
            SentenceTransformer(modules=[StaticEmbedding(source.tokenizer, embedding_weights=vectors)]).save(
                str(temporary), create_model_card=False
            )
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _token_vectors(source: Model) -> Floats:
    """Return the model's vector of each token of its vocabulary by itself, float32 (vocabulary, d)."""
    import torch

    model = load(source, "SentenceTransformer", "float32")
    before, after = _around(source.tokenizer)
    size = max(source.tokenizer.get_vocab().values()) + 1

    def vectors(tokens: range) -> Floats:
        ids = torch.tensor([[*before, token, *after] for token in tokens], device=model.device)
        with torch.inference_mode():
            made = model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["sentence_embedding"]
        return np.asarray(made.float().cpu().numpy(), np.float32)

    plan = [range(at, min(at + _BATCH, size)) for at in range(0, size, _BATCH)]
    found = dict(several_at_once(vectors, plan, batches_under_way(model)))
    return np.concatenate([found[tokens] for tokens in plan])


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens that go before and after a text."""
    marked, plain = tokenizer.encode("a").ids, tokenizer.encode("a", add_special_tokens=False).ids
    at = next(i for i in range(len(marked)) if marked[i : i + len(plain)] == plain)
    return marked[:at], marked[at + len(plain) :]


def _weighed(vectors: Floats, tokenizer: Any) -> Floats:
    """Return the principal components of the tokens' vectors, common and special tokens made small and nothing."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums of several threads differ in their last bits
        centred = vectors - vectors.mean(axis=0)
        _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
        turned = centred @ axes[:, ::-1][:, :DIMENSIONS]
    chance = 1 / (1.0 + np.arange(len(vectors)))
    chance /= chance.sum()
    special = [i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    weighed = turned * (SMOOTHING / (SMOOTHING + chance))[:, None]
    weighed[special] = 0
    return np.ascontiguousarray(weighed, np.float32)
