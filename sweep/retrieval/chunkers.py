"""What a study may name: the chunkers, and the contexts put before chunks. Light, so that a setting is checked at once.

To add a chunker, write its function (the protocol is `Chunker`) and give it a row here; the conformance suite in
tests/test_retrieval_chunking.py takes it up from the row.
"""

__all__ = ["CHUNKERS", "CONTEXTS", "Chunker"]

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sweep.retrieval.cut_points import CutPoints, Ranges

CONTEXTS = ("none", "title", "headings")


class Chunker(NamedTuple):
    """Where a chunker's function is, and what it depends on.

    sized: whether chunk_size and chunk_overlap matter to it. reads_structure: whether it needs a `Structure`.
    """

    module: str
    function: str
    sized: bool = True
    reads_structure: bool = True

    def ranges(self, points: "CutPoints", size: int, overlap: int) -> "Ranges":
        """Return where its chunks begin and end among the tokens, in order: a pair of int64 (n,).

        Both rise within a document, chunks leave out no token, and none has more than `size` tokens unless it is one
        character; consecutive chunks share at most `overlap` tokens and the rest of a word.
        """
        found: Ranges = getattr(importlib.import_module(self.module), self.function)(points, size, overlap)
        return found


CHUNKERS = {
    "tokens": Chunker("sweep.retrieval.windows", "windows", reads_structure=False),
    "sentences": Chunker("sweep.retrieval.packing", "sentences"),
    "recursive": Chunker("sweep.retrieval.packing", "recursive"),
    "markdown": Chunker("sweep.retrieval.packing", "markdown"),
    "document": Chunker("sweep.retrieval.windows", "documents", sized=False, reads_structure=False),
}
