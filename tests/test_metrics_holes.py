"""Bounds over all ways to fill the holes: by hand, and against every filling of small rankings."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import Judgments, LabelScale, Measure, bounds, evaluate
from metrics.measures import REGISTRY

MEASURES = [Measure(name, k) for name in REGISTRY for k in (1, 2, 3, 5, None) if k or not REGISTRY[name].needs_cutoff]
MEASURES += [Measure(name, 2, condensed=True) for name in ("ndcg", "map", "fidelity")]
Qrels = dict[str, int]


def listed(names: str) -> dict[str, float]:
    """Documents by their letters, best first."""
    return {name: -float(place) for place, name in enumerate(names)}


def bound(qrels: Qrels, names: str, measure: str, scale: LabelScale | None = None) -> tuple[float, float]:
    found = bounds(Judgments.from_dict({"q": qrels}, scale), {"q": listed(names)}, [measure])
    ((low, high),) = found.values()
    return low.item(), high.item()


def test_without_holes_nothing_is_open() -> None:
    assert bound({"a": 1, "b": 0}, "ba", "ndcg@2") == pytest.approx((1 / np.log2(3), 1 / np.log2(3)))


def test_ndcg_by_hand() -> None:
    # scale 0…1, x unjudged before a: x relevant gives (1 + 1/log2 3) / (1 + 1/log2 3) = 1, x not 1/log2 3
    assert bound({"a": 1}, "xa", "ndcg@2", LabelScale(0, 1)) == pytest.approx((1 / np.log2(3), 1))
    # a first: x relevant below the cut raises the ideal alone
    assert bound({"a": 1}, "ax", "ndcg@1", LabelScale(0, 1)) == (1, 1)  # the ideal at 1 holds a or x
    assert bound({"a": 1}, "abx", "ndcg@2", LabelScale(0, 1)) == pytest.approx((1 / (1 + 1 / np.log2(3)), 1))


def test_recall_fidelity_and_map_by_hand() -> None:
    # a relevant and found first, y relevant and not found; x a hole second
    assert bound({"a": 1, "y": 1}, "ax", "recall@2", LabelScale(0, 1)) == pytest.approx((1 / 2, 2 / 3))
    assert bound({"a": 1, "y": 1}, "ax", "recall@1", LabelScale(0, 1)) == pytest.approx((1 / 3, 1 / 2))
    # weights 3 for label 1 and 31 for label 4
    assert bound({"a": 1, "y": 1}, "ax", "fidelity@2") == pytest.approx((3 / 6, 34 / 37))
    # AP: x irrelevant 1/2; x relevant (1 + 2/2) / 3
    assert bound({"a": 1, "y": 1}, "ax", "map", LabelScale(0, 1)) == pytest.approx((1 / 2, 2 / 3))


def test_rbp_gains_the_weight_of_its_holes_and_the_residual_adds_the_tail() -> None:
    low, high = bound({"a": 1}, "axy", "rbp@2")
    assert (low, high) == pytest.approx((0.2, 0.2 + 0.2 * 0.8))
    scores = evaluate({"q": {"a": 1}}, {"q": listed("axy")}, ["rbp@2", "rbp_residual@2", "rbp_residual"])
    assert [values.item() for values in scores.values.values()] == pytest.approx([0.2, 0.8, 0.8])


def test_holes_may_all_be_judged_or_none() -> None:
    assert bound({"a": 1}, "axy", "holes") == (0, 2)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Judgments, dict[str, float], list[str]]:
    """One query, up to seven documents retrieved, up to four of them holes."""
    scale = draw(st.sampled_from([LabelScale(0, 1), LabelScale(0, 2), LabelScale(1, 3), LabelScale(-1, 1)]))
    holes = list("wxyz")[: draw(st.integers(0, 4))]
    judged = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(scale.min, scale.max), min_size=1))
    found = draw(st.permutations([*holes, *draw(st.lists(st.sampled_from(sorted(judged)), unique=True, max_size=3))]))
    relevant_from = draw(st.integers(scale.min + 1, scale.max))
    return Judgments.from_dict({"q": judged}, scale, relevant_from=relevant_from), listed("".join(found)), holes


@settings(deadline=None, max_examples=100)
@given(case=cases(), convention=st.sampled_from(["scaled", "foundry"]))
def test_bounds_are_the_extremes_of_all_fillings(
    case: tuple[Judgments, dict[str, float], list[str]], convention: Any
) -> None:
    judgments, found, holes = case
    scale, options = judgments.scale, {"convention": convention}
    known = judgments.by_id[0]
    fillings: list[dict[str, int]] = [
        dict(zip(holes, labels, strict=True)) for labels in product(range(scale.min, scale.max + 1), repeat=len(holes))
    ]
    values = [evaluate(judgments, {"q": found}, MEASURES, **options).values]
    for filling in fillings:
        judged = Judgments.from_dict({"q": {**known, **filling}}, scale, relevant_from=judgments.relevant_from)
        values.append(evaluate(judged, {"q": found}, MEASURES, **options).values)
    for measure, (low, high) in bounds(judgments, {"q": found}, MEASURES, **options).items():
        every = [value[measure].item() for value in values]
        assert (low.item(), high.item()) == pytest.approx((min(every), max(every)), abs=1e-12), str(measure)


def test_many_queries_over_several_blocks_are_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    documents = [f"d{code:02d}" for code in range(40)]
    qrels = {
        f"q{row}": {d: int(rng.integers(0, 5)) for d in rng.choice(documents, 12, replace=False)} for row in range(30)
    }
    run = {
        query: {str(d): float(s) for d, s in zip(rng.choice(documents, n, replace=False), rng.random(n), strict=True)}
        for query, n in zip(qrels, rng.integers(0, 30, 30), strict=True)
    }
    judgments = Judgments.from_dict(qrels)
    together = bounds(judgments, run, MEASURES)
    monkeypatch.setattr("metrics.holes._CELLS", 100)
    for measure, (low, high) in bounds(judgments, run, MEASURES).items():
        np.testing.assert_allclose(low, together[measure].low, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(high, together[measure].high, rtol=1e-12, atol=1e-15)
    for row, query in enumerate(qrels):
        alone = bounds({query: qrels[query]}, {query: run[query]}, MEASURES)
        for measure, found in alone.items():
            assert (found.low.item(), found.high.item()) == pytest.approx(
                (together[measure].low[row], together[measure].high[row]), abs=1e-12
            ), str(measure)
