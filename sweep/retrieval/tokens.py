"""Documents → token offsets. Each document is tokenised once, whatever is cut from it."""

__all__ = ["Ints", "Tokens", "tokenize"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token offsets of all documents in a row: document i owns `indptr[i]:indptr[i + 1]`.

    start: int32 (t,), the character at which each token starts; first: bool (t,), whether it starts a word.
    """

    indptr: npt.NDArray[np.int64]
    start: Ints
    first: npt.NDArray[np.bool_]


def tokenize(tokenizer: Any, texts: Sequence[str], advance: Callable[[int], None] = lambda n: None) -> Tokens:
    """Return the token offsets of every text; `tokenizer` is a `tokenizers.Tokenizer` without truncation.

    `advance` is told the number of texts done.
    """
    starts: list[Ints] = []
    firsts: list[npt.NDArray[np.bool_]] = []
    for at in range(0, len(texts), _BATCH):
        batch = list(texts[at : at + _BATCH])
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            start, first = _offsets(encoding)
            starts.append(start)
            firsts.append(first)
        advance(len(batch))
    counts = np.fromiter((len(s) for s in starts), np.int64, len(starts))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not starts:
        return Tokens(indptr, np.empty(0, np.int32), np.empty(0, np.bool_))
    return Tokens(indptr, np.concatenate(starts), np.concatenate(firsts))


def _offsets(encoding: Any) -> tuple[Ints, npt.NDArray[np.bool_]]:
    spans = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    words = np.array([-1 if w is None else w for w in encoding.word_ids], np.int64)
    start = spans[:, 0]
    first = np.ones(len(start), np.bool_)
    first[1:] = (words[1:] != words[:-1]) | (words[1:] < 0)
    return np.maximum.accumulate(start).astype(np.int32), first
