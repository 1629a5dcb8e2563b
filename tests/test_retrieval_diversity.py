"""Maximal marginal relevance against a plain loop; at most so many chunks a document by hand."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import Rankings, rank
from sweep.retrieval import diversity
from sweep.retrieval.diversity import at_most_per_document, maximal_marginal_relevance
from sweep.retrieval.fusion import normalized
from sweep.retrieval.vectors import Floats, unit

Made = Callable[[np.random.Generator, int], Floats]


def one_by_one(items: list[int], gains: list[float], vectors: Floats, balance: float, count: int) -> list[int]:
    """Carbonell and Goldstein's rule, a chunk at a time."""
    left, chosen = list(range(len(items))), list[int]()
    while left and len(chosen) < count:
        worth = []
        for at in left:
            likest = max((float(vectors[items[at]] @ vectors[items[other]]) for other in chosen), default=0.0)
            worth.append(gains[at] if not chosen else balance * gains[at] - (1 - balance) * likest)
        best = left[int(np.argmax(worth))]
        chosen.append(best)
        left.remove(best)
    return [items[at] for at in chosen]


def unit_halves(rng: np.random.Generator, n: int) -> Floats:
    """Vectors of four halves, + or −: of length one, and every product is exact, so that ties are many and true."""
    return rng.choice(np.array([-0.5, 0.5], np.float32), (n, 4))


def unit_any(rng: np.random.Generator, n: int) -> Floats:
    return unit(rng.standard_normal((n, 6)).astype(np.float32))


@pytest.mark.parametrize("made", [unit_halves, unit_any])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 8), st.integers(1, 14), st.integers(1, 16))
def test_equal_to_choosing_one_by_one(made: Made, seed: int, eighths: int, pool: int, top_k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, queries = made(rng, 20), made(rng, 3)
    ranking = rank(np.tile(np.arange(20), (3, 1)), queries @ vectors.T, 12)
    gains = ranking.scores.astype(np.float64)
    found = maximal_marginal_relevance(
        ranking, gains, lambda codes: vectors[codes], balance=eighths / 8, pool=pool, top_k=top_k
    )
    for query in range(3):
        items, worth = ranking.items[query, :pool].tolist(), gains[query, :pool].tolist()
        expected = one_by_one(items, worth, vectors, eighths / 8, top_k)
        assert [i for i in found.items[query].tolist() if i >= 0] == expected
        scores = found.scores[query, : len(expected)]
        assert (np.diff(scores) < 0).all()
    assert found.scores.dtype == np.float32


def test_all_weight_on_relevance_is_the_ranking_itself() -> None:
    rng = np.random.default_rng(3)
    vectors = unit_any(rng, 30)
    ranking = rank(np.tile(np.arange(30), (5, 1)), rng.random((5, 30)))
    given_scale = normalized(ranking.cut(20))
    found = maximal_marginal_relevance(ranking, given_scale, lambda c: vectors[c], balance=1, pool=20, top_k=9)
    np.testing.assert_array_equal(found.items, ranking.items[:, :9])


def test_worked_by_hand() -> None:
    # 1 is a copy of 0, so that the third, orthogonal one is better: .5 · .3 − 0 against .5 · .9 − .5 · 1
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    ranking = rank([[0, 1, 2]], [[0.95, 0.9, 0.3]])
    found = maximal_marginal_relevance(
        ranking, ranking.scores.astype(float), lambda codes: vectors[codes], balance=0.5, pool=3, top_k=2
    )
    assert found.items.tolist() == [[0, 2]]
    relevance = np.array([[0.1, 0.2, 0.3]])  # not in the order of the ranking; the first is by it, whatever the balance
    found = maximal_marginal_relevance(ranking, relevance, lambda codes: vectors[codes], balance=0, pool=3, top_k=3)
    assert found.items.tolist() == [[2, 0, 1]]


def test_lists_of_different_lengths_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32))
    ranking = rank([[0, 1, 2, 3], [8, 5, -1, -1], [-1] * 4], np.linspace(1, 0, 12).reshape(3, 4))
    asked: list[list[int]] = []

    def vectors_of(codes: npt.NDArray[np.int64]) -> Floats:
        asked.append(codes.tolist())
        return vectors[codes]

    def chosen(balance: float = 0.0) -> Rankings:  # 0 · −inf, of the padding, must not come up
        return maximal_marginal_relevance(ranking, ranking.scores, vectors_of, balance=balance, pool=4, top_k=3)

    whole = chosen()
    assert whole.counts.tolist() == [3, 2, 0]
    assert asked == [[0, 1, 2, 3, 5, 8]]  # each once, and none that is in no pool
    monkeypatch.setattr(diversity, "_BLOCK", 1)  # a query at a time
    np.testing.assert_array_equal(chosen().items, whole.items)
    assert asked[1:] == [[0, 1, 2, 3], [5, 8]]
    empty = Rankings(np.empty((2, 0), np.int32), np.empty((2, 0), np.float32))
    assert maximal_marginal_relevance(
        empty, np.empty((2, 0)), lambda c: vectors[c], balance=0.4, pool=4, top_k=3
    ).items.shape == (2, 0)


def test_at_most_so_many_of_a_document() -> None:
    document = np.array([0, 0, 0, 1, 1, 2], np.int32)
    ranking = rank([[2, 0, 3, 1, 4, 5], [5, -1, -1, -1, -1, -1]], [[9, 8, 7, 6, 5, 4], [1, 0, 0, 0, 0, 0]])
    one, two = (at_most_per_document(ranking, document, n) for n in (1, 2))
    assert one.items.tolist() == [[2, 3, 5, -1, -1, -1], [5, -1, -1, -1, -1, -1]]
    assert one.scores[0].tolist() == [9, 7, 4, -np.inf, -np.inf, -np.inf]
    assert two.items.tolist()[0] == [2, 0, 3, 4, 5, -1]
    np.testing.assert_array_equal(at_most_per_document(ranking, document, 9).items, ranking.items)
    nothing = rank([[-1, -1]], [[0, 0]])
    assert at_most_per_document(nothing, document, 1).items.tolist() == [[-1, -1]]
