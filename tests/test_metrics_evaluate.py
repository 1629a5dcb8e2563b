"""Values worked by hand (cases S05, S06, S09, S13, S14), and what must hold for every registered measure."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import Judgments, LabelScale, Measure, Rankings, evaluate, evaluate_many, rank
from metrics.measures import REGISTRY

BASE = {"a": 4, "b": 2, "c": 1, "d": 0}
FOUND = {"b": 0.9, "x": 0.8, "a": 0.7, "d": 0.1}
ALL = ["ndcg@3", "xdcg@3", "fidelity", "top1_relevance", "top3_max_relevance", "holes", "holes_ratio"]


def score(qrels: dict[str, int], run: dict[str, float], *measures: str, **options: Any) -> list[float]:
    scale = options.pop("scale", LabelScale())
    scores = evaluate(Judgments.from_dict({"q": qrels}, scale), {"q": run}, measures, **options)
    return [values.item() for values in scores.values.values()]


def listed(names: str) -> dict[str, float]:
    """Documents by their letters, best first."""
    return {name: -float(place) for place, name in enumerate(names)}


def test_base_check() -> None:  # CASES, reference definitions
    expected = [0.603698, 43.877551, 0.926829, 2, 4, 1, 0.25]
    assert score(BASE, FOUND, *ALL) == pytest.approx(expected, abs=1e-6)
    assert score(BASE, FOUND, *ALL, convention="foundry") == pytest.approx(expected, abs=1e-6)
    assert score(BASE, FOUND, "ndcg_linear@3") == pytest.approx([0.694220], abs=1e-6)  # S13


def test_binary_measures_of_the_base_check() -> None:
    # relevant a, b, c; found b at 1, a at 3: precision at the two 1/1 and 2/3
    measures = ["recall@2", "recall", "precision@3", "precision@5", "hit@1", "mrr@3", "map@3", "map@2"]
    expected = [1 / 3, 2 / 3, 2 / 3, 2 / 5, 1, 1, (1 + 2 / 3) / 3, 1 / 3]
    assert score(BASE, FOUND, *measures) == pytest.approx(expected)


def test_relevant_from_raises_the_bar() -> None:
    scores = evaluate(
        Judgments.from_dict({"q": BASE}, relevant_from=3),
        {"q": FOUND},
        ["recall@2", "recall@3", "mrr", "hit@2", "ndcg@3"],
    )
    assert [scores.mean(m) for m in scores.values] == pytest.approx([0, 1, 1 / 3, 0, 0.603698], abs=1e-6)


def test_ideal_is_over_all_judged_documents() -> None:  # S09
    assert score({"a": 4, "b": 4, "c": 4}, listed("a"), "ndcg@3") == pytest.approx([0.469279], abs=1e-6)


def test_short_and_hole_only_results() -> None:  # S14
    qrels = {"a": 4, "b": 2, "c": 1}
    assert score(qrels, listed("a"), *ALL[:3]) == pytest.approx([0.862426, 51.020408, 0.756098], abs=1e-6)
    fidelities = [score(qrels, listed(names), "fidelity")[0] for names in ("a", "ax", "axb", "axbyc")]
    assert fidelities == pytest.approx([0.756098, 0.756098, 0.926829, 1], abs=1e-6)
    assert score(qrels, listed("xy"), *ALL) == [0, 0, 0, 0, 0, 2, 1]
    assert score(qrels, {}, *ALL) == [0] * 7


def test_query_without_results_stays_in_the_mean() -> None:  # S05
    judgments = Judgments.from_dict({"q1": {"a": 4, "b": 2, "c": 1}, "q2": {"x": 1}})
    scores = evaluate(judgments, {"q1": listed("abc"), "q9": listed("a")}, ["ndcg@3"])
    assert scores.mean("ndcg@3") == pytest.approx(0.5)
    assert (scores.unjudged, scores.without_results) == (("q9",), ("q2",))


def test_query_without_a_relevant_document_is_left_out_and_named() -> None:  # S06
    judgments = Judgments.from_dict({"q1": {"a": 1}, "q2": {"a": 0, "b": 0}}, queries=["q1", "q2", "q3"])
    scores = evaluate(judgments, {"q1": listed("a"), "q2": listed("ab")}, ["ndcg@3"])
    assert scores.values[Measure("ndcg", 3)].tolist() == [1, 0, 0]
    assert scores.mean(Measure("ndcg", 3)) == 1
    assert (scores.without_relevant, scores.unjudged) == (("q2",), ("q3",))


def test_no_mean_without_scored_queries_or_of_another_measure() -> None:
    scores = evaluate(Judgments.from_dict({"q": {"a": 0}}), {}, ["ndcg@3"])
    with pytest.raises(ValueError, match="no query has a relevant"):
        scores.mean("ndcg@3")
    with pytest.raises(ValueError, match="mrr was not evaluated; there are ndcg@3"):
        scores.mean("mrr")


def test_scaled_convention_measures_from_the_minimum() -> None:
    # scale 1…5, labels one above the base check's: the same figures, but for the labels themselves
    shifted = {name: label + 1 for name, label in BASE.items()}
    expected = [0.603698, 43.877551, 0.926829, 3, 5, 1, 0.25]
    assert score(shifted, FOUND, *ALL, scale=LabelScale(1, 5)) == pytest.approx(expected, abs=1e-6)
    assert score({"a": 1, "b": 0}, listed("a"), "xdcg@1", scale=LabelScale(0, 1)) == [100]
    assert score({"a": 0, "b": -1}, listed("a"), "fidelity", "ndcg@1", scale=LabelScale(-1, 1)) == [1, 1]


def test_foundry_convention_takes_raw_labels() -> None:
    # DESIGN §5: 125 at label 5, 25 on a 0/1 scale; on 1…5 label 1 earns gain 1 and an unjudged document 0
    assert score({"a": 5}, listed("a"), "xdcg@1", convention="foundry", scale=LabelScale(0, 5)) == [125]
    assert score({"a": 1}, listed("a"), "xdcg@1", convention="foundry", scale=LabelScale(0, 1)) == [25]
    found = score({"a": 1, "b": 2}, listed("ax"), "ndcg@1", "fidelity", convention="foundry", scale=LabelScale(1, 5))
    assert found == pytest.approx([1 / 3, 0])
    assert score({"a": 2}, listed("x"), "max_relevance@1", convention="foundry", scale=LabelScale(1, 5)) == [0]
    with pytest.raises(ValueError, match="'scaled' or 'foundry'"):
        score(BASE, FOUND, "ndcg@3", convention="raw")


def test_uncut_ndcg_reaches_past_the_results() -> None:
    assert score({"a": 1, "b": 1}, listed("a"), "ndcg") == pytest.approx([1 / (1 + 1 / np.log2(3))])


def test_judged_leaves_the_holes_out() -> None:
    # a, then two holes, then b: in the condensed list b is second
    found = score(
        {"a": 4, "b": 2}, listed("axyb"), "judged(ndcg@2)", "ndcg@2", "judged(precision@2)", "judged(max_relevance@2)"
    )
    assert found == pytest.approx([1, 15 / (15 + 3 / np.log2(3)), 1, 4])
    assert score({"a": 4}, listed("xy"), "judged(ndcg)", "judged(mrr)") == [0, 0]


def test_rank_biased_precision_by_hand() -> None:
    # relevant first and third: 0.2 (1 + 0.64); unknown: the second, 0.2 · 0.8, and what is past the third, 0.8³
    found = score({"a": 1, "b": 3, "c": 0}, listed("axb"), "rbp", "rbp@2", "rbp_residual", "rbp_residual@2")
    assert found == pytest.approx([0.2 * 1.64, 0.2, 0.2 * 0.8 + 0.8**3, 0.2 * 0.8 + 0.8**2])
    assert score({"a": 0}, listed("a"), "rbp", "rbp_residual") == pytest.approx([0, 0.8])


DOCUMENTS = 8
SCALES = [LabelScale(), LabelScale(0, 1), LabelScale(1, 5), LabelScale(-2, 2), LabelScale(0, 12)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Judgments, Rankings]:
    """A few queries over eight documents, some unjudged, some not retrieved."""
    scale = draw(st.sampled_from(SCALES))
    count, width = draw(st.integers(1, 4)), draw(st.integers(0, DOCUMENTS))
    labels = st.dictionaries(
        st.integers(0, DOCUMENTS - 1).map(lambda code: f"d{code}"), st.integers(scale.min, scale.max)
    )
    qrels = {f"q{row}": draw(labels) for row in range(count)}
    documents = [f"d{code}" for code in range(DOCUMENTS)]
    relevant_from = draw(st.integers(scale.min + 1, scale.max))
    judgments = Judgments.from_dict(qrels, scale, relevant_from=relevant_from, documents=documents)
    lists = [draw(st.permutations(range(DOCUMENTS)))[:width] for _ in range(count)]
    kept = [draw(st.integers(0, width)) for _ in range(count)]
    items = [row[:end] + [-1] * (width - end) for row, end in zip(lists, kept, strict=True)]
    places = np.tile(-np.arange(width), (count, 1))
    return judgments, rank(np.array(items, dtype=np.int32).reshape(count, width), places)


Values = dict[Measure, np.ndarray[Any, np.dtype[np.float64]]]
cutoffs = st.integers(1, DOCUMENTS + 2)


def every(judgments: Judgments, rankings: Rankings, *ks: int | None, **options: Any) -> Values:
    """Evaluate every measure of the registry at each cutoff, and its judged(…); None is no cutoff."""
    measures = [
        Measure(name, k, condensed)
        for name, definition in REGISTRY.items()
        for k in ks
        for condensed in (False, True)
        if (k or not definition.needs_cutoff) and not (condensed and definition.about_holes)
    ]
    return evaluate(judgments, rankings, measures, **options).values


def assert_same(ours: Values, others: Values) -> None:
    assert ours.keys() == others.keys()
    for measure in ours:
        np.testing.assert_array_equal(ours[measure], others[measure], err_msg=str(measure))


@given(case=cases(), k=cutoffs)
def test_range(case: tuple[Judgments, Rankings], k: int) -> None:
    scale = case[0].scale
    for measure, values in every(*case, k, None).items():
        low, high = measure.definition.bounds(scale)
        assert values.shape == (len(case[0].queries),)
        assert ((values >= low) & (values <= high + 1e-12)).all(), str(measure)


@given(case=cases(), k=cutoffs)
def test_foundry_is_finite_and_equal_from_zero_to_four(case: tuple[Judgments, Rankings], k: int) -> None:
    raw = every(*case, k, None, convention="foundry")
    assert all(np.isfinite(values).all() for values in raw.values())
    if case[0].scale == LabelScale():
        assert_same(raw, every(*case, k, None))


@given(case=cases(), k=cutoffs, copies=st.integers(0, 3), convention=st.sampled_from(["scaled", "foundry"]))
def test_many_configurations_are_scored_as_each_alone(
    case: tuple[Judgments, Rankings], k: int, copies: int, convention: Any
) -> None:
    judgments, found = case
    shifted = [np.roll(found.items, by, axis=1) for by in range(copies)]
    ranked = [rank(items, np.tile(-np.arange(items.shape[1]), (len(items), 1))) for items in shifted]
    stacked = np.stack([found.items, *(one.items for one in ranked)])
    alone = [every(judgments, one, k, None, convention=convention) for one in (found, *ranked)]
    for given_as in (stacked, [found, *ranked]):
        many = evaluate_many(judgments, given_as, list(alone[0]), convention=convention)
        for c, values in enumerate(alone):
            assert_same(values, {measure: table[c] for measure, table in many.items()})


def test_configurations_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    judgments = Judgments.from_dict(
        {f"q{row}": {f"d{d}": int(rng.integers(0, 5)) for d in range(9)} for row in range(4)}
    )
    items = np.array([[rng.permutation(9)[:6] for _ in range(4)] for _ in range(10)], np.int32)
    whole = evaluate_many(judgments, items, ["ndcg@3", "map"])
    monkeypatch.setattr(sys.modules["metrics.evaluate"], "_CELLS", 50)
    assert_same(whole, evaluate_many(judgments, items, ["ndcg@3", "map"]))
    assert evaluate_many(judgments, items[:0], ["ndcg@3"])[Measure("ndcg", 3)].shape == (0, 4)
    with pytest.raises(ValueError, match=r"document codes \(C, Q, K\) are needed, got int32 \(4, 6\)"):
        evaluate_many(judgments, items[0], ["ndcg@3"])


@given(case=cases(), k=cutoffs, extra=st.integers(1, 3))
def test_padding_changes_nothing(case: tuple[Judgments, Rankings], k: int, extra: int) -> None:
    judgments, found = case
    shape = (len(found.items), extra)
    padded = Rankings(
        np.hstack([found.items, np.full(shape, -1, dtype=np.int32)]),
        np.hstack([found.scores, np.full(shape, -np.inf, dtype=np.float32)]),
    )
    assert_same(every(*case, k, None), every(judgments, padded, k, None))


@given(case=cases(), k=cutoffs)
def test_a_cut_ranking_has_the_same_prefix(case: tuple[Judgments, Rankings], k: int) -> None:
    cut = every(case[0], case[1].cut(k), k)  # judged(…) looks further down, for what moves up
    whole = every(*case, k)
    assert_same(*({m: v for m, v in values.items() if not m.condensed} for values in (whole, cut)))


@given(case=cases())
def test_many_cutoffs_equal_each_alone(case: tuple[Judgments, Rankings]) -> None:
    ks = (9, 2, None, 1, 4, 30)
    assert_same(every(*case, *ks), {m: v for k in ks for m, v in every(*case, k).items()})


@given(case=cases(), k=cutoffs, data=st.data())
def test_a_query_is_scored_alone_as_among_others(case: tuple[Judgments, Rankings], k: int, data: st.DataObject) -> None:
    judgments, found = case
    row = data.draw(st.integers(0, len(judgments.queries) - 1))
    mine = judgments.rows == row
    alone = Judgments.from_arrays(
        [judgments.queries[row]],
        judgments.documents,
        np.zeros(mine.sum()),
        judgments.items[mine],
        judgments.labels[mine],
        judgments.scale,
        relevant_from=judgments.relevant_from,
    )
    ranked = Rankings(found.items[row : row + 1], found.scores[row : row + 1])
    assert_same(every(alone, ranked, k, None), {m: v[row : row + 1] for m, v in every(*case, k, None).items()})


def test_a_long_query_is_scored_alone_as_among_others() -> None:
    # NumPy adds a lone column of eight and more pairwise, which would move the last bit
    rng = np.random.default_rng(3)
    documents = [f"{code:03d}" for code in range(200)]
    labels = rng.integers(0, 5, (50, 200))
    queries, rows, items = [f"q{row}" for row in range(50)], np.repeat(np.arange(50), 200), np.tile(np.arange(200), 50)
    judgments = Judgments.from_arrays(queries, documents, rows, items, labels.ravel())
    found = rank(np.tile(np.arange(200), (50, 1)), rng.random((50, 200)))
    together = every(judgments, found, 100)
    for row in range(50):
        alone = Judgments.from_arrays(["q"], documents, np.zeros(200), np.arange(200), labels[row])
        mine = every(alone, Rankings(found.items[row : row + 1], found.scores[row : row + 1]), 100)
        assert_same(mine, {m: v[row : row + 1] for m, v in together.items()})


@given(case=cases(), k=cutoffs, data=st.data())
def test_input_order_and_names_change_nothing(case: tuple[Judgments, Rankings], k: int, data: st.DataObject) -> None:
    judgments, found = case
    qrels: dict[str, dict[str, int]] = {query: {} for query in judgments.queries}
    for row, item, label in zip(judgments.rows, judgments.items, judgments.labels, strict=True):
        qrels[judgments.queries[row]][f"renamed {item}"] = int(label)
    run = {}
    for query, items in zip(judgments.queries, found.items.tolist(), strict=True):
        pairs = [(f"renamed {item}", -float(place)) for place, item in enumerate(items) if item >= 0]
        run[query] = dict(data.draw(st.permutations(pairs)))
    renamed = Judgments.from_dict(qrels, judgments.scale, relevant_from=judgments.relevant_from)
    assert_same(every(*case, k, None), every(renamed, run, k, None))


@given(case=cases(), k=cutoffs, data=st.data())
def test_moving_a_better_document_up_never_lowers_quality(
    case: tuple[Judgments, Rankings], k: int, data: st.DataObject
) -> None:
    judgments, found = case
    places = st.lists(st.integers(0, DOCUMENTS - 1), min_size=2, max_size=2, unique=True)
    upper, lower = sorted(data.draw(places))
    before = every(*case, k, None)
    for condensed in (False, True):  # in a condensed list a hole has no place that another document could take
        items, bottom = found.items.copy(), None if condensed else judgments.scale.min
        for row, known in enumerate(judgments.by_id):
            if lower < found.counts[row]:
                high, low = (known.get(judgments.documents[items[row, place]], bottom) for place in (upper, lower))
                if high is not None and low is not None and low > high:
                    items[row, [upper, lower]] = items[row, [lower, upper]]
        for measure, values in every(judgments, Rankings(items, found.scores), k, None).items():
            if measure.condensed == condensed and measure.higher_is_better:
                assert (values >= before[measure] - 1e-12).all(), str(measure)
