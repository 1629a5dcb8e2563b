"""Text put before chunks: titles and heading paths, worked by hand."""

import pytest
from chunked_texts import WORDS, chunked
from hypothesis import given
from hypothesis import strategies as st

from sweep.retrieval.chunk_context import contexts
from sweep.retrieval.chunkers import CHUNKERS, CONTEXTS
from sweep.retrieval.chunking import cut
from sweep.retrieval.structure import structure
from sweep.retrieval.tokens import tokenize


def before(text: str, title: str, kind: str, chunker: str = "markdown", size: int = 100) -> list[tuple[str, str]]:
    found = structure([text], [title])
    chunks = cut(tokenize(WORDS, [text]), [text], chunker=chunker, size=size, structure=found)
    return list(zip(contexts(chunks, [text], [title], kind, found), chunks.texts([text]), strict=True))


GUIDE = "Guide\n# Setup\nx\n## Linux\ny y y\n## Mac ##\nz\n# Use\nw"


def test_a_title_stands_before_chunks_that_do_not_begin_with_it() -> None:
    assert before("Tea\na b c d", "Tea", "title", "tokens", 2) == [("", "Tea\na"), ("Tea\n", "b c"), ("Tea\n", "d")]
    assert before("Teapots are", "Tea", "title") == [("Tea\n", "Teapots are")]
    assert before("Tea: a b", "Tea", "title") == [("", "Tea: a b")]
    assert before("a", " Green\n tea ", "title") == [("Green tea\n", "a")]
    assert before("a", " ", "title") == [("", "a")]


def test_headings_above_a_chunk_stand_before_it() -> None:
    assert before(GUIDE, "Guide", "headings") == [
        ("", "Guide\n# Setup\nx"),
        ("Guide > Setup\n", "## Linux\ny y y"),
        ("Guide > Setup\n", "## Mac ##\nz"),
        ("Guide\n", "# Use\nw"),
    ]


def test_the_last_heading_above_a_chunk_stands_before_its_further_parts() -> None:
    assert before(GUIDE, "Guide", "headings", size=3)[2:5] == [
        ("Guide > Setup\n", "## Linux\ny"),
        ("Guide > Setup > Linux\n", "y y"),
        ("Guide > Setup\n", "## Mac ##"),
    ]


def test_a_title_that_is_not_in_the_text_stands_first() -> None:
    text = "# Setup\nx\n# Use\ny"
    assert before(text, "Guide", "headings") == [("Guide\n", "# Setup\nx"), ("Guide\n", "# Use\ny")]
    assert before(text, "Guide", "headings", "tokens", 2)[1] == ("Guide > Setup\n", "x\n#")
    assert before(text, "", "headings") == [("", "# Setup\nx"), ("", "# Use\ny")]


def test_a_title_that_is_the_first_heading_stands_once() -> None:
    text = "Guide\n# Guide\n## A\nx\n## B\ny"
    assert before(text, "Guide", "headings")[1] == ("Guide\n", "## B\ny")
    assert before("# Guide\n## A\nx\n## B\ny", "Guide", "headings")[1] == ("Guide\n", "## B\ny")


def test_skipped_levels_and_empty_headings_leave_no_gap() -> None:
    text = "### C\nx\n# A\n#\n#### D\ny\n## B\nz\n### E\nw"
    assert [context for context, _ in before(text, "", "headings")] == ["", "", "", "B\n"]
    upwards = "# O\nx\n## B\n# A\ny"  # y is under A alone, and both of its headings are in the chunk
    assert [context for context, _ in before(upwards, "", "headings")] == ["", ""]
    deep = "# A\nx\n#### D\ny\n## B\nz\n### E\nw\n#### F\nv"
    assert [context for context, _ in before(deep, "", "headings")] == ["", "A\n", "A\n", "A > B\n", "A > B > E\n"]


def test_each_document_has_its_own_headings() -> None:
    texts = ["# A\nx y", "z", "", "## B\nw\n### C\nv"]
    chunks = chunked(texts, 3, 0.0, "markdown", WORDS)
    found = contexts(chunks, texts, ["", "T", "", ""], "headings", structure(texts, ["", "T", "", ""]))
    assert list(zip(found, chunks.texts(texts), strict=True)) == [
        ("", "# A\nx"), ("A\n", "y"), ("T\n", "z"), ("", "## B\nw"), ("B\n", "### C\nv"),
    ]  # fmt: skip


@pytest.mark.parametrize("chunker", CHUNKERS)
@given(
    st.lists(st.sampled_from(["# A\n", "## B\n", "T\n===\n", "x. Y ", "\n", "```\n", "- i\n"]), max_size=20), st.text()
)
def test_contexts_are_empty_or_whole_lines(chunker: str, pieces: list[str], title: str) -> None:
    text = "".join(pieces)
    for kind in CONTEXTS:
        for context, _ in before(text, title, kind, chunker, 3):
            assert context == "" or (context[-1] == "\n" and len(context.splitlines()) == 1 and context.strip())
            assert kind != "none" or context == ""


def test_headings_need_the_structure() -> None:
    with pytest.raises(ValueError, match="needs the structure"):
        contexts(chunked(["a"], 1, 0.0), ["a"], [""], "headings")
