"""From outcomes to the answer: the right lines, differences, intervals and names, and strict values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from metrics import Judgments, LabelScale, Measure
from metrics.inference import mean_intervals, paired_difference
from sweep.decide.recommendation import RUNNERS_UP, Recommendation, recommend
from sweep.errors import NothingFeasibleError
from sweep.optimize.outcome import Outcome
from sweep.optimize.study_file import make_study
from sweep.optimize.study_spec import StudySpec
from sweep.retrieval.configuration import Configuration

NDCG, HOLES = Measure("ndcg", 10), Measure.parse("holes_ratio")
COUNT = 40
QUERIES = tuple(f"q{i:02}" for i in range(COUNT + 3))
# the last three queries do not count: q40 has no judgment, q41 and q42 no relevant document
LABELS: dict[str, dict[str, int]] = {q: {"a": 1} for q in QUERIES[:COUNT]} | {"q41": {"a": 0}, "q42": {"b": 0}}
JUDGED = Judgments.from_dict(LABELS, LabelScale(0, 4), queries=QUERIES, documents=["a", "b"])


def spec(**parts: Any) -> StudySpec:
    return make_study({"collection": {"path": "x"}, "measures": ["ndcg@10", "holes_ratio"], **parts}).spec


def outcome(
    top_k: int, scores: npt.NDArray[np.float64] | float, tokens: float = 0, holes: float = 0.0, size: int = 100
) -> Outcome:
    counted = np.broadcast_to(np.asarray(scores, float), COUNT)
    ndcg = np.concatenate([counted, [0.123, 0.456, 0.789]])  # what queries that do not count have must not matter
    share = np.full(len(QUERIES), holes)
    return Outcome(
        configuration=Configuration.of({"algorithm": "keyword", "top_k": top_k}),
        scores={NDCG: ndcg, HOLES: share},
        documents=np.zeros((len(QUERIES), 1), np.int32),
        chunks=np.zeros((len(QUERIES), 1), np.int32),
        context_tokens=np.full(len(QUERIES), int(tokens or 10 * top_k), np.int64),
        latency_ms=1.0 + top_k, index_bytes=size, rerank_pairs=0, truncated=0.0, ann_recall=1.0,
        pool_recall=np.empty(0), notes=(),
    )  # fmt: skip


GENERATOR = np.random.default_rng(5)
SCORES = GENERATOR.uniform(0.3, 0.7, COUNT)
NOISE = GENERATOR.normal(0, 0.01, (8, COUNT))


def chosen(outcomes: Sequence[Outcome], baseline: int = -1, **parts: Any) -> Recommendation:
    return recommend(spec(**parts), JUDGED, outcomes, baseline)


def test_what_counts_and_what_does_not_is_named() -> None:
    answer = chosen([outcome(3, SCORES)])
    assert answer.scored == COUNT
    assert answer.unjudged == ("q40",)
    assert answer.without_relevant == ("q41", "q42")
    assert answer.recommended.scores["ndcg@10"] == pytest.approx(SCORES.mean())


def test_the_difference_is_over_the_same_queries() -> None:
    """By hand: 0.1 better on 10 queries, 0.3 worse on 2, equal on 28: mean (1 − 0.6) / 40 = 0.01."""
    change = np.zeros(COUNT)
    change[:10], change[10:12] = 0.1, -0.3
    answer = chosen([outcome(3, SCORES), outcome(2, SCORES + change)], baseline=0)
    assert answer.recommended.configuration.top_k == 2
    difference = answer.differences["ndcg@10"]
    assert difference.mean == pytest.approx(0.01)
    assert (difference.wins, difference.ties, difference.losses) == (10, 28, 2)
    error = change.std(ddof=1) / np.sqrt(COUNT)
    assert difference.high - difference.low == pytest.approx(2 * 2.0226909 * error)  # t at 39 degrees of freedom
    assert difference == paired_difference(SCORES + change, SCORES)
    assert answer.baseline is not None
    assert answer.baseline.configuration.top_k == 3


def test_lines_hold_what_the_outcomes_say() -> None:
    answer = chosen([outcome(3, SCORES, holes=0.25, size=777), outcome(5, SCORES - 0.1)], baseline=1)
    line = answer.recommended
    assert line.costs == {"context_tokens": 30.0, "index_bytes": 777.0, "rerank_pairs": 0.0, "latency_ms": 4.0}
    # every query ranks document a, judged 1 or not at all: nothing is open for the scored ones
    assert line.hole_bounds["ndcg@10"] == (1.0, 1.0)
    assert line.scores["holes_ratio"] == 0.25
    assert (
        list(line.intervals) == ["ndcg@10", "holes_ratio"] == list(answer.baseline.intervals if answer.baseline else [])
    )
    low, high = line.intervals["ndcg@10"]
    assert low < SCORES.mean() < high
    alone = mean_intervals(SCORES[None], np.random.default_rng(0))[0]
    assert (low, high) == pytest.approx(tuple(alone), abs=0.002)


def test_runners_up_are_the_next_by_estimate() -> None:
    outcomes = [outcome(k, SCORES - 0.03 * k + NOISE[k - 1] / 10, tokens=10 * k) for k in range(1, 9)]
    answer = chosen(outcomes[::-1])
    assert answer.recommended.configuration.top_k == 1
    assert [line.configuration.top_k for line in answer.runners_up] == [2, 3, 4, 5, 6][:RUNNERS_UP]
    assert all(list(line.intervals) == ["ndcg@10"] for line in answer.runners_up)


@pytest.mark.parametrize("order", [(3, 5, 10), (10, 5, 3), (5, 10, 3)])
def test_equal_configurations_give_the_smallest_top_k(order: tuple[int, ...]) -> None:
    answer = chosen([outcome(k, 0.5, tokens=10) for k in order], cost=["rerank_pairs"])
    assert answer.recommended.configuration.top_k == 3
    assert answer.argmax.configuration.top_k == 3


def test_a_cheaper_one_within_the_tolerance_is_recommended_and_the_maximum_named() -> None:
    outcomes = [outcome(10, SCORES, tokens=100), outcome(3, SCORES - 0.005 + NOISE[0] / 20, tokens=30)]
    answer = chosen(outcomes)
    assert answer.recommended.configuration.top_k == 3
    assert answer.argmax.configuration.top_k == 10
    assert chosen(outcomes, objective={"maximize": "ndcg@10", "tolerance": 1e-4}).recommended.configuration.top_k == 10
    assert chosen(outcomes, cost=["index_bytes"]).recommended.configuration.top_k == 10  # equal cost: the better one


def test_constraints_keep_out_what_breaks_them() -> None:
    outcomes = [
        outcome(10, SCORES + 0.1, tokens=100),
        outcome(5, SCORES, tokens=50),
        outcome(3, SCORES - 0.2, holes=0.5),
    ]
    limits = {"context_tokens": "<= 50", "holes_ratio": "<= 0.2"}
    answer = chosen(outcomes, baseline=0, constraints=limits)
    assert answer.recommended.configuration.top_k == 5
    assert answer.runners_up == ()
    assert answer.baseline is not None  # shown all the same
    assert not answer.baseline.feasible
    assert answer.baseline.to_dict()["estimate"] is None
    with pytest.raises(NothingFeasibleError, match=r"the constraint 'context_tokens <= 1' excludes 3"):
        chosen(outcomes, constraints={"context_tokens": "<= 1"})


def strict(values: Mapping[str, Any]) -> Any:
    def never(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(json.dumps(values), parse_constant=never)


@pytest.mark.parametrize("count", [1, 2, COUNT])
def test_the_values_are_strict_json(count: int) -> None:
    """One query says nothing of spread: its intervals and p are null."""
    judged = Judgments.from_dict({"q0": {"a": 1}, "q1": {"a": 1}}, LabelScale(0, 4), queries=("q0", "q1"))
    if count == 1:
        judged = Judgments.from_dict({"q0": {"a": 1}}, LabelScale(0, 4), queries=("q0", "q1"))
    if count == COUNT:
        judged = JUDGED
    made = [outcome(k, SCORES - k / 100) for k in (3, 5)]
    if count < COUNT:
        made = [cut(o, 2) for o in made]
    values = strict(recommend(spec(), judged, made, 1).to_dict())
    difference = values["difference_to_baseline"]["ndcg@10"]
    assert values["queries"]["scored"] == count
    assert (difference["interval"] == [None, None]) == (difference["p"] is None) == (count == 1)
    assert isinstance(values["recommended"]["settings"]["top_k"], int)


def cut(o: Outcome, count: int) -> Outcome:
    return replace(
        o,
        scores={m: v[:count] for m, v in o.scores.items()},
        documents=o.documents[:count],
        context_tokens=o.context_tokens[:count],
    )


def test_without_a_baseline_nothing_is_compared() -> None:
    answer = chosen([outcome(3, SCORES)])
    assert answer.baseline is None
    assert answer.differences == {}
    assert answer.to_dict()["baseline"] is None


def test_the_answer_does_not_depend_on_the_order_of_the_outcomes() -> None:
    outcomes = [outcome(k, SCORES + NOISE[k - 1], tokens=10 * k) for k in (1, 2, 3, 4)]
    answers = [
        chosen([outcomes[i] for i in order], baseline=order.index(0)).to_dict()
        for order in ([0, 1, 2, 3], [3, 1, 0, 2])
    ]
    for part in ("may_be_best", "good_enough", "argmax", "recommended"):
        assert answers[0][part] == answers[1][part]
