"""Vector search: cosine order, ties by code, a smaller k a prefix of a larger, nothing made up."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import Rankings
from sweep.artifacts import Store
from sweep.errors import SettingsError
from sweep.retrieval import vector_index as module
from sweep.retrieval.vector_index import DIGITS, VectorIndex, ann_recall, one_thread
from sweep.retrieval.vectors import Floats, prepare, unit

FACTORIES = pytest.mark.parametrize("factory", ["Flat", "HNSW16"])
APPROXIMATE = [
    "HNSW8",
    "HNSW8_SQ8",
    "IVF16,Flat",
    "IVF16,SQ8",
    "PQ8",
    "IVF4,PQ8",
    "PQ8x4,RFlat",
    "IVF4,PQ8,RFlat",
    "SQ8",
]


def vectors(count: int, width: int = 24, seed: int = 5) -> Floats:
    return unit(np.random.default_rng(seed).standard_normal((count, width), np.float32))


def oracle(base: Floats, queries: Floats, k: int) -> Rankings:
    """Every cosine in float64, rounded as stated; score descending, then code."""
    scores = np.round(queries.astype(np.float64) @ base.T.astype(np.float64), DIGITS)
    order = np.lexsort((np.broadcast_to(np.arange(len(base)), scores.shape), -scores))[:, :k]
    return Rankings(order.astype(np.int32), np.take_along_axis(scores, order, 1).astype(np.float32))


@FACTORIES
@pytest.mark.parametrize("queries", [1, 5, 64])  # FAISS takes another path from 20 queries on
def test_the_nearest_by_cosine(factory: str, queries: int) -> None:
    base, asked = vectors(300), vectors(queries, seed=6)
    found = VectorIndex.build(base, factory).search(asked, 10, ef_search=300)
    expected = oracle(base, asked, 10)
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-6)
    assert (found.items == expected.items).mean() > 0.99  # but for ties at the sixth decimal
    assert found.items.dtype == np.int32
    assert found.scores.dtype == np.float32


@FACTORIES
@pytest.mark.parametrize("k", [3, 5, 100, 10**9])
def test_more_than_there_are_gives_each_once(factory: str, k: int) -> None:  # CASES S22
    found = VectorIndex.build(vectors(3), factory).search(vectors(4, seed=6), k, ef_search=16)
    assert found.items.shape == (4, 3)
    assert np.sort(found.items, axis=1).tolist() == [[0, 1, 2]] * 4
    assert np.isfinite(found.scores).all()


@FACTORIES
def test_an_index_smaller_than_its_links(factory: str) -> None:  # CASES S22: no training, no lists to fill
    base = vectors(10)
    assert VectorIndex.build(base, factory).search(base, 1, ef_search=10).items[:, 0].tolist() == list(range(10))


@FACTORIES
def test_an_empty_index_finds_nothing(factory: str) -> None:
    found = VectorIndex.build(np.empty((0, 8), np.float32), factory).search(vectors(2, 8), 5)
    assert found.items.shape == (2, 0)


@FACTORIES
def test_no_queries_make_no_lists(factory: str) -> None:
    found = VectorIndex.build(vectors(10), factory).search(np.empty((0, 24), np.float32), 5)
    assert len(found.items) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("factory", ["Flat", *APPROXIMATE])
def test_a_chunk_that_is_not_finite_is_never_a_result(factory: str, bad: float) -> None:  # CASES S22
    base, asked = vectors(700), vectors(3, seed=6)
    base[[0, 7], 0] = bad
    index = VectorIndex.build(base, factory)
    for search in (index.search, VectorIndex.load(index.dump()).search):
        found = search(asked, 700, ef_search=2000, nprobe=16, refine_factor=1)
        assert not np.isin(found.items, [-1, 0, 7]).any()
        assert found.counts.tolist() == [698] * 3
        near = search(base[[1, 699]], 1, ef_search=700, nprobe=16, refine_factor=20).items[:, 0].tolist()
        assert near == [1, 699] or ("PQ" in factory and "RFlat" not in factory)


@pytest.mark.parametrize("factory", ["Flat", *APPROXIMATE])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_a_query_that_is_not_finite_has_no_result(factory: str, bad: float, similarity: str) -> None:  # CASES S22
    asked = vectors(3, seed=6)
    asked[1] = bad
    found = VectorIndex.build(vectors(700), factory, similarity=similarity).search(asked, 5, nprobe=16)
    assert found.counts.tolist() == [5, 0, 5]
    assert (found.items[1] == -1).all()
    assert (found.scores[1] == -np.inf).all()


def test_a_query_too_long_to_be_measured_has_no_result() -> None:  # its score would be infinite
    base = np.array([[1e15, 0], [1, 0]], np.float32)
    index = VectorIndex.build(base, "Flat", similarity="inner_product")
    assert index.search(np.array([[1e25, 0], [1, 0]], np.float32), 2).items.tolist() == [[-1, -1], [0, 1]]


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


def log_fetches(index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note how many queries are searched at a time, and how deep."""
    log: list[tuple[int, int]] = []
    fetch = index._fetch

    def noted(queries: Floats, k: int, settings: tuple[int | None, ...]) -> tuple[npt.NDArray[np.int32], Floats]:
        log.append((len(queries), k))
        return fetch(queries, k, settings)

    monkeypatch.setattr(index, "_fetch", noted)
    return log


def test_queries_are_searched_some_at_a_time_and_deeper_where_ties_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    index, asked = VectorIndex.build(vectors(1000), "Flat"), vectors(80, seed=6)
    expected = oracle(vectors(1000), asked, 9).items
    asked[43], asked[70] = 0, np.nan
    log = log_fetches(index, monkeypatch)
    monkeypatch.setattr(module, "_QUERIES", 30)
    found = index.search(asked, 9)
    assert log == [(27, 25), (27, 25), (27, 100), (27, 400), (27, 1000), (26, 25)]
    assert found.items[43].tolist() == list(range(9))
    others = np.delete(np.arange(80), [43, 70])
    assert (found.items[others] == expected[others]).mean() > 0.99  # but for ties at the sixth decimal


def test_ties_that_begin_at_the_cut() -> None:
    base = np.zeros((40, 2), np.float32)
    base[:39, 0], base[39, 0] = 0.5, 1
    found = VectorIndex.build(base, "Flat", similarity="inner_product").search(np.array([[1, 0]], np.float32), 2)
    assert found.items.tolist() == [[39, 0]]


def test_an_approximate_search_is_not_deepened(monkeypatch: pytest.MonkeyPatch) -> None:
    index = VectorIndex.build(np.ones((100, 4), np.float32), "HNSW8")
    log = log_fetches(index, monkeypatch)
    index.search(np.ones((2, 4), np.float32), 9)
    assert log == [(2, 9)]


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_a_smaller_k_is_a_prefix_of_a_larger_in_every_bit(similarity: str) -> None:
    index, asked = VectorIndex.build(vectors(3000, 48), "Flat", similarity=similarity), vectors(300, 48, seed=6)
    asked[[3, 40]] = 0
    deep = index.search(asked, 3000)
    for k in (1, 9, 100, 1000):
        found = index.search(asked, k)
        np.testing.assert_array_equal(found.items, deep.items[:, :k])
        np.testing.assert_array_equal(found.scores, deep.scores[:, :k])


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
        found = index.search(asked, 10, ef_search=ef)
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
        assert (a.factory, a.note, a.bytes) == (b.factory, b.note, b.bytes)
        np.testing.assert_array_equal(a.search(asked, 10, ef_search=20).items, b.search(asked, 10, ef_search=20).items)
    assert index.factory.exact == (factory == "Flat")
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


@pytest.mark.parametrize("factory", APPROXIMATE)
@pytest.mark.parametrize("similarity", ["cosine", "inner_product", "l2"])
def test_every_factory_finds_what_is_near(factory: str, similarity: str, capfd: pytest.CaptureFixture[str]) -> None:
    base, asked = vectors(2000) * 3, vectors(30, seed=6) * 2
    base, asked = (prepare(v, similarity=similarity) for v in (base, asked))
    exact = VectorIndex.build(base, "Flat", similarity=similarity).search(asked, 20)
    index = VectorIndex.build(base, factory, similarity=similarity)
    found = index.search(asked, 10, ef_search=200, nprobe=16, refine_factor=20)
    assert ann_recall(found, exact, 10).mean() > (0.25 if "PQ" in factory and "RFlat" not in factory else 0.8)
    assert found.counts.tolist() == [10] * 30
    assert (index.note, capfd.readouterr().err) == ("", "")
    store_back = VectorIndex.load(index.dump())
    again = store_back.search(asked, 10, ef_search=200, nprobe=16, refine_factor=20)
    np.testing.assert_array_equal(again.items, found.items)


def test_distances_are_squared_and_the_nearest_is_first() -> None:
    base = np.array([[0, 0], [3, 4], [1, 0]], np.float32)
    found = VectorIndex.build(base, "Flat", similarity="l2").search(np.array([[1, 0]], np.float32), 3)
    assert found.items.tolist() == [[2, 0, 1]]
    assert found.scores.tolist() == [[0, -1, -20]]  # 2² + 4²


def test_an_inner_product_prefers_the_longer() -> None:  # CASES S23: what cosine is asked for to avoid
    raw = np.array([[10, 10], [1, 0]], np.float32)
    found = VectorIndex.build(raw, "Flat", similarity="inner_product").search(np.array([[1, 0]], np.float32), 2)
    assert (found.items.tolist(), found.scores.tolist()) == ([[0, 1]], [[10, 1]])


def test_large_scores_that_differ_in_the_seventh_digit_tie() -> None:  # CASES S33
    lengths = np.float32(267.1236) + np.arange(9, dtype=np.float32) * np.float32(3.1e-5)  # the last the greatest
    base = np.stack([lengths, np.zeros(9, np.float32)], axis=1)
    for similarity, asked, score in (("inner_product", [1, 0], 267.124), ("l2", [0, 0], -71355)):
        index = VectorIndex.build(base, "Flat", similarity=similarity)
        found = index.search(np.array([asked], np.float32), 5)
        assert found.items.tolist() == [[0, 1, 2, 3, 4]]
        assert found.scores[0, 0] == pytest.approx(score, rel=1e-5)
    assert len(np.unique(lengths)) == 9


def test_a_long_query_leaves_the_scores_of_others_as_they_are() -> None:
    base, asked = vectors(300), vectors(30, seed=6)
    index = VectorIndex.build(base, "Flat", similarity="inner_product")
    alone = index.search(asked[1:], 10)
    asked[0] *= 1e6
    beside = index.search(asked, 10)
    np.testing.assert_allclose(beside.scores[1:], alone.scores, atol=2e-6)
    assert (beside.items[1:] == alone.items).mean() > 0.99


def recall_of(index: VectorIndex, asked: Floats, exact: Rankings, **settings: int) -> float:
    return float(ann_recall(index.search(asked, 10, **settings), exact, 10).mean())


def test_each_search_parameter_does_something() -> None:  # FAISS ignores parameters of the wrong class silently
    base, asked = vectors(3000, 32), vectors(60, 32, seed=6)
    exact = VectorIndex.build(base, "Flat").search(asked, 30)
    lists = VectorIndex.build(base, "IVF64,Flat")
    assert recall_of(lists, asked, exact, nprobe=1) < recall_of(lists, asked, exact, nprobe=16)
    assert recall_of(lists, asked, exact, nprobe=64) == recall_of(lists, asked, exact, nprobe=9999) == 1
    codes = VectorIndex.build(base, "PQ8x4,RFlat")
    assert recall_of(codes, asked, exact, refine_factor=1) < recall_of(codes, asked, exact, refine_factor=10)
    both = VectorIndex.build(base, "IVF64,PQ8,RFlat")
    few, many = (recall_of(both, asked, exact, nprobe=n, refine_factor=20) for n in (1, 64))
    assert few < many
    graph = VectorIndex.build(base, "HNSW4_SQ8,RFlat")
    few, many = (recall_of(graph, asked, exact, ef_search=n, refine_factor=2) for n in (1, 500))
    assert few < many
    wide = recall_of(graph, asked, exact, ef_search=1, refine_factor=30)  # 300 candidates, so as wide as that
    assert wide == recall_of(graph, asked, exact, ef_search=300, refine_factor=30) > 0.9
    better = VectorIndex.build(base, "HNSW4", ef_construction=400)
    assert recall_of(VectorIndex.build(base, "HNSW4", ef_construction=4), asked, exact) < recall_of(
        better, asked, exact
    )


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF16,PQ8", "PQ8", "SQ8", "IVF16,SQ8"])
def test_what_scans_gives_a_prefix_for_a_smaller_k(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = vectors(1500)
    base[700:760] = base[3]  # ties at the cut
    index = VectorIndex.build(base, factory)
    assert index.factory.scans
    asked = np.concatenate([vectors(10, seed=6), base[3:4]])
    large = index.search(asked, 100, nprobe=4)
    for k in (1, 7, 40):
        np.testing.assert_array_equal(index.search(asked, k, nprobe=4).items, large.items[:, :k])
    log = log_fetches(index, monkeypatch)
    index.search(asked, 7, nprobe=4)
    assert log == [(11, 23), (11, 92)]  # beyond the 61 that tie


@pytest.mark.parametrize(("factory", "built"), [("IVF100,Flat", "Flat"), ("PQ8", "Flat"), ("IVF8,SQ8", "SQ8")])
def test_too_few_vectors_are_said_once_and_searched(
    factory: str, built: str, capfd: pytest.CaptureFixture[str]
) -> None:  # CASES S22
    index = VectorIndex.build(vectors(10), factory)
    assert index.note == f"10 vectors are too few for {factory}; {built} was built"
    assert index.search(vectors(10), 3, nprobe=5).items[:, 0].tolist() == list(range(10))
    assert capfd.readouterr().err == ""


def test_fewer_lists_where_there_are_too_few_vectors() -> None:
    index = VectorIndex.build(vectors(200), "IVF64,Flat")
    assert index.note == "200 vectors are too few for IVF64,Flat; IVF5,Flat was built"  # 200 / 39
    assert index.search(vectors(200), 1, nprobe=5).items[:, 0].tolist() == list(range(200))


def test_parts_must_divide_the_dimensions() -> None:
    with pytest.raises(SettingsError, match=r"index PQ7: 7 parts do not divide 24 dimensions; allowed: 1, 2, 3, 4, 6"):
        VectorIndex.build(vectors(300), "PQ7")
    with pytest.raises(SettingsError, match="'IVF' is not allowed"):
        VectorIndex.build(vectors(300), "IVF")


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
@pytest.mark.parametrize("factory", ["Flat", *APPROXIMATE, "HNSW8_SQ4,RFlat", "SQfp16", "SQ6,Refine(SQ8)"])
def test_few_vectors_of_any_kind_are_each_found_once(
    factory: str, similarity: str, capfd: pytest.CaptureFixture[str]
) -> None:  # CASES S22
    for n in (0, 1, 2, 3, 40, 79):
        for base, same in ((vectors(n), False), (np.ones((n, 24), np.float32), True)):
            index = VectorIndex.build(base, factory, similarity=similarity)
            for k in (1, 5, n + 30):
                found = index.search(vectors(4, seed=6), k, ef_search=16, nprobe=100, refine_factor=3)
                assert found.items.shape == (4, min(k, n))
                for row in found.items.tolist():
                    reached = [i for i in row if i >= 0]
                    assert len({*reached}) == len(reached) <= n
                    assert len(reached) == min(k, n) or ("HNSW" in factory and same)  # its links lead to few of them
    assert capfd.readouterr().err == ""


def test_bytes_count_what_is_held() -> None:
    base = vectors(1000, 32)
    assert VectorIndex.build(base, "Flat").bytes == base.nbytes
    assert VectorIndex.build(base, "Flat", bytes_each=4).bytes == 4000
    assert 32_000 < VectorIndex.build(base, "SQ8").bytes < 34_000
    graph = VectorIndex.build(base, "HNSW8").bytes
    assert VectorIndex.build(base, "HNSW8", bytes_each=32).bytes == graph - 1000 * 96
    assert VectorIndex.build(base, "SQ8", bytes_each=4).bytes == VectorIndex.build(base, "SQ8").bytes
    refined = VectorIndex.build(base, "SQ8,RFlat").bytes  # what refines is held as it is given
    assert VectorIndex.build(base, "SQ8,RFlat", bytes_each=32).bytes == refined - 1000 * 96
    coarse = VectorIndex.build(base, "SQ4,Refine(SQ8)").bytes
    assert VectorIndex.build(base, "SQ4,Refine(SQ8)", bytes_each=32).bytes == coarse


@pytest.mark.parametrize("factory", ["HNSW8", "IVF16,Flat", "PQ8", "IVF4,PQ8x4"])
def test_threads_do_not_change_what_is_trained(factory: str) -> None:
    import faiss

    before, made = faiss.omp_get_max_threads(), []
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        made.append(VectorIndex.build(vectors(1500), factory).dump()["index"])
    faiss.omp_set_num_threads(before)
    np.testing.assert_array_equal(*made)


def test_recall_counts_ties_at_the_cut_as_found() -> None:
    none = -np.inf
    scores = np.array([[0.9, 0.5, 0.5, 0.1], [1, none, none, none], [none] * 4], np.float32)
    exact = Rankings(np.array([[4, 1, 2, 3], [7, -1, -1, -1], [-1] * 4], np.int32), scores)
    found = Rankings(np.array([[4, 2], [3, 7], [5, 6]], np.int32), np.zeros((3, 2), np.float32))
    assert ann_recall(found, exact, 2).tolist() == [1, 1, 1]  # 2 ties with 1; one chunk is there to find; none is
    wrong = Rankings(np.array([[3, 2], [3, 9], [5, 6]], np.int32), np.zeros((3, 2), np.float32))
    assert ann_recall(wrong, exact, 2).tolist() == [0.5, 0, 1]
    deeper = Rankings(np.array([[3, 9, 4, 1], [3, 9, 7, -1], [-1] * 4], np.int32), np.zeros((3, 4), np.float32))
    assert ann_recall(deeper, exact, 2).tolist() == [0, 0, 1]  # found, but not among the first two
    assert ann_recall(found, Rankings(exact.items[:, :0], exact.scores[:, :0]), 2).tolist() == [1, 1, 1]
