"""Keyword search: BM25 by hand, equal to bm25s, nothing for nothing, words of any language."""

import math
import re
import unicodedata

import bm25s  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import Rankings
from sweep.artifacts import Store
from sweep.retrieval.keyword_index import ENGLISH_STOP_WORDS, KeywordIndex, analyze

ANALYZERS = pytest.mark.parametrize("analyzer", ["plain", "english"])
SMALL = ["alpha beta", "gamma delta", "", "beta beta"]


def search(texts: list[str], query: str, k: int, analyzer: str = "plain", k1: float = 1.5, b: float = 1) -> list[int]:
    index = KeywordIndex.build(texts, analyzer)
    return [i for i in index.search([query], k, index.weights(k1, b)).items[0].tolist() if i >= 0]


@ANALYZERS
def test_a_query_without_a_known_word_finds_nothing(analyzer: str) -> None:  # CASES S24
    for query in ("zzz", "", "...", "zzz yyy"):
        assert search(SMALL, query, 3, analyzer) == []


@ANALYZERS
@pytest.mark.parametrize("query", ["beta", "Beta.", "«BETA»", "beta zzz"])
def test_case_and_punctuation_do_not_matter(query: str, analyzer: str) -> None:  # CASES S24
    assert search(SMALL, query, 3, analyzer) == search(SMALL, query, 10, analyzer) == [3, 0]


@pytest.mark.parametrize("texts", [[], [""], ["", "  ", "..."], ["the of", "and"]])
@ANALYZERS
def test_chunks_without_a_term_are_searched_without_fault(texts: list[str], analyzer: str) -> None:  # CASES S18
    assert search(texts, "anything", 3, analyzer) == []
    assert search(texts, "", 3, analyzer) == []


def test_scores_worked_by_hand() -> None:
    # N = 3, mean dl = (2 + 1 + 3) / 3 = 2, k1 = 1, b = .5; df(a) = 2, df(b) = 1
    index = KeywordIndex.build(["a b", "c", "a a c"], "plain")
    found = index.search(["a b b"], 3, index.weights(1.0, 0.5))
    idf_a, idf_b = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    first = idf_a * 1 / (1 + 1 * (0.5 + 0.5 * 2 / 2)) + 2 * idf_b * 1 / (1 + 1 * (0.5 + 0.5 * 2 / 2))
    last = idf_a * 2 / (2 + 1 * (0.5 + 0.5 * 3 / 2))
    assert found.items.tolist() == [[0, 2]]
    np.testing.assert_allclose(found.scores, [[first, last]], rtol=1e-6)


words = st.sampled_from(["alpha", "beta", "gamma", "delta", "x", "running", "runs", "café", "中文", "the"])
text = st.lists(words, max_size=12).map(" ".join)
corpus = st.lists(text, min_size=1, max_size=30)
parameters = st.tuples(st.floats(0, 3), st.floats(0, 1))


def reference(texts: list[str], queries: list[str], k1: float, b: float) -> list[np.ndarray]:
    """Scores of every text by bm25s 0.3.16, method "lucene", given the words ready split."""
    tokens = [re.findall(r"\w+", t.lower()) for t in texts]
    retriever = bm25s.BM25(method="lucene", k1=k1, b=b)
    retriever.index(tokens, show_progress=False)
    known = {word for row in tokens for word in row}
    asked = [[w for w in re.findall(r"\w+", q.lower()) if w in known] for q in queries]
    return [retriever.get_scores(q) if q else np.zeros(len(texts), np.float32) for q in asked]


@settings(max_examples=100, deadline=None)
@given(corpus, st.lists(text, min_size=1, max_size=5), parameters, st.integers(1, 40))
def test_equal_to_bm25s(texts: list[str], queries: list[str], k1_b: tuple[float, float], k: int) -> None:
    texts = [*texts, "alpha"]  # bm25s cannot index a corpus without a word
    index = KeywordIndex.build(texts, "plain")
    found = index.search(queries, k, index.weights(*k1_b))
    for scores, items, ours in zip(reference(texts, queries, *k1_b), found.items, found.scores, strict=True):
        count = int((items >= 0).sum())
        assert count == min(k, int((scores > 0).sum()))
        best = np.sort(scores)[::-1][:count]
        np.testing.assert_allclose(ours[:count], best, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scores[items[:count]], best, rtol=1e-5, atol=1e-5)  # the same list but for ties


@settings(max_examples=60, deadline=None)
@given(corpus, st.lists(text, min_size=1, max_size=5), st.integers(1, 35), st.integers(1, 35))
def test_a_smaller_k_is_a_prefix_of_a_larger(texts: list[str], queries: list[str], j: int, k: int) -> None:
    index = KeywordIndex.build(texts, "english")
    weights = index.weights(1.2, 0.75)
    small, large = index.search(queries, min(j, k), weights), index.search(queries, max(j, k), weights)
    width = small.items.shape[1]
    np.testing.assert_array_equal(small.items, large.items[:, :width])
    np.testing.assert_array_equal(small.scores, large.scores[:, :width])
    assert width <= min(j, k)
    for query in range(len(queries)):
        alone = index.search(queries[query : query + 1], max(j, k), weights)
        assert alone.items[0].tolist() == large.items[query][: alone.items.shape[1]].tolist()


def test_ties_are_in_the_order_of_their_codes_wherever_k_cuts_them() -> None:
    texts = ["common"] * 50 + ["common rare"] + ["common"] * 50
    assert search(texts, "common rare", 7) == [50, 0, 1, 2, 3, 4, 5]


def test_many_queries_are_searched_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    index = KeywordIndex.build([f"w{i % 7}" for i in range(70)], "plain")
    queries = [f"w{i % 7}" if i % 3 else "none" for i in range(100)]
    whole = index.search(queries, 6, index.weights(1.5, 0.75))
    monkeypatch.setattr("sweep.retrieval.keyword_index._BLOCK", 7 * 70)
    parts = index.search(queries, 6, index.weights(1.5, 0.75))
    np.testing.assert_array_equal(parts.items, whole.items)
    assert whole.counts.tolist() == [6 if i % 3 else 0 for i in range(100)]


def same(a: Rankings, b: Rankings) -> None:
    np.testing.assert_array_equal(a.items, b.items)
    np.testing.assert_array_equal(a.scores, b.scores)


@ANALYZERS
@pytest.mark.parametrize(
    "texts", [[*SMALL, "中文 café \ud800 x_1"], ["", ""], ["one"]], ids=["words", "no terms", "one term"]
)
def test_an_index_comes_back_from_the_store(texts: list[str], analyzer: str, store: Store) -> None:
    index, queries = KeywordIndex.build(texts, analyzer), ["beta gamma", "CAFÉ", "中文", "x_1", "", "one"]
    store.put("terms", "k", index.dump())
    stored = store.get("terms", "k")
    assert stored is not None
    again = KeywordIndex.load(stored)
    assert (again.analyzer, again.bytes) == (analyzer, index.bytes)
    same(again.search(queries, 9, again.weights(0.9, 0.4)), index.search(queries, 9, index.weights(0.9, 0.4)))
    twice = KeywordIndex.load(again.dump())
    same(twice.search(queries, 9, twice.weights(2, 1)), index.search(queries, 9, index.weights(2, 1)))


def test_other_k1_and_b_are_other_weights_of_the_same_counts() -> None:
    texts = ["beta", "beta beta beta beta gamma gamma gamma", "delta " * 8]
    index = KeywordIndex.build(texts, "plain")
    before = {n: a.copy() for n, a in index.dump().arrays.items()}
    assert search(texts, "beta", 3, k1=0.0) == [0, 1]  # k1 = 0: any occurrence counts alike
    assert search(texts, "beta", 3, k1=3.0, b=0.0) == [1, 0]  # no length normalisation: more is better
    index.weights(0.0, 0.0), index.weights(3.0, 1.0)
    for name, array in index.dump().arrays.items():
        np.testing.assert_array_equal(array, before[name])


def test_counts_of_terms() -> None:
    counts, terms = analyze(["b a b", "", "A"], "plain")
    assert dict(zip(terms, counts.toarray().T.tolist(), strict=True)) == {"b": [2, 0, 0], "a": [1, 0, 1]}


def test_english_joins_forms_and_drops_stop_words() -> None:
    assert search(["the runner was running", "ran", "run"], "runs", 3, "english") == [2, 0]
    assert search(["the cat", "a dog"], "the a of", 3, "english") == []
    assert search(["the cat", "a dog"], "the", 3, "plain") == [0]
    counts, terms = analyze(["connect connected connecting", " ".join(ENGLISH_STOP_WORDS)], "english")
    assert (terms, counts.toarray().tolist()) == (["connect"], [[3], [0]])


@pytest.mark.parametrize("query", ["Straße", "ÉCOLE", "ελληνικά", "русский", "한국어", "中文", "x_1", "3"])
def test_words_of_any_language_are_found_in_any_case(query: str) -> None:
    texts = ["nothing", "before, " + query.lower() + "! after"]
    for asked in (query, query.lower(), query.capitalize()):
        assert search(texts, asked, 2) == [1]


@pytest.mark.parametrize("word", ["über", "café", "résumé", "日本ガイド", "한국어"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_word_is_found_however_its_accents_are_encoded(word: str, form: str) -> None:
    texts = ["b er caf re sum", unicodedata.normalize("NFC", word), unicodedata.normalize("NFD", word)]
    asked = unicodedata.normalize("NFC" if form == "NFC" else "NFD", word)
    assert search(texts, asked, 3) == [1, 2]


@pytest.mark.parametrize("word", ["हिन्दी", "ไทยที่นี่", "தமிழ்", "عَرَبِيّ", "İstanbul"])
def test_vowel_signs_and_marks_do_not_cut_a_word(word: str) -> None:
    assert analyze([word], "plain")[0].sum() == 1
