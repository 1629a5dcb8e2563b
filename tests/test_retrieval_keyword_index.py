"""Keyword search: BM25 by hand, equal to bm25s, nothing for nothing, words of any language."""

import math
import re
from pathlib import Path

import bm25s  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metrics import Rankings
from sweep.artifacts import Store
from sweep.collection.loading import CollectionSpec, load
from sweep.retrieval.keyword_index import VARIANTS, KeywordIndex

ANALYZERS = pytest.mark.parametrize("analyzer", ["plain", "bigrams", "english"])
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
numbers = st.tuples(st.floats(0, 3), st.floats(0, 1), st.floats(0, 2))


def split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def reference(texts: list[str], queries: list[str], **setting: float | str) -> list[np.ndarray]:
    """Scores of every text by bm25s 0.3.16, given the words ready split."""
    retriever = bm25s.BM25(**setting)
    retriever.index([split(text) for text in texts], show_progress=False)
    known = {word for text in texts for word in split(text)}
    asked = [[word for word in split(query) if word in known] for query in queries]
    return [retriever.get_scores(words) if words else np.zeros(len(texts), np.float32) for words in asked]


def worth(df: int, n: int, variant: str) -> bool:
    """Whether a term in df of n chunks is worth something."""
    return {"robertson": df < n / 2, "atire": df < n}.get(variant, True)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@given(corpus, st.lists(text, min_size=1, max_size=5), numbers, st.integers(1, 40))
@example(["the beta", "the beta beta", "x"], ["beta beta the"], (0.0, 1.0, 0.0), 3)
@example(["the beta", "the beta beta", "x"], ["beta beta the"], (3.0, 0.0, 2.0), 1)
@example([*["the beta"] * 6, ""], ["beta the the"], (1.5, 0.75, 0.5), 4)
def test_equal_to_bm25s(
    variant: str, texts: list[str], queries: list[str], numbers: tuple[float, float, float], k: int
) -> None:
    k1, b, delta = numbers
    if variant in ("bm25l", "bm25+"):  # for k1 = 0 bm25s's constant is 0 / 0
        k1 = max(k1, 0.01)
    texts = [*texts, "alpha"]  # bm25s cannot index a corpus without a word
    index = KeywordIndex.build(texts, "plain")
    found = index.search(queries, k, index.weights(k1, b, variant, delta))
    held = [set(split(text)) for text in texts]
    counted = {w for row in held for w in row if worth(sum(w in other for other in held), len(texts), variant)}
    expected = reference(texts, queries, method=variant, k1=k1, b=b, delta=delta)
    for q, (query, scores) in enumerate(zip(queries, expected, strict=True)):
        hits = np.flatnonzero([bool(row & counted & set(split(query))) for row in held])
        items = found.items[q][found.items[q] >= 0]
        assert set(items) <= set(hits)
        assert len(items) == min(k, len(hits))
        best = np.sort(scores[hits])[::-1][: len(items)]
        np.testing.assert_allclose(found.scores[q, : len(items)], best, rtol=1e-5)
        np.testing.assert_allclose(scores[items], best, rtol=1e-5)  # the same list but for ties


def test_equal_to_bm25s_on_a_real_collection(shared_data: Path) -> None:
    collection = load(CollectionSpec(format="beir", path=shared_data / "xquad-tr", labels={"max": 1}), Path())
    texts, queries = ([" ".join(split(t)) for t in side] for side in (collection.texts, collection.query_texts[::20]))
    index = KeywordIndex.build(texts, "plain")
    for variant in VARIANTS:
        found = index.search(queries, 20, index.weights(0.9, 0.4, variant, 0.7))
        expected = reference(texts, queries, method=variant, k1=0.9, b=0.4, delta=0.7)
        for items, ours, scores in zip(found.items, found.scores, expected, strict=True):
            count = int((items >= 0).sum())
            np.testing.assert_allclose(ours[:count], scores[items[:count]], rtol=1e-5)
            np.testing.assert_allclose(ours[:count], np.sort(scores)[::-1][:count], rtol=1e-5)


def test_a_chunk_that_earns_nothing_for_a_term_is_no_result() -> None:
    # atire: ln(N / df) is 0 for a term in every chunk; robertson: at most 0 for one in half of them or more
    for variant, texts in (("atire", ["a b", "a c"]), ("robertson", ["a b", "a c", "d"])):
        index = KeywordIndex.build(texts, "plain")
        assert index.search(["a"], 3, index.weights(1.5, 0.75, variant)).counts.tolist() == [0]
        assert index.search(["b"], 3, index.weights(1.5, 0.75, variant)).items[0].tolist() == [0]


def test_k1_zero_counts_presence_alone() -> None:
    # bm25+: ln(3 / 1) · (1 + .5); bm25l with delta 0: ln(3 / 1.5) · 1; with delta: what any chunk earns, so nothing
    index = KeywordIndex.build(["a a b", "c d"], "plain")
    for variant, delta, score in (("bm25+", 0.5, math.log(3) * 1.5), ("bm25l", 0.0, math.log(2))):
        found = index.search(["a"], 2, index.weights(0, 1, variant, delta))
        np.testing.assert_allclose(found.scores, [[score]], rtol=1e-6)
    assert index.search(["a"], 2, index.weights(0, 1, "bm25l", 0.5)).counts.tolist() == [0]


def test_mean_length_counts_chunks_without_terms() -> None:
    # N = 4, mean dl = 2 / 4, dl = 2: norm = .5 + .5 · 4 = 2.5; idf = ln(1 + 3.5 / 1.5)
    index = KeywordIndex.build(["", "a b", "...", ""], "plain")
    found = index.search(["a"], 2, index.weights(1, 0.5))
    np.testing.assert_allclose(found.scores, [[math.log(1 + 3.5 / 1.5) / (1 + 2.5)]], rtol=1e-6)


def test_delta_worked_by_hand() -> None:
    # bm25+: idf(a) = ln(3 / 1); tf · (k1 + 1) / (tf + k1 · norm) + delta with norm 1 (dl = mean dl): 2.5 / 2.5 + .7
    index = KeywordIndex.build(["a b", "c d"], "plain")
    found = index.search(["a"], 2, index.weights(1.5, 0.75, "bm25+", 0.7))
    np.testing.assert_allclose(found.scores, [[math.log(3) * 1.7]], rtol=1e-6)
    # bm25l: idf(a) = ln(3 / 1.5); c = 1: 2.5 · 1.7 / (1.5 + 1.7)
    found = index.search(["a"], 2, index.weights(1.5, 0.75, "bm25l", 0.7))
    np.testing.assert_allclose(found.scores, [[math.log(2) * 2.5 * 1.7 / 3.2]], rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(corpus, st.lists(text, min_size=1, max_size=5), st.integers(1, 35), st.integers(1, 35))
def test_a_smaller_k_is_a_prefix_of_a_larger(
    variant: str, texts: list[str], queries: list[str], j: int, k: int
) -> None:
    index = KeywordIndex.build(texts, "english")
    weights = index.weights(1.2, 0.75, variant, 1e6)  # a constant so large that it makes ties
    small, large = index.search(queries, min(j, k), weights), index.search(queries, max(j, k), weights)
    width = small.items.shape[1]
    np.testing.assert_array_equal(small.items, large.items[:, :width])
    np.testing.assert_array_equal(small.scores, large.scores[:, :width])
    assert width <= min(j, k)


def test_a_query_scores_the_same_bits_in_whatever_batch() -> None:
    draw = np.random.default_rng(3)
    vocabulary = [f"w{i}" for i in range(60)]
    texts, queries = ([" ".join(draw.choice(vocabulary, 25)) for _ in range(n)] for n in (80, 30))
    index = KeywordIndex.build(texts, "plain")
    weights = index.weights(1.2, 0.75, "bm25+")
    together = index.search(queries, 40, weights)
    for i, query in enumerate(queries):
        alone = index.search([query], 40, weights)
        np.testing.assert_array_equal(alone.items[0], together.items[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    assert index.search([], 3, weights).items.shape[0] == 0


def test_ties_are_in_the_order_of_their_codes_wherever_k_cuts_them() -> None:
    texts = ["common"] * 50 + ["common rare"] + ["common"] * 50
    assert search(texts, "common rare", 7) == [50, 0, 1, 2, 3, 4, 5]
    assert search(["x y"] * 9, "y", 4) == [0, 1, 2, 3]
    assert search(["x y"], "y", 4) == [0]


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
    assert stored.arrays.keys() == index.dump().arrays.keys()
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
