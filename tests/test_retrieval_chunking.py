"""What every chunker promises for any text: offsets that hold, nothing lost, limits kept, overlaps counted once."""

import hashlib
import unicodedata

import numpy as np
import pytest
from chunked_texts import BYTES, PACKAGED, WORDS, chunked, count, spans
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweep.errors import SettingsError
from sweep.retrieval.chunkers import CHUNKERS
from sweep.retrieval.chunking import Chunks, context_tokens, cut, overlap_tokens
from sweep.retrieval.structure import structure
from sweep.retrieval.tokens import Tokens, tokenize

every_chunker = pytest.mark.parametrize("chunker", CHUNKERS)
PIECES = [
    "the", "search", "tokenizer", "internationalization", "C++", "don't", "3.14", "a.b.c", "e\u0301te\u0301", "naïve",
    "中文分词", "日本語", "ไทยที่นี่", "हिन्दी", "한국어", "👩‍👩‍👧", "🎉", "\u0301", "\u200b", "\ufffd", "ﷺ", "İ", "ß",
    "x" * 101, "é" * 130,
    " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c", "¶", "(", "…",
    "Dr. Who came. He left!", "。", "\n\n", "\r\n\r\n", "\n# Title #\n", "\n## Part\r\n", "\n===\n", "\n---\n",
    "\n```\n# no heading\n```\n", "\n| a | b |\n|---|---|\n", "\n- item\n",
]  # fmt: skip
TEXTS = {
    "Chinese": "我爱北京。你去哪里？“好的。”他说！" * 20,
    "Japanese": "今日は良い天気です。明日は「雨です。」と言った。" * 20,
    "Thai": "วันนี้อากาศดีมากฉันไปตลาดแล้วกลับบ้าน พรุ่งนี้ฝนตก\n" * 20,
    "emoji": "👩‍👩‍👧 family. 🎉🎉 Party! " * 20,
    "combining": ("e\u0301" * 20 + " " + "o\u0308\u0323 " * 20) * 5,
    "CRLF": "One line.\r\nTwo lines.\r\n\r\nA paragraph. And more.\r\n" * 20,
    "long word": "before " + "x" * 100_000 + " after",
    "repeated": "no " * 4,
    "blank": " \r\n\t\u00a0\n",
    "empty": "",
    "table": "# T\n\n| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 40,
    "fences": "# A\n\n```\n# no heading\n\ncode\n```\n\n## B\ntext. More text.\n\nSet\n===\n~~~\n## none\n~~~\n" * 4,
}
any_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
spaced_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map(" ".join)
documents = st.lists(any_text | spaced_text, max_size=3)
sizes = st.integers(1, 20) | st.sampled_from([64, 254])
overlaps = st.sampled_from([0.0, 0.1, 0.25, 0.5])


def visible(text: str) -> str:
    return "".join(text.split())


def check_slices(texts: list[str], chunks: Chunks) -> None:
    """Chunks are trimmed slices that move forward in their document, so that none lies within its neighbour."""
    for column in (chunks.doc, chunks.start, chunks.end, chunks.tokens, chunks.first_token):
        assert column.dtype == np.int32
        assert column.shape == (len(chunks),)
    assert chunks.texts(texts) == [texts[d][s:e] for d, (s, e) in zip(chunks.doc, spans(chunks), strict=True)]
    for text in chunks.texts(texts):
        assert text == text.strip() != ""
    assert (np.diff(chunks.doc) >= 0).all()
    for code in range(len(texts)):
        one = chunks.take(np.flatnonzero(chunks.doc == code))
        assert (np.diff(one.start) > 0).all()
        assert (np.diff(one.end) > 0).all()
        assert (np.diff(one.first_token) > 0).all()
        assert (np.diff(one.first_token + one.tokens) > 0).all()
        assert (one.tokens >= 1).all()


def check_nothing_lost(texts: list[str], chunks: Chunks, joins: bool) -> None:
    """Only white space is outside of all chunks; where none overlaps, they join back to the document."""
    for code, text in enumerate(texts):
        one = chunks.take(np.flatnonzero(chunks.doc == code))
        if not count(text):  # nothing that the tokenizer can read
            assert not len(one)
            continue
        covered = np.zeros(len(text), np.bool_)
        for start, end in spans(one):
            covered[start:end] = True
        assert "".join(c for c, seen in zip(text, covered, strict=True) if not seen).strip() == ""
        if joins:
            assert visible("".join(one.texts(texts))) == visible(text)


def check_limit(texts: list[str], chunks: Chunks, size: int | None) -> None:
    """Tokenise each chunk again: no more tokens than it says, nor than the size but for one character of more."""
    for text, stated in zip(chunks.texts(texts), chunks.tokens.tolist(), strict=True):
        assert count(text) <= stated, text
        if size is not None and stated > size:
            assert sum(unicodedata.category(c)[0] not in "MCZ" for c in text) <= 1, text


def check(texts: list[str], size: int, overlap: float, chunker: str) -> Chunks:
    chunks = chunked(texts, size, overlap, chunker)
    check_slices(texts, chunks)
    check_nothing_lost(texts, chunks, joins=overlap == 0)
    check_limit(texts, chunks, size if CHUNKERS[chunker].sized else None)
    return chunks


@every_chunker
@settings(max_examples=150, deadline=None)
@given(documents, sizes, overlaps)
@example(["a " * 30, "", "b"], 4, 0.5)
@example(["internationalization " * 9], 2, 0.5)
@example(["00000000 the the"], 2, 0.5)
@example(["\u200b\u200b", "a\u200b b"], 1, 0.0)
@example(["한국어" * 40], 16, 0.0)
@example(["हिन्दी" + "x" * 101], 1, 0.0)
@example(["T\n\u0301# A"], 1, 0.0)
def test_any_text_is_cut_well(chunker: str, texts: list[str], size: int, overlap: float) -> None:
    check(texts, size, overlap, chunker)


@every_chunker
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(("size", "overlap"), [(1, 0.0), (7, 0.25), (64, 0.0), (254, 0.5)])
def test_hard_texts_are_cut_well(chunker: str, name: str, size: int, overlap: float) -> None:
    if name == "long word" and size == 1:
        size = 16  # each of its chunks is tokenised again
    check([TEXTS[name]], size, overlap, chunker)


@every_chunker
@settings(max_examples=50, deadline=None)
@given(documents, sizes, overlaps)
@example(["x \n # # y"], 1, 0.5)
@example(["\n\nx y"], 3, 0.5)
def test_tokens_of_white_space_make_no_chunk_of_their_own(
    chunker: str, texts: list[str], size: int, overlap: float
) -> None:
    chunks = chunked(texts, size, overlap, chunker, BYTES)
    check_slices(texts, chunks)
    check_nothing_lost([t for t in texts if count(t)], chunked([t for t in texts if count(t)], size, 0, chunker, BYTES),
                       joins=True)  # fmt: skip


@every_chunker
def test_the_limit_holds_where_words_have_to_be_cut(chunker: str) -> None:
    digests = [hashlib.sha512(bytes([i])).hexdigest()[:90] for i in range(40)]
    texts = [*digests, "읽기쓰기" * 40, "한국어 " * 30, "internationalization " * 20, "x" * 101 + " end"]
    for size in (2, 4, 8, 16, 32):
        check(texts, size, 0.25, chunker)


@every_chunker
def test_chunks_begin_and_end_between_words(chunker: str) -> None:
    text = "internationalization of retokenizable hyperparameters, reconfigurations and unaffordability. " * 6
    for size in (8, 13, 32):
        for start, end in spans(chunked([text], size, 0.25, chunker)):
            assert start == 0 or not (text[start - 1].isalpha() and text[start].isalpha())
            assert end == len(text) or not (text[end - 1].isalpha() and text[end].isalpha())


@every_chunker
@settings(max_examples=100, deadline=None)
@given(documents, sizes, overlaps)
def test_the_overlap_is_no_longer_than_asked(chunker: str, texts: list[str], size: int, overlap: float) -> None:
    chunks = chunked(texts, size, overlap, chunker, WORDS)  # no rest of a word is added to the overlap
    same = np.diff(chunks.doc) == 0
    shared = (chunks.first_token + chunks.tokens)[:-1] - chunks.first_token[1:]
    assert (shared[same] <= overlap_tokens(size, overlap)).all()


@every_chunker
@pytest.mark.parametrize(
    ("size", "overlap"), [(4, 1.0), (3, 5 / 3), (0, 0.0), (-1, 0.0), (4, -0.25), (4, 0.51), (4, float("nan"))]
)
def test_sizes_and_overlaps_that_cannot_be_are_refused(chunker: str, size: int, overlap: float) -> None:  # CASES S15
    if not CHUNKERS[chunker].sized:
        assert len(chunked(["a b c d e f"], size, overlap, chunker)) == 1
        return
    with pytest.raises(SettingsError, match=f"chunk_size {size} and chunk_overlap"):
        chunked(["a b c d e f"], size, overlap, chunker)


@every_chunker
def test_blank_documents_have_no_chunk(chunker: str) -> None:  # CASES S18
    chunks = chunked(["", "   ", "\n", "alpha", "\r\n\t\u00a0"], 8, 0.0, chunker)
    assert (chunks.doc.tolist(), spans(chunks)) == ([3], [(0, 5)])
    assert len(chunked([], 8, 0.0, chunker)) == len(chunked(["", " "], 8, 0.5, chunker)) == 0


@every_chunker
def test_combining_marks_stay_with_their_letter(chunker: str) -> None:
    text = "e\u0301" * 20 + " " + " ".join(["o\u0308\u0323"] * 20)
    for start, end in spans(chunked([text], 3, 0.0, chunker)):
        assert text[start] in "eo"
        assert end == len(text) or text[end] in "eo "


@every_chunker
@pytest.mark.parametrize("size", [1, 2])
def test_a_character_of_several_tokens_is_not_cut(chunker: str, size: int) -> None:
    chunks = chunked(["한국어"], size, 0.0, chunker)  # decomposed to letters, a token each: 3, 3 and 2
    whole = not CHUNKERS[chunker].sized
    assert chunks.texts(["한국어"]) == (["한국어"] if whole else ["한", "국", "어"])
    assert chunks.tokens.tolist() == ([8] if whole else [3, 3, 2])


@every_chunker
def test_many_documents_are_cut_as_each_alone(chunker: str) -> None:
    texts = [f"# Document {i}\n\nIt is. " + "word " * (i % 7) for i in range(2100)]  # more than two tokenizer batches
    told: list[int] = []
    tokens = tokenize(PACKAGED, texts, told.append)
    assert sum(told) == len(texts)
    found = structure(texts, [""] * len(texts))
    together = cut(tokens, texts, chunker=chunker, size=4, overlap=0.5, structure=found)
    for code in (0, 999, 1000, 1001, 2099):
        alone = chunked([texts[code]], 4, 0.5, chunker)
        assert spans(together.take(np.flatnonzero(together.doc == code))) == spans(alone)


def test_a_missing_structure_is_no_flat_text() -> None:
    with pytest.raises(ValueError, match="'recursive' needs the structure"):
        cut(tokenize(WORDS, ["a b"]), ["a b"], chunker="recursive", size=1)


def brute_force(chunks: Chunks, items: list[int]) -> int:
    tokens = {
        (int(chunks.doc[i]), int(chunks.first_token[i]) + at)
        for i in items if i >= 0
        for at in range(int(chunks.tokens[i]))
    }  # fmt: skip
    return len(tokens)


@every_chunker
@settings(max_examples=60, deadline=None)
@given(documents, sizes, overlaps, st.data())
def test_context_counts_overlaps_once(
    chunker: str, texts: list[str], size: int, overlap: float, data: st.DataObject
) -> None:
    chunks = chunked(texts, size, overlap, chunker)
    row = st.lists(st.integers(0, len(chunks) - 1), unique=True, max_size=6) if len(chunks) else st.just([])
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    items = np.array([r + [-1] * (6 - len(r)) for r in rows], np.int32)
    assert context_tokens(chunks, items).tolist() == [brute_force(chunks, r) for r in rows]


def test_context_of_three_chunks_that_share_tokens() -> None:
    # words of 1, 4 and 3 tokens pull the ends back, so that the first chunk still overlaps the third
    first = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1], np.bool_)
    text = "".join(f"{'' if new else '#'}x "[-2:] for new in first)
    tokens = Tokens(np.array([0, 13]), np.arange(0, 26, 2, dtype=np.int32), first)
    chunks = cut(tokens, [text], chunker="tokens", size=8, overlap=0.5)
    every = list(range(len(chunks)))
    assert context_tokens(chunks, np.array([every], np.int32)).tolist() == [13]
