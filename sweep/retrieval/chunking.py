"""Documents → chunks, cut from token offsets: each document is tokenised once, whatever the chunkers and sizes.

A chunk starts where its first token starts and ends where the next token starts, white space trimmed, so that nothing
but white space falls between chunks.

    texts ─┬─► Tokens ────┬─► CutPoints ─► a chunker's ranges ─► Chunks
           └─► Structure ─┘
"""

__all__ = ["Chunks", "context_tokens", "cut", "overlap_tokens"]

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from sweep.errors import SettingsError
from sweep.retrieval.chunkers import CHUNKERS
from sweep.retrieval.cut_points import CutPoints, Ranges, cut_points
from sweep.retrieval.structure import Structure
from sweep.retrieval.tokens import Ints, Tokens


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks in document order, each array int32 (n,): document code, character range, tokens.

    The code of a chunk is its position, so ascending chunk code is ascending document id, then start: the tie rule.
    `first_token` is the chunk's first token within its document, by which overlaps are counted once.
    """

    doc: Ints
    start: Ints
    end: Ints
    tokens: Ints
    first_token: Ints

    def __len__(self) -> int:
        return len(self.doc)

    def take(self, codes: npt.NDArray[np.int64]) -> "Chunks":
        """Return the chunks of these codes, in their order."""
        return Chunks(*(getattr(self, f.name)[codes] for f in fields(self)))

    def texts(self, documents: Sequence[str]) -> list[str]:
        """Return the text of every chunk."""
        spans = zip(self.doc.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return [documents[d][s:e] for d, s, e in spans]


def cut(
    tokens: Tokens,
    texts: Sequence[str],
    *,
    chunker: str,
    size: int | None = None,
    overlap: float = 0.0,
    structure: Structure | None = None,
) -> Chunks:
    """Return the chunks of at most `size` tokens that a chunker of CHUNKERS makes, with `overlap` × size in common.

    structure: that of the texts, for a chunker that reads it. Every chunk goes beyond the one before it, so none lies
    within its neighbour. A blank document has none. Size and overlap do not matter to the chunker "document".
    Raises SettingsError for a size below 1 or an overlap outside 0…0.5, ValueError where the structure is missing.
    """
    row = CHUNKERS[chunker]
    if row.reads_structure and structure is None:
        raise ValueError(f"chunker {chunker!r} needs the structure of the texts")
    if not row.sized:
        size, overlap = None, 0.0
    elif size is None or size < 1 or not 0 <= overlap <= 0.5:
        raise SettingsError(
            f"chunk_size {size} and chunk_overlap {overlap}: the size is from 1, the overlap from 0 to 0.5"
        )
    points = cut_points(tokens, texts, size, structure if row.reads_structure else None)
    return _chunks(points, texts, row.ranges(points, size or 0, overlap_tokens(size or 0, overlap)))


def _chunks(points: CutPoints, texts: Sequence[str], ranges: Ranges) -> Chunks:
    """Return the chunks of token ranges, white space trimmed.

    Where a tokenizer makes tokens of white space, a range may be nothing else, or the same as its neighbour's but for
    them; it makes no chunk.
    """
    begin, end = ranges
    doc = np.searchsorted(points.indptr, begin, "right") - 1
    first = begin - points.indptr[doc]
    starts = np.where(first == 0, 0, points.start[begin])
    stops = np.append(points.start, 0)[end]
    last = np.flatnonzero(end == points.indptr[doc + 1])
    stops[last] = [len(texts[code]) for code in doc[last].tolist()]
    for at, (code, a, b) in enumerate(zip(doc.tolist(), starts.tolist(), stops.tolist(), strict=True)):
        piece = texts[code][a:b]
        starts[at] = a + len(piece) - len(piece.lstrip())
        stops[at] = b - len(piece) + len(piece.rstrip())
    made = Chunks(*(column.astype(np.int32) for column in (doc, starts, stops, end - begin, first)))
    made = made.take(np.flatnonzero(starts < stops))
    if len(made):
        made = made.take(np.flatnonzero(np.append(_differs(made.doc, made.start), True)))
        made = made.take(np.flatnonzero(np.append(True, _differs(made.doc, made.end))))
    return made


def _differs(doc: Ints, place: Ints) -> npt.NDArray[np.bool_]:
    """Return whether each chunk but the first has another document or place than the one before it, bool (n − 1,)."""
    changed: npt.NDArray[np.bool_] = (doc[1:] != doc[:-1]) | (place[1:] != place[:-1])
    return changed


def overlap_tokens(size: int, overlap: float) -> int:
    """Return the tokens of an overlap that is a share of the size, rounded down: .29 of 100 is 29."""
    return int(round(size * overlap, 6))


def context_tokens(chunks: Chunks, items: Ints) -> npt.NDArray[np.int64]:
    """Return the tokens handed over for each query, int64 (Q,): those of its chunks, overlaps counted once.

    `items`: int32 (Q, K) chunk codes, −1 where there is none.
    """
    if not len(chunks):
        return np.zeros(len(items), np.int64)
    order = np.sort(items, axis=1)  # ascending code: neighbours of one document stand side by side
    real = order >= 0
    doc = np.where(real, chunks.doc[order], -1)
    begin = chunks.first_token[order].astype(np.int64)
    finish = begin + chunks.tokens[order]
    shared = np.zeros(order.shape, np.int64)
    same = (doc[:, 1:] == doc[:, :-1]) & real[:, 1:]
    shared[:, 1:] = np.where(same, np.maximum(0, finish[:, :-1] - begin[:, 1:]), 0)
    total: npt.NDArray[np.int64] = np.where(real, finish - begin - shared, 0).sum(axis=1)
    return total
