"""Chunks: offsets that hold, nothing lost, limits kept, overlaps counted once, whatever the text."""

import hashlib
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from sweep.errors import SettingsError
from sweep.retrieval.chunking import Chunks, Tokens, context_tokens, cut, tokenize
from sweep.retrieval.configuration import DEFAULT_ENCODER
from sweep.retrieval.models import find_model

PACKAGED = find_model(DEFAULT_ENCODER).tokenizer
WORDS = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # one token a word
WORDS.pre_tokenizer = WhitespaceSplit()

PIECES = [
    "the", "search", "tokenizer", "internationalization", "C++", "don't", "3.14", "a.b.c", "e\u0301te\u0301", "naïve",
    "中文分词", "日本語", "ไทยที่นี่", "हिन्दी", "한국어", "👩‍👩‍👧", "🎉", "\u0301", "\u200b", "\ufffd", "ﷺ", "İ", "ß",
    "x" * 101, "é" * 130,
    " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c", "¶", "(", "…",
]  # fmt: skip
any_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
spaced_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map(" ".join)
documents = st.lists(any_text | spaced_text, max_size=3)
sizes = st.integers(1, 20) | st.sampled_from([64, 254])
overlaps = st.sampled_from([0.0, 0.1, 0.25, 0.5])


def chunked(texts: list[str], size: int, overlap: float, tokenizer: Any = PACKAGED) -> Chunks:
    return cut(tokenize(tokenizer, texts), texts, size, overlap)


def count(text: str) -> int:
    return len(PACKAGED.encode(text, add_special_tokens=False).ids)


def visible(text: str) -> str:
    return "".join(text.split())


def spans(chunks: Chunks) -> list[tuple[int, int]]:
    return list(zip(chunks.start.tolist(), chunks.end.tolist(), strict=True))


@settings(max_examples=300, deadline=None)
@given(documents, sizes, overlaps)
@example(["a " * 30, "", "b"], 4, 0.5)
@example(["internationalization " * 9], 2, 0.5)
@example(["00000000 the the"], 2, 0.5)
def test_chunks_are_slices_that_move_forward(texts: list[str], size: int, overlap: float) -> None:
    chunks = chunked(texts, size, overlap)
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
        assert (np.diff(one.end) > 0).all()  # so no chunk lies within its neighbour
        assert (np.diff(one.first_token) > 0).all()
        assert (one.tokens >= 1).all()


@settings(max_examples=300, deadline=None)
@given(documents, sizes, overlaps)
@example(["\u200b\u200b", "a\u200b b"], 1, 0.0)
def test_nothing_but_white_space_is_lost(texts: list[str], size: int, overlap: float) -> None:
    chunks = chunked(texts, size, overlap)
    for code, text in enumerate(texts):
        if not count(text):  # nothing that the tokenizer can read
            assert not (chunks.doc == code).any()
            continue
        covered = np.zeros(len(text), np.bool_)
        for start, end in spans(chunks.take(np.flatnonzero(chunks.doc == code))):
            covered[start:end] = True
        assert "".join(c for c, seen in zip(text, covered, strict=True) if not seen).strip() == ""


@settings(max_examples=200, deadline=None)
@given(documents, sizes)
def test_without_overlap_the_chunks_join_back(texts: list[str], size: int) -> None:
    chunks = chunked(texts, size, 0.0)
    for code, text in enumerate(texts):
        joined = "".join(chunks.take(np.flatnonzero(chunks.doc == code)).texts(texts))
        assert visible(joined) == (visible(text) if count(text) else "")


def check_limit(texts: list[str], size: int, overlap: float) -> None:
    """Tokenise each chunk again: no more tokens than it says, nor than the size but for one character of more."""
    chunks = chunked(texts, size, overlap)
    for text, stated in zip(chunks.texts(texts), chunks.tokens.tolist(), strict=True):
        letters = sum(unicodedata.category(c)[0] not in "MCZ" for c in text)
        assert count(text) <= stated, text
        assert stated <= size or letters <= 1, text


@settings(max_examples=300, deadline=None)
@given(documents, sizes, overlaps)
@example(["한국어" * 40], 16, 0.0)
@example(["हिन्दी" + "x" * 101], 1, 0.0)
def test_no_chunk_reads_as_more_tokens_than_it_says(texts: list[str], size: int, overlap: float) -> None:
    check_limit(texts, size, overlap)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_the_limit_holds_where_words_have_to_be_cut(size: int) -> None:
    digests = [hashlib.sha512(bytes([i])).hexdigest()[:90] for i in range(40)]
    check_limit(
        [*digests, "읽기쓰기" * 40, "한국어 " * 30, "internationalization " * 20, "x" * 101 + " end"], size, 0.25
    )


def test_chunks_begin_and_end_between_words() -> None:
    text = "internationalization of retokenizable hyperparameters, reconfigurations and unaffordability " * 6
    for size in (8, 13, 32):
        starts = {i for i, c in enumerate(text) if c.isalpha() and (i == 0 or not text[i - 1].isalpha())}
        for start, end in spans(chunked([text], size, 0.25)):
            assert start in starts or not text[start].isalpha()
            assert end == len(text) or not (text[end - 1].isalpha() and text[end].isalpha())


@pytest.mark.parametrize(  # CASES S15: token ranges [first, first + tokens)
    ("units", "size", "overlap", "expected"),
    [
        (10, 4, 0.25, [(0, 4), (3, 7), (6, 10)]),
        (4, 4, 0.25, [(0, 4)]),
        (3, 4, 0.25, [(0, 3)]),
        (0, 4, 0.25, []),
        (8, 4, 0.5, [(0, 4), (2, 6), (4, 8)]),
        (9, 4, 0.5, [(0, 4), (2, 6), (4, 8), (6, 9)]),
        (5, 1, 0.5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    ],
)
def test_windows_worked_by_hand(units: int, size: int, overlap: float, expected: list[tuple[int, int]]) -> None:
    text = " ".join("abcdefghij"[:units])
    chunks = chunked([text], size, overlap, WORDS)
    first = chunks.first_token.tolist()
    assert [(i, i + n) for i, n in zip(first, chunks.tokens.tolist(), strict=True)] == expected
    assert spans(chunks) == [(2 * i, 2 * j - 1) for i, j in expected]


@pytest.mark.parametrize("share", [0.01, 0.07, 0.14, 0.28, 0.29, 0.35, 0.5])
def test_the_overlap_is_its_share_of_the_size(share: float) -> None:
    starts = chunked(["a " * 300], 100, share, WORDS).first_token
    assert int(starts[1]) == 100 - round(100 * share)


@pytest.mark.parametrize(
    ("size", "overlap"), [(4, 1.0), (3, 5 / 3), (0, 0.0), (-1, 0.0), (4, -0.25), (4, 0.51), (4, float("nan"))]
)
def test_sizes_and_overlaps_that_cannot_be_are_refused(size: int, overlap: float) -> None:  # CASES S15
    with pytest.raises(SettingsError, match=f"chunk_size {size} and chunk_overlap"):
        chunked(["a b c d e f"], size, overlap, WORDS)


def test_offsets_of_repeated_text() -> None:  # CASES S16: a search for the chunk's text would give 0, 0, 0
    chunks = chunked(["no " * 4], 2, 0.5, WORDS)
    assert chunks.start.tolist() == [0, 3, 6]
    assert chunks.texts(["no " * 4]) == ["no no"] * 3


def test_blank_documents_have_no_chunk() -> None:  # CASES S18
    chunks = chunked(["", "   ", "\n", "alpha", "\r\n\t\u00a0"], 8, 0.0)
    assert (chunks.doc.tolist(), spans(chunks)) == ([3], [(0, 5)])
    assert len(chunked([], 8, 0.0)) == len(chunked(["", " "], 8, 0.5)) == 0


def test_a_word_of_100000_characters_is_cut() -> None:
    text = "before " + "x" * 100_000 + " after"
    chunks = chunked([text], 254, 0.5)
    assert max(map(count, chunks.texts([text]))) <= 254
    assert int((chunks.end - chunks.start).max()) <= 254
    assert (chunks.start.min(), chunks.end.max()) == (0, len(text))
    assert (chunks.start[1:] <= chunks.end[:-1] + 1).all()


def test_combining_marks_stay_with_their_letter() -> None:
    text = "e\u0301" * 20 + " " + " ".join(["o\u0308\u0323"] * 20)
    for start, end in spans(chunked([text], 3, 0.0)):
        assert text[start] in "eo"
        assert end == len(text) or text[end] in "eo "


@pytest.mark.parametrize("size", [1, 2])
def test_a_character_of_several_tokens_is_not_cut(size: int) -> None:
    chunks = chunked(["한국어"], size, 0.0)  # decomposed to letters, a token each: 3, 3 and 2
    assert chunks.texts(["한국어"]) == ["한", "국", "어"]
    assert chunks.tokens.tolist() == [3, 3, 2]


def test_many_documents_are_cut_as_each_alone() -> None:
    texts = [f"document {i} " + "word " * (i % 7) for i in range(2100)]  # more than two batches of the tokenizer
    told: list[int] = []
    tokens = tokenize(PACKAGED, texts, told.append)
    assert sum(told) == len(texts)
    together = cut(tokens, texts, 4, 0.5)
    for code in (0, 999, 1000, 1001, 2099):
        alone = chunked([texts[code]], 4, 0.5)
        assert spans(together.take(np.flatnonzero(together.doc == code))) == spans(alone)


def brute_force(chunks: Chunks, items: list[int]) -> int:
    tokens = {
        (int(chunks.doc[i]), int(chunks.first_token[i]) + at)
        for i in items if i >= 0
        for at in range(int(chunks.tokens[i]))
    }  # fmt: skip
    return len(tokens)


@settings(max_examples=200, deadline=None)
@given(documents, sizes, overlaps, st.data())
def test_context_counts_overlaps_once(texts: list[str], size: int, overlap: float, data: st.DataObject) -> None:
    chunks = chunked(texts, size, overlap)
    row = st.lists(st.integers(0, len(chunks) - 1), unique=True, max_size=6) if len(chunks) else st.just([])
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    items = np.array([r + [-1] * (6 - len(r)) for r in rows], np.int32)
    assert context_tokens(chunks, items).tolist() == [brute_force(chunks, r) for r in rows]


def test_context_of_three_chunks_that_share_tokens() -> None:
    # words of 1, 4 and 3 tokens pull the ends back, so that the first chunk still overlaps the third
    first = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1], np.bool_)
    text = "".join(f"{'' if new else '#'}x "[-2:] for new in first)
    chunks = cut(Tokens(np.array([0, 13]), np.arange(0, 26, 2, dtype=np.int32), first), [text], 8, 0.5)
    every = list(range(len(chunks)))
    assert context_tokens(chunks, np.array([every], np.int32)).tolist() == [13]
