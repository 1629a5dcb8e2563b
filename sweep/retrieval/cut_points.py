"""Where chunks may begin among the tokens of all documents, for chunks of one size.

A cut inside a word would tokenise differently on its own, so chunks begin and end between words; only a word longer
than a chunk is cut, between characters. So that combining marks stay with their letter, a chunk ends where the next
token starts.
"""

__all__ = ["CHARACTER", "DOCUMENT", "WORD", "CutPoints", "Ranges", "cut_points"]

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sweep.retrieval.structure import Structure
from sweep.retrieval.tokens import Ints, Tokens

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Ranges = tuple[Longs, Longs]

LONG_WORD = 100  # characters; WordPiece makes one unknown token of a longer word, whatever its length
CHARACTER, WORD, DOCUMENT = 1, 2, 128  # beside the marks of structure.py


@dataclass(frozen=True, slots=True)
class CutPoints:
    """The tokens of all documents in a row (document i owns `indptr[i]:indptr[i + 1]`), those of long words spread.

    start: int32 (t,), the character at which each token starts. marks: uint8 (t,), the sum of what begins there, of
    CHARACTER, WORD, DOCUMENT and the marks of structure.py; a chunk begins at a word, or at a character of a long word.
    """

    indptr: Longs
    start: Ints
    marks: npt.NDArray[np.uint8]


def cut_points(tokens: Tokens, texts: Sequence[str], size: int | None, structure: Structure | None) -> CutPoints:
    """Return where chunks of at most `size` tokens may begin; None: where no word is cut, however long.

    The marks of a structure go to the first word, or character of a long word, that starts where its text may.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    indptr, start, first, spread = _spread(tokens, texts, lengths, size)
    filled = indptr[:-1][indptr[:-1] < indptr[1:]]
    rises = np.ones(len(start), np.bool_)  # a character of several tokens is not cut
    rises[1:] = start[1:] > start[:-1]
    rises[filled] = True
    marks = np.zeros(len(start), np.uint8)
    marks[rises] = CHARACTER
    marks[first & rises] |= WORD
    marks[filled] |= DOCUMENT
    if structure is not None:
        base = np.concatenate([[0], np.cumsum(lengths + 1)])[:-1]  # makes characters ascend over all documents
        allowed = np.flatnonzero(rises & (first | spread))
        at = (start + np.repeat(base, np.diff(indptr)))[allowed]
        found = np.searchsorted(at, structure.end + np.repeat(base, np.diff(structure.indptr)))
        there = found < len(at)
        np.bitwise_or.at(marks, allowed[found[there]], structure.kind[there])
    return CutPoints(indptr, start, marks)


def _spread(tokens: Tokens, texts: Sequence[str], lengths: Longs, size: int | None) -> tuple[Longs, Ints, Flags, Flags]:
    """Return indptr, start and first with the tokens of words that have to be cut spread over their characters.

    A part of a word may be more tokens by itself than within its word, but not more than its letters are. The fourth
    array says which tokens belong to such words.
    """
    indptr, start, first = tokens.indptr, tokens.start, tokens.first
    if size is None or not len(start):
        return indptr, start, first, np.zeros(len(start), np.bool_)
    stops = np.append(start[1:], 0)  # where the next token starts, or the text ends
    filled = indptr[:-1] < indptr[1:]
    stops[indptr[1:][filled] - 1] = lengths[filled]
    begins, ends = _long_words(start, stops, first, size)
    owners = np.searchsorted(indptr, begins, "right") - 1
    starts: list[Ints] = []
    firsts: list[Flags] = []
    spread: list[Flags] = []
    more, at = np.zeros(len(texts), np.int64), 0
    for i, j, code in zip(begins.tolist(), ends.tolist(), owners.tolist(), strict=True):
        stop = int(stops[j - 1])
        letters = [_letters(c) for c in texts[code][start[i] : stop]]
        counts = np.maximum(np.bincount(start[i:j] - start[i], minlength=len(letters)), letters)
        word = np.repeat(np.arange(start[i], stop, dtype=np.int32), counts)
        starts += [start[at:i], word]
        firsts += [first[at:i], np.arange(len(word)) == 0]
        spread += [np.zeros(i - at, np.bool_), np.ones(len(word), np.bool_)]
        more[code] += len(word) - (j - i)
        at = j
    starts.append(start[at:])
    firsts.append(first[at:])
    spread.append(np.zeros(len(start) - at, np.bool_))
    grown = indptr + np.concatenate([[0], np.cumsum(more)])
    return grown, np.concatenate(starts), np.concatenate(firsts), np.concatenate(spread)


def _long_words(start: Ints, stops: Ints, first: Flags, size: int) -> Ranges:
    """Return the token ranges of words of more than `size` tokens or with a token of more than LONG_WORD characters."""
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(start))
    long = ends - begins > size
    long[np.searchsorted(begins, np.flatnonzero(stops - start > LONG_WORD), "right") - 1] = True
    return begins[long], ends[long]


@lru_cache(maxsize=10_000)
def _letters(character: str) -> int:
    """Return the most tokens that a character can be: its letters when decomposed; 0 for a mark."""
    return sum(
        not unicodedata.category(c).startswith(("Mn", "Me", "C", "Z")) for c in unicodedata.normalize("NFD", character)
    )
