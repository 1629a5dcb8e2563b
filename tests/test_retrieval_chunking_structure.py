"""Breaks and headings, and the chunkers that follow them, beside what a slow reference finds."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from chunked_texts import CHARACTERS, WORDS, chunked
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.retrieval.headings import heading_text, markdown_headings
from sweep.retrieval.structure import BLOCK, HEADING, LINE, PARAGRAPH, SECTION, SENTENCE, structure

Sentence = int  # words
Line = list[Sentence]
Paragraph = list[Line]
Document = list[Paragraph]


def breaks(text: str, title: str = "") -> dict[int, int]:
    found = structure([text], [title])
    return dict(zip(found.end.tolist(), found.kind.tolist(), strict=True))


def split_at_sentences(text: str) -> list[str]:
    ends = [0, *(end for end, kind in breaks(text).items() if kind & SENTENCE), len(text)]
    return [text[a:b].strip() for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two!", {4: SENTENCE}),
        ("One\nTwo", {3: LINE}),
        ("One \r\n two", {3: LINE}),
        ("One\rtwo", {3: LINE}),
        ("One.\nTwo.", {4: LINE | SENTENCE}),
        ("One\n\nTwo", {3: LINE | SENTENCE | PARAGRAPH}),
        ("One\r\n \t\r\nTwo", {3: LINE | SENTENCE | PARAGRAPH}),
        ("\n\n One\n\n", {}),
        ("", {}),
        (" \n ", {}),
    ],
)
def test_breaks_are_where_the_text_before_them_ends(text: str, expected: dict[int, int]) -> None:
    assert breaks(text) == expected


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith went to the U.S. in Jan. 2020.", "He saw 3.14 units, e.g. Mr. Fox.", "Fine!"],
        ["我爱北京。", "你呢？", "他说！", "完"],
        ["今日は良い天気です。", "え？", "はい"],
        ["यह वाक्य है।", "दूसरा वाक्य है।"],
        ["안녕하세요.", "저는 학생입니다!", "그래요?"],
        ["👩‍👩‍👧 Hello.", "e\u0301 ok.", "Yes 🎉!", "No"],  # libraries that count in UTF-16 are off by now
    ],
)
def test_sentences_in_several_scripts(sentences: list[str]) -> None:
    space = "" if "。" in sentences[0] else " "
    assert split_at_sentences(space.join(sentences)) == sentences


@pytest.mark.parametrize("block", [120, 170, BLOCK])
def test_sentences_are_found_beyond_a_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.retrieval.structure.BLOCK", block)
    sentences = [f"Sentence {'x' * (i % 37)} ends." for i in range(1000)]
    assert split_at_sentences(" ".join(sentences)) == sentences


def test_sentences_end_beyond_words_and_sentences_of_several_blocks() -> None:
    assert breaks("x" * (3 * BLOCK) + " end. Then.") == {3 * BLOCK + 5: SENTENCE}
    assert breaks("a " * BLOCK) == {}


@pytest.mark.parametrize("text", ["。éé" * 70_000, "“One two. " * 20_000, "'" * 200_000, "x" * 200_000, "\n" * 200_000])
def test_the_time_for_hard_texts_is_bounded(text: str) -> None:
    structure([text], [""])  # whole, the first and third would take sentencex minutes


def headings(text: str, title: str = "") -> list[tuple[int, str]]:
    found = structure([text], [title])
    spans = zip(found.heading_start.tolist(), found.heading_end.tolist(), found.heading_level.tolist(), strict=True)
    return [(level, heading_text(text[start:end], level)) for start, end, level in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n## B ##\ntext\n###### C\n####### no\n#no", [(1, "A"), (2, "B"), (6, "C")]),
        ("   # A #b\n#\tC#\n# # #\n##", [(1, "A #b"), (1, "C#"), (1, "#"), (2, "")]),
        ("A\n===\nB\nC\n---\r\ntext", [(1, "A"), (2, "B C")]),
        ("a\r\n# H\r\rb\r\n==\n", [(1, "H"), (1, "b")]),
        ("```\n# no\n```\n~~~~\n# no\n~~~\n# no\n~~~~\n# A", [(1, "A")]),
        ("```\n# never closed", []),
        ("    # indented code\n\n- # in a list\n> # quoted\n\n# A", [(1, "A")]),
        ("- item\n---\n| a |\n|---|\n<div>\n# html\n</div>\n\n# A", [(1, "A")]),
        ("---\ntitle: x\ntags: y\n---\n# A", [(1, "A")]),  # a front matter
        ("---\nno keys\n\n# A\n\n---\n", [(1, "A")]),
        ("", []),
    ],
)
def test_headings_are_commonmarks(text: str, expected: list[tuple[int, str]]) -> None:  # worked from CommonMark 0.31
    assert headings(text) == expected


def test_a_title_is_a_heading_where_it_is_the_first_line() -> None:
    assert headings("T\n---\ntitle: T\n---\n# A", "T") == [(0, "T"), (1, "A")]
    assert headings("# T\nx", "# T") == [(0, "# T")]
    for text in ("T", "Tx\ny", "x\nT\n", "T y\n"):
        assert headings(text, "T") == []
    assert headings(" \nx", " ") == []


def test_headings_begin_at_their_mark() -> None:
    assert markdown_headings("x\n\n  # A #  \ny\n\n B\n C\n==  \n") == [(5, 10, 1), (17, 24, 1)]


def test_sections_begin_at_headings_and_no_text_leaves_its_heading() -> None:
    text = "T\n# A. And\n\n## B\nOne. Two.\n\nC\n\n# D\nx"
    at = {word: text.index(word) for word in ("A.", "And", "B", "One.", "Two.", "C", "D")}
    assert breaks(text, "T") == {
        1: LINE | HEADING,  # "# A" directly follows a heading: it begins no section
        at["A."] + 2: SENTENCE | HEADING,
        at["And"] + 3: LINE | SENTENCE | PARAGRAPH | HEADING,
        at["B"] + 1: LINE | HEADING,
        at["One."] + 4: SENTENCE,
        at["Two."] + 4: LINE | SENTENCE | PARAGRAPH,
        at["C"] + 1: LINE | SENTENCE | PARAGRAPH | SECTION,
        at["D"] + 1: LINE | HEADING,
    }


def test_structures_of_many_texts_stand_in_a_row() -> None:
    texts = ["# A\nAaa. Bbb.", "", "plain", "T\n## B\n\nz"]
    found = structure(texts, ["", "", "", "T"])
    assert found.indptr.tolist() == [0, 2, 2, 2, 4]
    assert found.heading_indptr.tolist() == [0, 1, 1, 1, 3]
    assert (found.heading_level.tolist(), found.heading_start.tolist()) == ([1, 0, 2], [0, 0, 2])
    columns = (found.indptr, found.end, found.kind, found.heading_start, found.heading_end, found.heading_level)
    assert [c.dtype for c in columns] == [np.int64, np.int32, np.uint8, np.int32, np.int32, np.int8]
    empty = structure([], [])
    assert (len(empty.indptr), len(empty.end), len(empty.heading_start)) == (1, 0, 0)


def written(document: Document) -> str:
    def sentence(words: int) -> str:
        return " ".join(["Aaa", *["bbb"] * (words - 1)]) + "."

    return "\n\n".join("\n".join(" ".join(map(sentence, line)) for line in paragraph) for paragraph in document)


def leaves(node: "Document | Paragraph | Line | Sentence", size: int) -> Iterator[int]:
    """Yield the words of each unit: what fits whole, else what its parts yield."""
    words = np.sum([sum(leaves(part, 1)) for part in node]) if isinstance(node, list) else node
    if words <= size:
        yield int(words)
    elif isinstance(node, list):
        for part in node:
            yield from leaves(part, size)
    else:
        yield from [1] * node


def packed(units: list[int], size: int, overlap: int) -> list[tuple[int, int]]:
    """Pack units as a person would: add while it fits; keep the last that fit into the overlap and leave room."""
    ranges = []
    chunk: list[int] = []
    at = 0  # words before the chunk
    for unit in units:
        if sum(chunk) + unit > size:
            ranges.append((at, at + sum(chunk)))
            while sum(chunk) > overlap or sum(chunk) + unit > size:
                at += chunk.pop(0)
        chunk.append(unit)
    return [*ranges, (at, at + sum(chunk))]


trees = st.lists(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=4
)


@settings(max_examples=300, deadline=None)
@given(trees, st.integers(1, 30), st.sampled_from([0, 0.1, 0.25, 0.5]))
def test_units_are_split_and_packed_as_by_the_reference(tree: Document, size: int, overlap: float) -> None:
    flat = [sentence for paragraph in tree for line in paragraph for sentence in line]
    for chunker, units in (("recursive", leaves(tree, size)), ("sentences", leaves(flat, size))):
        # the whole document is one unit where it fits, which packs as its parts would
        chunks = chunked([written(tree)], size, overlap, chunker, WORDS, titled=False)
        found = [(i, i + n) for i, n in zip(chunks.first_token.tolist(), chunks.tokens.tolist(), strict=True)]
        assert found == packed(list(units), size, int(size * overlap + 1e-9))


MARKDOWN = """# One
## First
Aaa bbb ccc. Ddd eee fff.

Ggg hhh.

## Second
Iii jjj kkk lll mmm nnn.

Two
===
ooo ppp
# Last"""


def test_markdown_is_cut_at_its_headings() -> None:
    assert chunked([MARKDOWN], 100, 0.5, "markdown", WORDS).texts([MARKDOWN]) == [
        "# One\n## First\nAaa bbb ccc. Ddd eee fff.\n\nGgg hhh.",
        "## Second\nIii jjj kkk lll mmm nnn.",
        "Two\n===\nooo ppp",
        "# Last",
    ]


def test_a_heading_keeps_as_much_of_its_text_as_fits() -> None:
    # both headings are 4 words, with the first sentence 7; the second section is one sentence, with its heading 8
    assert chunked([MARKDOWN], 8, 0.5, "markdown", WORDS).texts([MARKDOWN])[:3] == [
        "# One\n## First\nAaa bbb ccc.",
        "Ddd eee fff.\n\nGgg hhh.",
        "## Second\nIii jjj kkk lll mmm nnn.",
    ]
    assert chunked([MARKDOWN], 6, 0.0, "markdown", WORDS).texts([MARKDOWN])[1:4] == [
        "ccc. Ddd eee fff.\n\nGgg hhh.",
        "## Second\nIii jjj kkk lll",
        "mmm nnn.",
    ]


def test_a_title_keeps_its_text_too() -> None:
    text = "Tea\nAaa bbb ccc. Ddd eee."
    assert chunked([text], 5, 0.0, "recursive", WORDS).texts([text]) == ["Tea\nAaa bbb ccc.", "Ddd eee."]


def test_thai_is_cut_at_its_lines() -> None:  # it has no mark for the end of a sentence
    text = "วันนี้อากาศดี ฉันไปตลาด\nพรุ่งนี้ฝนตก\nแล้วกลับบ้าน มะรืนนี้"
    assert chunked([text], 3, 0.0, "recursive", WORDS).texts([text]) == [
        "วันนี้อากาศดี ฉันไปตลาด\nพรุ่งนี้ฝนตก",
        "แล้วกลับบ้าน มะรืนนี้",
    ]


def test_a_long_word_is_cut_at_its_sentences_and_a_short_one_is_not() -> None:
    text = "我爱北京。你去北京。"
    assert chunked([text], 7, 0.0, "sentences", CHARACTERS).texts([text]) == ["我爱北京。", "你去北京。"]
    text = "我爱。你去 aaa bbb"
    assert chunked([text], 8, 0.0, "sentences", CHARACTERS).texts([text]) == ["我爱。你去", "aaa bbb"]


def test_a_break_before_what_has_no_token_is_not_the_next_documents() -> None:
    texts = ["One. \u200b", "two three four"]
    assert chunked(texts, 2, 0.0, "sentences").texts(texts) == ["One. \u200b", "two three", "four"]
