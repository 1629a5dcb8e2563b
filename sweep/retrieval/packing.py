"""Chunkers that follow the structure of a text: it is split into units that fit, and neighbours are packed together.

A unit is as coarse as fits into a chunk: whatever does not fit at one level is split at the next, down to words, and a
word of more than a chunk into characters. A heading is never parted from its text while the first words fit.
"""

__all__ = ["markdown", "recursive", "sentences"]

import numpy as np
import numpy.typing as npt

from sweep.retrieval.cut_points import CHARACTER, DOCUMENT, WORD, CutPoints, Ranges
from sweep.retrieval.structure import HEADING, LINE, PARAGRAPH, SECTION, SENTENCE


def sentences(points: CutPoints, size: int, overlap: int) -> Ranges:
    """Return ranges of whole sentences; one that is longer than a chunk is cut between words."""
    return _pack(points, (SENTENCE,), DOCUMENT, size, overlap)


def recursive(points: CutPoints, size: int, overlap: int) -> Ranges:
    """Return ranges of whole paragraphs; one that is longer than a chunk is cut into lines, sentences, words."""
    return _pack(points, (PARAGRAPH, LINE, SENTENCE), DOCUMENT, size, overlap)


def markdown(points: CutPoints, size: int, overlap: int) -> Ranges:
    """Return ranges as `recursive` does within each section: no chunk and no overlap goes across a heading."""
    return _pack(points, (PARAGRAPH, LINE, SENTENCE), DOCUMENT | SECTION, size, overlap)


def _pack(points: CutPoints, levels: tuple[int, ...], walls: int, size: int, overlap: int) -> Ranges:
    """Return ranges of as many whole units as fit into a chunk, each begun by the last that fit into the overlap.

    Every range goes beyond the one before it; none crosses a token of which the marks have one of the `walls`.
    """
    edge = _units(points.marks, levels, walls, size)
    unit = np.arange(len(edge))
    wall = np.append((points.marks[edge[:-1]] & walls) > 0, True)
    walled = np.flatnonzero(wall)
    reach = np.maximum(np.searchsorted(edge, edge + size, "right") - 1, unit + 1)
    reach = np.minimum(reach, np.append(walled, len(edge))[np.searchsorted(walled, unit, "right")])
    back = np.maximum(np.searchsorted(edge, edge - overlap), np.searchsorted(reach, unit, "right"))
    goes_to, goes_on = reach.data, np.where(wall, unit, back).data
    begins: list[int] = []
    ends: list[int] = []
    at, last = 0, len(edge) - 1
    while at < last:
        end = goes_to[at]
        begins.append(at)
        ends.append(end)
        at = goes_on[end]
    return edge[begins], edge[ends]


def _units(marks: npt.NDArray[np.uint8], levels: tuple[int, ...], walls: int, size: int) -> npt.NDArray[np.int64]:
    """Return where units begin among the tokens, ascending, and the number of tokens."""
    headed = (marks & HEADING) > 0
    begins = (marks & walls) > 0
    for level in (*levels, WORD, CHARACTER):
        edge = np.append(np.flatnonzero(begins), len(marks))
        long = np.diff(edge) > size
        if not long.any():
            return edge
        splits = (marks & level) > 0
        if level in levels:
            splits &= ~headed
        begins |= splits & np.repeat(long, np.diff(edge))
    return np.append(np.flatnonzero(begins), len(marks))
