"""Vector search: cosine order, ties by code, a smaller k a prefix of a larger, nothing made up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import Rankings
from sweep.artifacts import Store
from sweep.retrieval.embedding import Floats, unit
from sweep.retrieval.vector_index import DECIMALS, VectorIndex, one_thread

FACTORIES = pytest.mark.parametrize("factory", ["Flat", "HNSW16"])


def vectors(count: int, width: int = 24, seed: int = 5) -> Floats:
    return unit(np.random.default_rng(seed).standard_normal((count, width), np.float32))


def oracle(base: Floats, queries: Floats, k: int) -> Rankings:
    """Every cosine in float64, rounded as stated; score descending, then code."""
    scores = np.round(queries.astype(np.float64) @ base.T.astype(np.float64), DECIMALS)
    order = np.lexsort((np.broadcast_to(np.arange(len(base)), scores.shape), -scores))[:, :k]
    return Rankings(order.astype(np.int32), np.take_along_axis(scores, order, 1).astype(np.float32))


@FACTORIES
@pytest.mark.parametrize("queries", [1, 5, 64])  # FAISS takes another path from 20 queries on
def test_the_nearest_by_cosine(factory: str, queries: int) -> None:
    base, asked = vectors(300), vectors(queries, seed=6)
    found = VectorIndex.build(base, factory).search(asked, 10, 300)
    expected = oracle(base, asked, 10)
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-6)
    assert (found.items == expected.items).mean() > 0.99  # but for ties at the sixth decimal
    assert found.items.dtype == np.int32
    assert found.scores.dtype == np.float32


@FACTORIES
@pytest.mark.parametrize("k", [3, 5, 100, 10**9])
def test_more_than_there_are_gives_each_once(factory: str, k: int) -> None:  # CASES S22
    found = VectorIndex.build(vectors(3), factory).search(vectors(4, seed=6), k, 16)
    assert found.items.shape == (4, 3)
    assert np.sort(found.items, axis=1).tolist() == [[0, 1, 2]] * 4
    assert np.isfinite(found.scores).all()


@FACTORIES
def test_an_index_smaller_than_its_links(factory: str) -> None:  # CASES S22: no training, no lists to fill
    base = vectors(10)
    assert VectorIndex.build(base, factory).search(base, 1, 10).items[:, 0].tolist() == list(range(10))


@FACTORIES
def test_an_empty_index_finds_nothing(factory: str) -> None:
    found = VectorIndex.build(np.empty((0, 8), np.float32), factory).search(vectors(2, 8), 5)
    assert found.items.shape == (2, 0)


@FACTORIES
def test_no_queries_make_no_lists(factory: str) -> None:
    found = VectorIndex.build(vectors(10), factory).search(np.empty((0, 24), np.float32), 5)
    assert len(found.items) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_chunk_that_is_not_finite_is_never_a_result(bad: float) -> None:  # CASES S22
    base = vectors(40)
    base[7, 0] = bad
    found = VectorIndex.build(base, "Flat").search(vectors(3, seed=6), 40)
    assert (found.items != 7).all()
    assert found.counts.tolist() == [39] * 3
    short = VectorIndex.build(base, "Flat").search(vectors(3, seed=6), 5)
    np.testing.assert_array_equal(short.items, found.items[:, :5])


@FACTORIES
def test_a_query_that_is_not_finite_has_no_result(factory: str) -> None:  # CASES S22
    asked = vectors(3, seed=6)
    asked[1] = np.nan
    found = VectorIndex.build(vectors(200), factory).search(asked, 5)
    assert found.counts.tolist() == [5, 0, 5]
    assert (found.items[1] == -1).all()
    assert (found.scores[1] == -np.inf).all()


def test_both_sides_at_unit_length_rank_by_angle() -> None:  # CASES S23
    raw = np.array([[10, 10], [1, 0]], np.float32)
    found = VectorIndex.build(unit(raw), "Flat").search(unit(np.array([[1, 0]], np.float32)), 2)
    assert found.items.tolist() == [[1, 0]]
    assert found.scores.tolist() == [[1.0, pytest.approx(0.707107, abs=1e-6)]]
    assert float(found.scores.max()) <= 1 + 1e-5


@pytest.mark.parametrize("k", [1, 2, 5, 16, 17, 33, 60])
def test_ties_are_in_the_order_of_their_codes_wherever_k_cuts_them(k: int) -> None:
    base = vectors(100)
    same = np.random.default_rng(1).permutation(100)[:60]
    base[same] = base[same[0]]  # 60 copies of one chunk
    found = VectorIndex.build(base, "Flat").search(base[same[:2]], k)
    assert found.items.tolist() == [np.sort(same)[:k].tolist()] * 2


@pytest.mark.parametrize("k", [1, 5, 30, 99])
def test_scores_that_round_to_one_value_tie(k: int) -> None:  # CASES S33: differences of 1e-7 are noise
    cosine = np.float32(0.5) + np.arange(100, dtype=np.float32) // 15 * np.float32(6e-8)  # the last the greatest
    base = np.stack([cosine, np.sqrt(1 - cosine**2)], axis=1)
    found = VectorIndex.build(base, "Flat").search(np.array([[1, 0]], np.float32), k)
    assert len(np.unique(cosine)) > 5
    assert found.items.tolist() == [list(range(k))]
    assert found.scores.tolist() == [[0.5] * k]


def test_a_zero_query_ties_everything() -> None:
    found = VectorIndex.build(vectors(100), "Flat").search(np.zeros((1, 24), np.float32), 30)
    assert found.items.tolist() == [list(range(30))]


few = st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=3, max_size=3), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(few, few, st.integers(1, 45), st.integers(1, 45))
def test_a_smaller_k_is_a_prefix_of_a_larger(base: list[list[float]], asked: list[list[float]], j: int, k: int) -> None:
    index = VectorIndex.build(unit(np.array(base, np.float32)), "Flat")  # few directions: many ties
    queries = unit(np.array(asked, np.float32))
    small, large = index.search(queries, min(j, k)), index.search(queries, max(j, k))
    width = small.items.shape[1]
    np.testing.assert_array_equal(small.items, large.items[:, :width])
    np.testing.assert_array_equal(small.scores, large.scores[:, :width])
    np.testing.assert_array_equal(large.items, oracle(unit(np.array(base, np.float32)), queries, max(j, k)).items)


def test_the_width_of_a_search_needs_no_other_index() -> None:
    base, asked = vectors(3000, 32), vectors(50, 32, seed=6)
    index = VectorIndex.build(base, "HNSW4")
    before = index.dump()["index"]
    exact = oracle(base, asked, 10).items
    recall = []
    for ef in (1, 10, 50, 3000):  # 1 is held at k
        found = index.search(asked, 10, ef)
        assert found.counts.tolist() == [10] * 50
        recall.append(
            np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.items.tolist(), exact.tolist(), strict=True)])
        )
    assert recall[0] == recall[1] < recall[2] < recall[3]
    np.testing.assert_array_equal(index.dump()["index"], before)


@FACTORIES
def test_an_index_comes_back_from_the_store(factory: str, store: Store) -> None:
    base, asked = vectors(200), vectors(20, seed=6)
    index = VectorIndex.build(base, factory)
    store.put("index", "k", index.dump())
    stored = store.get("index", "k")
    assert stored is not None
    again = VectorIndex.load(stored)
    for a, b in ((index, again), (again, VectorIndex.load(again.dump()))):
        assert (a.factory, a.exact, a.bytes) == (b.factory, b.exact, b.bytes)
        np.testing.assert_array_equal(a.search(asked, 10, 20).items, b.search(asked, 10, 20).items)
    assert index.exact == (factory == "Flat")
    assert index.bytes >= base.nbytes


@FACTORIES
def test_the_same_vectors_build_the_same_index(factory: str) -> None:
    one, two = (VectorIndex.build(vectors(1500), factory).dump()["index"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_vectors_and_queries_stay_as_they_were() -> None:
    base, asked = vectors(30), vectors(3, seed=6)
    kept = base.copy(), asked.copy()
    VectorIndex.build(base, "Flat").search(asked, 5)
    np.testing.assert_array_equal(base, kept[0])
    np.testing.assert_array_equal(asked, kept[1])


def test_one_thread_within_the_block() -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    with one_thread():
        assert faiss.omp_get_max_threads() == 1
    assert faiss.omp_get_max_threads() == 2
    faiss.omp_set_num_threads(before)
