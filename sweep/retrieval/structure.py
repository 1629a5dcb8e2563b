"""Where paragraphs, lines, sentences and sections begin in every document, found once a collection.

A break is kept as the place where the text before it ends, white space excluded: whichever token comes next, with the
white space before it or without, belongs to what the break begins.
"""

__all__ = ["HEADING", "LINE", "PARAGRAPH", "SECTION", "SENTENCE", "Structure", "structure"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweep.retrieval.headings import Heading, markdown_headings

SENTENCE, LINE, PARAGRAPH, SECTION, HEADING = 2**2, 2**3, 2**4, 2**5, 2**6
BLOCK = 4000  # characters read at once: the library's time can grow with the square of them


@dataclass(frozen=True, slots=True)
class Structure:
    """Breaks and headings of all documents in a row: document i owns `indptr[i]:indptr[i + 1]` of the breaks.

    end: int32 (b,), the character at which the text before each break ends, ascending. kind: uint8 (b,), the sum of
    what begins after it: SENTENCE, LINE, PARAGRAPH (all three after a blank line), SECTION (a heading that does not
    directly follow another); HEADING where a heading stands before the break, which is no place to cut.
    Headings own `heading_indptr[i]:heading_indptr[i + 1]`: heading_start, heading_end int32 (h,), their characters with
    marks and underline; heading_level int8 (h,), 1–6, or 0 for the document's title as its first line.
    """

    indptr: npt.NDArray[np.int64]
    end: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    heading_indptr: npt.NDArray[np.int64]
    heading_start: npt.NDArray[np.int32]
    heading_end: npt.NDArray[np.int32]
    heading_level: npt.NDArray[np.int8]


def structure(texts: Sequence[str], titles: Sequence[str]) -> Structure:
    """Return the structure of every text; `titles`: one a text, "" where it has none.

    Headings are CommonMark's, ATX and Setext, outside lists, quotes and code; a front matter has none.
    """
    ends: list[int] = []
    kinds: list[int] = []
    found: list[Heading] = []
    counts = np.zeros((2, len(texts) + 1), np.int64)
    for code, (text, title) in enumerate(zip(texts, titles, strict=True)):
        headings = _headings(text, title)
        breaks = _breaks(text)
        _mark_headings(breaks, headings)
        for end in sorted(breaks):
            ends.append(end)
            kinds.append(breaks[end])
        found += headings
        counts[:, code + 1] = len(ends), len(found)
    start, stop, level = np.array(found, np.int32).reshape(-1, 3).T
    return Structure(
        counts[0],
        np.array(ends, np.int32),
        np.array(kinds, np.uint8),
        counts[1],
        start.copy(),
        stop.copy(),
        level.astype(np.int8),
    )


def _headings(text: str, title: str) -> list[Heading]:
    """Return the title, where it is the first line of the text and not all of it, and the Markdown headings."""
    if not title.strip() or not text.startswith(title) or text[len(title) : len(title) + 1] not in ("\n", "\r"):
        return markdown_headings(text)
    visible = Heading(len(title) - len(title.lstrip()), len(title.rstrip()), 0)
    return [visible, *markdown_headings(text, len(title))]


def _breaks(text: str) -> dict[int, int]:
    """Return {where the text before a break ends: kind} of lines, paragraphs and sentences."""
    breaks: dict[int, int] = {}
    at = end = 0
    blank = False
    for line in text.splitlines(keepends=True):
        seen = line.rstrip()
        if seen:
            if end:
                breaks[end] = SENTENCE | LINE | PARAGRAPH if blank else LINE
            end = at + len(seen)
        blank = not seen
        at += len(line)
    for sentence in _sentence_ends(text):
        if sentence < end:  # of the last visible character
            breaks[sentence] = breaks.get(sentence, 0) | SENTENCE
    return breaks


def _sentence_ends(text: str) -> Iterator[int]:
    """Yield where sentences end, white space excluded, as sentencex finds them in blocks of bounded length."""
    from sentencex import get_sentence_boundaries

    at = 0
    while at < len(text):
        found = get_sentence_boundaries("en", text[at : at + BLOCK])
        for sentence in found[:-1]:  # the last one may go on beyond the block
            seen = sentence["text"].rstrip()
            if seen:
                yield at + sentence["start_index"] + len(seen)
        at += found[-1]["start_index"] or BLOCK


def _mark_headings(breaks: dict[int, int], headings: list[Heading]) -> None:
    """Add SECTION before headings, and HEADING within and after them."""
    ordered = sorted(breaks)
    at, before = 0, -1
    for heading in headings:
        while at < len(ordered) and ordered[at] <= heading.start:
            at += 1
        if at and ordered[at - 1] != before:
            breaks[ordered[at - 1]] |= SECTION
        while at < len(ordered) and ordered[at] <= heading.end:
            breaks[ordered[at]] |= HEADING
            at += 1
        before = heading.end
