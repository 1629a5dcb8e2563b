"""Text put before each chunk when it is embedded and when its keyword terms are counted.

Offsets and tokens stay those of the chunk; only what an encoder and a keyword index read is longer.
"""

__all__ = ["contexts"]

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from sweep.retrieval.chunking import Chunks
from sweep.retrieval.headings import heading_text
from sweep.retrieval.structure import Structure

SEPARATOR = " > "


def contexts(
    chunks: Chunks, texts: Sequence[str], titles: Sequence[str], kind: str, structure: Structure | None = None
) -> list[str]:
    """Return what stands before each chunk: "" or text that ends in a line break.

    kind: "none"; "title", the document's title, unless the chunk begins with it; "headings", the title and the headings
    above the chunk, outermost first, such as "Title > Part > Section", without those with which the chunk begins.
    titles: one a text, "" where it has none. structure: needed for "headings", as made from the same titles.
    """
    if kind == "none":
        return [""] * len(chunks)
    paths: list[list[str]] = [[]] * len(chunks)
    if kind == "headings":
        if structure is None:
            raise ValueError("chunk_context headings needs the structure of the texts")
        paths = _paths(chunks, texts, structure)
    clean = [" ".join(title.split()) for title in titles]
    found: list[str] = []
    for text, code, path in zip(chunks.texts(texts), chunks.doc.tolist(), paths, strict=True):
        title = clean[code]
        above = path if not title or path[:1] == [title] or _begins_with(text, titles[code].strip()) else [title, *path]
        found.append(SEPARATOR.join(above) + "\n" if above else "")
    return found


def _begins_with(text: str, title: str) -> bool:
    return text.startswith(title) and not text[len(title) : len(title) + 1].isalnum()


def _paths(chunks: Chunks, texts: Sequence[str], structure: Structure) -> list[list[str]]:
    """Return what the headings above each chunk say, outermost first."""
    indptr = structure.heading_indptr.tolist()
    start, end = structure.heading_start.tolist(), structure.heading_end.tolist()
    level = structure.heading_level.tolist()
    says = [""] * len(start)
    parent = [-1] * len(start)
    for code in np.flatnonzero(np.diff(structure.heading_indptr)).tolist():
        for heading in range(indptr[code], indptr[code + 1]):
            says[heading] = heading_text(texts[code][start[heading] : end[heading]], level[heading])
            above = heading - 1 if heading > indptr[code] else -1
            while above >= 0 and level[above] >= level[heading]:
                above = parent[above]
            parent[heading] = above
    paths: list[list[str]] = []
    for code, begin in zip(chunks.doc.tolist(), chunks.start.tolist(), strict=True):
        heading = bisect_left(start, begin, indptr[code], indptr[code + 1])
        at = begin
        while heading < indptr[code + 1] and not texts[code][at : start[heading]].strip():
            at = end[heading]  # the chunk begins with it
            heading += 1
        heading = heading - 1 if heading > indptr[code] else -1
        path: list[str] = []
        while heading >= 0:
            if end[heading] <= begin and says[heading] and path[-1:] != [says[heading]]:
                path.append(says[heading])
            heading = parent[heading]
        paths.append(path[::-1])
    return paths
