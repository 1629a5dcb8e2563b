"""Chunkers that know of words only: windows of tokens, and whole documents."""

__all__ = ["documents", "windows"]

from itertools import pairwise

import numpy as np

from sweep.retrieval.cut_points import CHARACTER, WORD, CutPoints, Ranges


def documents(points: CutPoints, _size: int, _overlap: int) -> Ranges:
    """Return one range for each document that has tokens."""
    begin, end = points.indptr[:-1], points.indptr[1:]
    return begin[begin < end], end[begin < end]


def windows(points: CutPoints, size: int, overlap: int) -> Ranges:
    """Return the windows of at most `size` tokens, each beginning `overlap` tokens before the last one's end.

    Where that is inside a word, it begins with the word. Every window goes beyond the one before it.
    """
    at = np.arange(len(points.start))
    word = np.maximum.accumulate(np.where(points.marks & WORD, at, 0)).data  # where each token's word begins
    character = np.maximum.accumulate(np.where(points.marks & CHARACTER, at, 0)).data
    begins: list[int] = []
    ends: list[int] = []
    stops = points.indptr.tolist()
    for i, stop in pairwise(stops):
        reached = i
        while reached < stop:
            j = _end(word, character, i, size, stop)
            if j <= reached:  # the overlap leaves no room for the next word: begin where the last window ended
                i = reached
                j = _end(word, character, i, size, stop)
            begins.append(i)
            ends.append(j)
            reached = j
            i = word[max(i, j - overlap)] if j < stop else stop
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _end(word: memoryview, character: memoryview, i: int, size: int, stop: int) -> int:
    """Return the end of the window from token i: between words, else between characters, else after one character."""
    j = i + size
    if j >= stop:
        return stop
    if word[j] > i:
        return word[j]
    if character[j] > i:
        return character[j]
    while j < stop and character[j] <= i:
        j += 1
    return j
