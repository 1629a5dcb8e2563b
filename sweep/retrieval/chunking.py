"""Documents → chunks, cut from token offsets: each document is tokenised once, whatever the sizes and overlaps.

A chunk starts where its first token starts and ends where the next token starts, white space trimmed, so that
combining marks stay with their letter and nothing but white space falls between chunks. A cut inside a word would
tokenise differently on its own, so chunks begin and end between words; only a word longer than a chunk is cut.
"""

__all__ = ["Chunks", "Tokens", "context_tokens", "cut", "overlap_tokens", "tokenize"]

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.errors import SettingsError

Ints = npt.NDArray[np.int32]
LONG_WORD = 100  # characters; WordPiece makes one unknown token of a longer word, whatever its length
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token offsets of all documents in a row: document i owns `indptr[i]:indptr[i + 1]`.

    start: int32 (t,), the character at which each token starts; first: bool (t,), whether it starts a word.
    """

    indptr: npt.NDArray[np.int64]
    start: Ints
    first: npt.NDArray[np.bool_]


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


def cut(tokens: Tokens, texts: Sequence[str], size: int, overlap: float) -> Chunks:
    """Return the windows of at most `size` tokens, each beginning `overlap` × size tokens before the last one's end.

    Every window goes beyond the one before it, so no chunk lies within its neighbour. A blank document has none.
    Raises SettingsError for a size below 1 or an overlap outside 0…0.5.
    """
    if size < 1 or not 0 <= overlap <= 0.5:
        raise SettingsError(
            f"chunk_size {size} and chunk_overlap {overlap}: the size is from 1, the overlap from 0 to 0.5"
        )
    doc: list[int] = []
    start: list[int] = []
    end: list[int] = []
    count: list[int] = []
    token: list[int] = []
    for code, text in enumerate(texts):
        lo, hi = int(tokens.indptr[code]), int(tokens.indptr[code + 1])
        where, first = _cuttable(tokens.start[lo:hi], tokens.first[lo:hi], text, size)
        for i, j in _windows(where, first, size, overlap_tokens(size, overlap)):
            a = 0 if i == 0 else int(where[i])
            b = len(text) if j == len(where) else int(where[j])
            piece = text[a:b]
            a += len(piece) - len(piece.lstrip())
            b -= len(piece) - len(piece.rstrip())
            if a < b:
                doc.append(code)
                start.append(a)
                end.append(b)
                count.append(j - i)
                token.append(i)
    return Chunks(*(np.array(column, np.int32) for column in (doc, start, end, count, token)))


def _cuttable(start: Ints, first: npt.NDArray[np.bool_], text: str, size: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the tokens with those of words that have to be cut spread over their characters.

    A part of a word may be more tokens by itself than within its word, but not more than its letters are.
    """
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(start))
    long = np.diff(np.append(start, len(text))) > LONG_WORD
    cut_up = (ends - begins > size) | (np.add.reduceat(long, begins) > 0 if len(begins) else False)
    parts, at = [], 0
    for i, j in zip(begins[cut_up].tolist(), ends[cut_up].tolist(), strict=True):
        stop = int(start[j]) if j < len(start) else len(text)
        letters = [_letters(c) for c in text[start[i] : stop]]
        counts = np.maximum(np.bincount(start[i:j] - start[i], minlength=len(letters)), letters)
        spread = np.repeat(np.arange(start[i], stop, dtype=np.int32), counts)
        parts += [(start[at:i], first[at:i]), (spread, np.arange(len(spread)) == 0)]
        at = j
    if not parts:
        return start, first
    parts.append((start[at:], first[at:]))
    return np.concatenate([s for s, _ in parts]), np.concatenate([f for _, f in parts])


@lru_cache(maxsize=10_000)
def _letters(character: str) -> int:
    """Return the most tokens that a character can be: its letters when decomposed; 0 for a mark."""
    return sum(
        not unicodedata.category(c).startswith(("Mn", "Me", "C", "Z")) for c in unicodedata.normalize("NFD", character)
    )


def overlap_tokens(size: int, overlap: float) -> int:
    """Return the tokens of an overlap that is a share of the size, rounded down: .29 of 100 is 29."""
    return int(round(size * overlap, 6))


def _windows(start: Ints, first: npt.NDArray[np.bool_], size: int, overlap: int) -> list[tuple[int, int]]:
    """Return token ranges [i, j) from the tokens' characters and the marks of those that start a word."""
    n = len(start)
    if not n:
        return []
    rises = np.concatenate([[True], start[1:] > start[:-1]])  # a character of several tokens is not cut
    at = np.arange(n)
    word = np.maximum.accumulate(np.where(first & rises, at, 0)).tolist()  # where the word of each token starts
    character = np.maximum.accumulate(np.where(rises, at, 0)).tolist()
    windows: list[tuple[int, int]] = []
    i = reached = 0
    while True:
        j = _end(word, character, i, size)
        if j <= reached:  # the overlap leaves no room for the next word: begin where the last window ended
            i = reached
            j = _end(word, character, i, size)
        windows.append((i, j))
        if j == n:
            return windows
        reached = j
        back = word[j - overlap]
        i = back if i < back < j else j


def _end(word: list[int], character: list[int], i: int, size: int) -> int:
    """Return the end of the window from token i: between words, else between characters, else after one character."""
    n, j = len(word), i + size
    if j >= n:
        return n
    if word[j] > i:
        return word[j]
    if character[j] > i:
        return character[j]
    while j < n and character[j] <= i:
        j += 1
    return j


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
