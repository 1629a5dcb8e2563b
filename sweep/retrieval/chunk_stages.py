"""Documents → tokens ─► chunks ─► texts that models and keyword indexes read: the stages before any model."""

__all__ = ["ChunkStages"]

from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from sweep.artifacts import Artifact, Store, fingerprint
from sweep.collection.collection import Collection
from sweep.errors import SettingsError
from sweep.retrieval.chunk_context import contexts
from sweep.retrieval.chunkers import CHUNKERS
from sweep.retrieval.chunking import Chunks, cut, overlap_tokens
from sweep.retrieval.configuration import Chunking
from sweep.retrieval.encoders import Models
from sweep.retrieval.progress import Progress
from sweep.retrieval.structure import Structure, structure
from sweep.retrieval.tokens import Tokens, tokenize


@dataclass(eq=False)
class ChunkStages:
    """Tokens, structure and chunks of one collection, each made once and kept in the store.

    tokenizer: the model whose tokens chunk sizes count.
    """

    collection: Collection
    store: Store
    tokenizer: str
    models: Models
    _: KW_ONLY
    allow_truncation: bool
    progress: Progress

    def __post_init__(self) -> None:
        self.chunks = lru_cache(maxsize=8)(self._cut)
        self.truncated = lru_cache(maxsize=None)(self._truncated)

    def texts(self, chunking: Chunking, codes: npt.NDArray[np.int64] | None = None) -> list[str]:
        """Return what a model and a keyword index read of the chunks (of these codes): context and text."""
        chunks = self.chunks(chunking)
        chosen = chunks if codes is None else chunks.take(codes)
        texts, context = self.collection.texts, chunking.context
        if context == "none":
            return chosen.texts(texts)
        structure = self._structure if context == "headings" else None
        before = contexts(chosen, texts, self.collection.titles, context, structure)
        return [b + t for b, t in zip(before, chosen.texts(texts), strict=True)]

    def _truncated(self, model: str, chunking: Chunking, beside: int = 0) -> float:
        """Return the share of chunks of which a model does not read the end, `beside` tokens of its limit being taken.

        Raises SettingsError where that is more than none and not allowed.
        """
        reader, chunks = self.models.encoder(model), self.chunks(chunking)
        if reader.limit is None or not len(chunks):
            return 0.0
        limit = reader.limit - beside

        def count() -> Artifact:
            self.progress.stage(f"counting tokens of chunks {chunking} for {model}")
            return Artifact({"tokens": reader.count_tokens(self.texts(chunking))})

        tokenizer = self.models.tokenizer_fingerprint(model)
        key = fingerprint(self.texts_key(chunking), tokenizer)
        lengths, _ = self.store.get_or_build("lengths", key, count)
        share = float((lengths["tokens"] > limit).mean())
        if share and not self.allow_truncation:
            raise SettingsError(
                f"{f'chunk_size {chunking.size}' if chunking.size else f'chunks {chunking}'}: {share:.1%} of the "
                f"chunks have more than the {limit} tokens that {model} reads; use sizes up to {limit}"
                f"{' with the context' if chunking.context != 'none' else ''}, or say allow_truncation: true"
            )
        return share

    @cached_property
    def tokens(self) -> Tokens:
        """The token offsets of the documents."""

        def build() -> Artifact:
            self.progress.stage(f"tokenising {len(self.collection.texts)} documents")
            tokens = tokenize(self.models.tokenizer(self.tokenizer), self.collection.texts)
            return Artifact({"indptr": tokens.indptr, "start": tokens.start, "first": tokens.first})

        found, _ = self.store.get_or_build("tokens", self._tokens_key, build)
        return Tokens(found["indptr"], found["start"], found["first"])

    @property
    def _tokens_key(self) -> str:
        tokenizer = self.models.tokenizer_fingerprint(self.tokenizer)
        return fingerprint(self.collection.documents_fingerprint, tokenizer)

    @cached_property
    def _structure(self) -> Structure:
        names = [f.name for f in fields(Structure)]

        def build() -> Artifact:
            self.progress.stage("finding sentences and headings")
            made = structure(self.collection.texts, self.collection.titles)
            return Artifact({n: getattr(made, n) for n in names})

        found, _ = self.store.get_or_build("structure", self.collection.documents_fingerprint, build)
        return Structure(*(found[n] for n in names))

    def chunks_key(self, chunking: Chunking) -> str:
        """Return the fingerprint of the chunks, whatever stands before them."""
        size = chunking.size
        return fingerprint(self._tokens_key, chunking.chunker, size, overlap_tokens(size or 0, chunking.overlap))

    def texts_key(self, chunking: Chunking) -> str:
        """Return the fingerprint of the chunks with their context."""
        return fingerprint(self.chunks_key(chunking), chunking.context)

    def _cut(self, chunking: Chunking) -> Chunks:
        names = [f.name for f in fields(Chunks)]

        def build() -> Artifact:
            self.progress.stage(f"cutting chunks {chunking}")
            made = cut(
                self.tokens,
                self.collection.texts,
                chunker=chunking.chunker,
                size=chunking.size,
                overlap=chunking.overlap,
                structure=self._structure if CHUNKERS[chunking.chunker].reads_structure else None,
            )
            return Artifact({n: getattr(made, n) for n in names})

        found, _ = self.store.get_or_build("chunks", self.chunks_key(chunking), build)
        return Chunks(*(found[n] for n in names))
