"""Windows of tokens, worked by hand."""

import numpy as np
import pytest
from chunked_texts import WORDS, chunked, count, spans

from sweep.retrieval.chunking import cut
from sweep.retrieval.tokens import Tokens


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
@pytest.mark.parametrize("chunker", ["tokens", "sentences", "recursive", "markdown"])  # one sentence, too long
def test_windows_worked_by_hand(
    chunker: str, units: int, size: int, overlap: float, expected: list[tuple[int, int]]
) -> None:
    text = " ".join("abcdefghij"[:units])
    chunks = chunked([text], size, overlap, chunker, WORDS)
    first = chunks.first_token.tolist()
    assert [(i, i + n) for i, n in zip(first, chunks.tokens.tolist(), strict=True)] == expected
    assert spans(chunks) == [(2 * i, 2 * j - 1) for i, j in expected]


@pytest.mark.parametrize("share", [0.01, 0.07, 0.14, 0.28, 0.29, 0.35, 0.5])
def test_the_overlap_is_its_share_of_the_size(share: float) -> None:
    starts = chunked(["a " * 300], 100, share, tokenizer=WORDS).first_token
    assert int(starts[1]) == 100 - round(100 * share)


def test_offsets_of_repeated_text() -> None:  # CASES S16: a search for the chunk's text would give 0, 0, 0
    chunks = chunked(["no " * 4], 2, 0.5, tokenizer=WORDS)
    assert chunks.start.tolist() == [0, 3, 6]
    assert chunks.texts(["no " * 4]) == ["no no"] * 3


@pytest.mark.parametrize("size", [100, 300, 900])
def test_chunks_of_every_size_carry_their_document(size: int) -> None:  # CASES S11
    chunks = chunked(["", "d " * 900, "e"], size, 0.25, tokenizer=WORDS)
    assert set(chunks.doc.tolist()) == {1, 2}


def test_an_overlap_inside_a_word_begins_with_the_word() -> None:
    text = "a b c d internationalization e f g h i j"
    assert count(text) - count("a b c d e f g h i j") == 2  # so a window of 6 ends after it, and 1 token back is inside
    assert chunked([text], 6, 0.2).texts([text]) == [
        "a b c d internationalization",
        "internationalization e f g h",
        "h i j",
    ]


def test_a_word_of_100000_characters_is_cut() -> None:
    text = "before " + "x" * 100_000 + " after"
    chunks = chunked([text], 254, 0.5)
    assert max(map(count, chunks.texts([text]))) <= 254
    assert int((chunks.end - chunks.start).max()) <= 254
    assert (chunks.start.min(), chunks.end.max()) == (0, len(text))
    assert (chunks.start[1:] <= chunks.end[:-1] + 1).all()


def test_a_character_of_two_words_is_not_cut() -> None:
    tokens = Tokens(np.array([0, 3]), np.array([0, 0, 1], np.int32), np.ones(3, np.bool_))
    chunks = cut(tokens, ["½b"], chunker="tokens", size=1)
    assert (spans(chunks), chunks.tokens.tolist()) == ([(0, 1), (1, 2)], [2, 1])
