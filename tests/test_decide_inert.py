"""Parameters that changed no ranking, by hand."""

import numpy as np

from metrics import Measure
from sweep.decide.inert import inert
from sweep.optimize.outcome import Outcome
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import Value


def outcome(documents: list[int], tokens: int = 9, **settings: Value) -> Outcome:
    return Outcome(
        configuration=Configuration.of({"algorithm": "keyword", **settings}),
        scores={Measure("ndcg", 10): np.zeros(1)},
        documents=np.array([documents], np.int32),
        chunks=np.array([documents], np.int32),
        context_tokens=np.array([tokens]),
        latency_ms=1.0, index_bytes=1, rerank_pairs=0, truncated=0.0, ann_recall=1.0, pool_recall=np.empty(0), notes=(),
    )  # fmt: skip


def test_a_parameter_that_changed_nothing_is_named() -> None:
    outcomes = [outcome([k1, 5], k1=k1, b=b) for k1 in (1, 2) for b in (0.2, 0.4)]
    assert inert(outcomes) == ("b",)


def test_one_pair_that_differs_is_enough() -> None:
    outcomes = [outcome([1, 5], k1=k1, b=b) for k1 in (1, 2) for b in (0.2, 0.4)]
    assert inert(outcomes) == ("k1", "b")
    outcomes[-1] = outcome([5, 1], k1=2, b=0.4)
    assert inert(outcomes) == ()


def test_context_tokens_and_depth_count_as_a_change() -> None:
    assert inert([outcome([1, 5], chunk_size=64), outcome([1, 5], tokens=8, chunk_size=128)]) == ()
    assert inert([outcome([1, 5], top_k=2), outcome([1], top_k=1)]) == ()


def test_what_was_never_compared_is_not_named() -> None:
    # both parameters change at once: nothing is known of either
    assert inert([outcome([1], k1=1, b=0.2), outcome([1], k1=2, b=0.4)]) == ()
    assert inert([outcome([1], k1=1)]) == ()
    assert inert([]) == ()
