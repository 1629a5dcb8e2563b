"""Spans: worked by hand, against plain Python sets of positions, and on the real collections that have spans."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import Judgments, LabelScale, Measure, Rankings, evaluate, evaluate_many, rank
from metrics.lookup import HOLE
from metrics.measures import SPAN_REGISTRY
from metrics.passages import chunk_labels, passages
from metrics.spans import Chunks, Spans, Tokens, evaluate_spans
from sweep.retrieval.chunking import cut
from sweep.retrieval.keyword_index import KeywordIndex
from sweep.retrieval.models import find_model
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.tokens import tokenize

ALL = ["token_recall", "token_precision", "token_iou"]
Range = tuple[int, int, int]  # document code, start, end


def chunks(*ranges: Range) -> Chunks:
    document, start, end = np.array(ranges, np.int32).reshape(-1, 3).T.copy()
    return Chunks(document, start, end)


def listed(*rows: list[int]) -> Rankings:
    """Chunk codes, best first, with scores −0, −1, …"""
    width = max(map(len, rows))
    items = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    return rank_as_given(items)


def rank_as_given(items: np.ndarray[Any, np.dtype[np.int32]]) -> Rankings:
    places = np.broadcast_to(-np.arange(items.shape[1], dtype=np.float32), items.shape)
    return Rankings(items, np.where(items >= 0, places, np.float32(-np.inf)).astype(np.float32))


def one(*ranges: Range, label: int = 1, **options: Any) -> Spans:
    """Spans of the only query, in documents a and b."""
    return Spans.from_records([("q", "ab"[d], start, end, label) for d, start, end in ranges], ["q"], "ab", **options)


def text(spans: Spans, pieces: Chunks, rankings: Rankings, *measures: str, tokens: Tokens | None = None) -> list[float]:
    return [v.item() for v in evaluate_spans(spans, pieces, rankings, measures, tokens=tokens).values.values()]


# ---- by hand


def test_text_worked_by_hand() -> None:
    # relevant: 10…20 and 30…40 of a. The chunks add 5 of 15 (0…15), 5 of 10 (15…25), 2 of 4 and 0 of 100
    spans, pieces = one((0, 10, 20), (0, 30, 40)), chunks((0, 0, 15), (0, 5, 25), (1, 0, 100), (0, 38, 42))
    found = listed([0, 1, 3, 2])
    assert text(spans, pieces, found, *(f"{name}@1" for name in ALL)) == pytest.approx([5 / 20, 5 / 15, 5 / 30])
    assert text(spans, pieces, found, *(f"{name}@2" for name in ALL)) == pytest.approx([10 / 20, 10 / 25, 10 / 35])
    assert text(spans, pieces, found, *(f"{name}@3" for name in ALL)) == pytest.approx([12 / 20, 12 / 29, 12 / 37])
    for names in (ALL, [f"{name}@4" for name in ALL], [f"{name}@9" for name in ALL]):
        assert text(spans, pieces, found, *names) == pytest.approx([12 / 20, 12 / 129, 12 / 137])


def test_tokens_worked_by_hand() -> None:
    # tokens of a: 0…4, 5…9, 10…12, an empty one at 12, 12…20; the span 8…12 touches the second and the third
    tokens = Tokens(np.array([0, 5, 5]), np.array([0, 5, 10, 12, 12]), np.array([4, 9, 12, 12, 20]))
    pieces = chunks((0, 0, 9), (0, 4, 5), (0, 9, 20))
    spans = one((0, 8, 12))
    assert text(spans, pieces, listed([0]), *ALL, tokens=tokens) == pytest.approx([1 / 2, 1 / 2, 1 / 3])
    assert text(spans, pieces, listed([1]), *ALL, tokens=tokens) == [0, 0, 0]  # between two tokens
    assert text(spans, pieces, listed([2, 0]), *ALL, tokens=tokens) == pytest.approx([1, 2 / 4, 2 / 4])


def test_only_relevant_spans_count_and_queries_without_one_are_named() -> None:
    records = [("q1", "a", 0, 4, 2), ("q1", "a", 4, 8, 1), ("q2", "a", 0, 4, 1), ("q4", "b", 0, 4, 2)]
    spans = Spans.from_records(records, ["q1", "q2", "q3", "q4"], ["a", "b"], LabelScale(0, 2), relevant_from=2)
    scores = evaluate_spans(spans, chunks((0, 2, 8)), listed([0], [0], [0], []), ["token_recall@1", "token_precision"])
    assert scores.values[Measure("token_recall", 1)].tolist() == [1 / 2, 0, 0, 0]
    assert scores.mean("token_recall@1") == 1 / 4
    assert scores.mean("token_precision") == pytest.approx(1 / 6)
    named = scores.without_relevant, scores.unjudged, scores.without_results, scores.not_finite
    assert named == (("q2",), ("q3",), ("q4",), ())


def test_a_score_that_is_not_finite_is_named() -> None:
    found = rank([[0, 1], [0, -1]], [[0.5, np.nan], [0.5, np.nan]])
    spans = Spans.from_records([("q1", "a", 0, 4, 1)], ["q1", "q2"], ["a"])
    assert evaluate_spans(spans, chunks((0, 0, 1), (0, 1, 2)), found, ALL).not_finite == ("q1",)


def test_a_relevant_span_without_a_token_is_not_scored() -> None:
    tokens = Tokens(np.array([0, 1, 1]), np.array([0]), np.array([4]))
    scores = evaluate_spans(one((0, 4, 6)), chunks((0, 0, 9)), listed([0]), ALL, tokens=tokens)
    assert scores.without_relevant == ("q",)
    assert [values.item() for values in scores.values.values()] == [0, 0, 0]


def test_chunk_labels_worked_by_hand() -> None:
    records = [("p", "a", 0, 10, 1), ("p", "a", 8, 12, 3), ("q", "a", 0, 100, 2), ("q", "b", 0, 10, 4)]
    spans = Spans.from_records(records, ["p", "q"], ["a", "b"])
    pieces = chunks((0, 0, 5), (0, 0, 10), (0, 4, 10), (0, 0, 7), (1, 0, 4))
    found = listed([0, 1, 2, 4], [1, 3, 4])
    # chunk 1 holds all of the first span and half of the second, chunk 2 six tenths and half
    assert chunk_labels(spans, pieces, found).tolist() == [[1, 3, 3, HOLE], [HOLE] * 4]
    assert chunk_labels(spans, pieces, found, share=0.6).tolist() == [[HOLE, 1, 1, HOLE], [HOLE] * 4]
    assert chunk_labels(spans, pieces, found, share=1).tolist() == [[HOLE, 1, HOLE, HOLE], [HOLE] * 4]
    assert chunk_labels(spans, pieces, found, share=0.07).tolist()[1] == [2, 2, 4, HOLE]  # 7 of 100 are 0.07
    assert chunk_labels(spans, pieces, found).dtype == np.int16


def test_passages_worked_by_hand() -> None:
    spans = one((0, 10, 20), (0, 22, 30), (1, 0, 8), (1, 50, 60), label=2)
    pieces = chunks((0, 8, 40), (0, 12, 22), (1, 90, 99), (1, 0, 8), (0, 0, 16))
    judgments, found = passages(
        spans,
        pieces,
        Rankings(np.array([[2, 4, 1, 0, 3, -1]], np.int32), np.array([[9, 8, 7, 6, 5, -np.inf]], np.float32)),
    )
    # 2: no span; 4: the first; 1: the first again, dropped; 0: the second; 3: the third, which has the chunk's range
    ids = [judgments.documents[code] for code in found.items[0]]
    assert [one_id.replace("0" * 7, "") for one_id in ids] == ["b 090-099", "a 010-020", "a 022-030", "b 000-008"]
    assert found.scores.tolist() == [[9, 8, 6, 5]]
    assert [str(array.dtype) for array in (found.items, found.scores)] == ["int32", "float32"]
    assert {key: label for key, label in judgments.by_id[0].items() if label == 2}.keys() == {
        *ids[1:],
        "b 0000000050-0000000060",
    }
    scores = evaluate(judgments, found, ["recall@2", "recall", "precision@4", "holes", "mrr", "judged(mrr)"])
    assert [scores.mean(m) for m in scores.values] == [1 / 4, 3 / 4, 3 / 4, 1, 1 / 2, 1]


def test_one_chunk_brings_its_spans_by_start() -> None:
    judgments, found = passages(one((0, 5, 9), (0, 0, 3)), chunks((0, 0, 9), (0, 0, 9)), listed([1, 0]))
    assert [judgments.documents[code] for code in found.items[0]] == [
        "a 0000000000-0000000003",
        "a 0000000005-0000000009",
    ]
    assert found.scores.tolist() == [[0, 0]]


def test_overlapping_chunks_are_paid_once_for_a_passage() -> None:
    # the fault: both chunks of one passage earn its gain, and NDCG is 1 + 1/log2(3) = 1.63
    spans, pieces, found = one((0, 10, 20)), chunks((0, 0, 18), (0, 12, 30)), listed([0, 1])
    paid = (2.0 ** chunk_labels(spans, pieces, found)[0] - 1) / np.log2([2, 3])
    assert paid.sum() == pytest.approx(1.63, abs=0.001)
    judgments, ranked = passages(spans, pieces, found)
    scores = evaluate(judgments, ranked, ["ndcg@2", "ndcg", "recall@1", "holes"])
    assert [scores.mean(m) for m in scores.values] == [1, 1, 1, 0]
    assert text(spans, pieces, found, "token_recall") == [1]


def test_the_judgments_of_passages_do_not_depend_on_the_chunks() -> None:
    spans = Spans.from_records(
        [("p", "a", 0, 9, 1), ("q", "a", 0, 9, 3), ("q", "a\t", 3, 5, 0)], ["p", "q"], ["a", "a\t"]
    )
    labels = [passages(spans, pieces, listed([0], []))[0] for pieces in (chunks((0, 3, 4)), chunks((1, 0, 12345)))]
    assert (
        labels[0].by_id
        == labels[1].by_id
        == ({"a 0000000000-0000000009": 1}, {"a\t 0000000003-0000000005": 0, "a 0000000000-0000000009": 3})
    )
    assert labels[0].scale == spans.scale


def test_records_are_sorted_and_repeats_collapse() -> None:
    records = [("q", "b", 3, 5, 1), ("p", "b", 0, 2, 0), ("q", "a", 4, 6, 2), ("q", "b", 3.0, np.int64(5), True + 0)]
    spans = Spans.from_records(records, ["q", "p"], ["a", "b"])  # type: ignore[arg-type]
    columns = spans.query, spans.document, spans.start, spans.end, spans.label
    assert [column.tolist() for column in columns] == [[0, 0, 1], [0, 1, 1], [4, 3, 0], [6, 5, 2], [2, 1, 0]]
    assert [str(column.dtype) for column in columns] == ["int32"] * 4 + ["int16"]
    assert (spans.queries, spans.documents, spans.relevant_from) == (("q", "p"), ("a", "b"), 1)


# ---- errors


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([("q", "a", -1, 3, 1)], r"query 'q', document 'a', -1…3: a span needs 0 ≤ start < end"),
        ([("q", "a", 3, 3, 1)], r"query 'q', document 'a', 3…3: a span needs 0 ≤ start < end"),
        ([("q", "a", 0, 1 << 31, 1)], r"start < end ≤ 2147483647"),
        ([("q", "a", 0, 2.5, 1)], r"query 'q', document 'a', 0…2.5: positions must be whole numbers, got 2.5"),
        ([("q", "a", "0", 2, 1)], r"positions must be whole numbers, got '0'"),
        ([("q", "a", 0, 2, 1.5)], r"query 'q', document 'a', 0…2: a label must be a whole number, got 1.5"),
        ([("q", "a", 0, 2, 5)], r"query 'q', document 'a', 0…2: label 5 is outside the scale 0…4"),
        ([("z", "a", 0, 2, 1)], r"query 'z', document 'a', 0…2: there is no query 'z'"),
        ([("q", "z", 0, 2, 1)], r"query 'q', document 'z', 0…2: there is no document 'z'"),
        (
            [("q", "a", 0, 2, 1), ("q", "a", 0, 2, 2)],
            r"query 'q', document 'a', 0…2: judged twice, with labels 1 and 2",
        ),
    ],
)
def test_records_that_are_refused(records: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spans.from_records(records, ["q"], ["a"])


def test_ids_and_scales_are_checked_as_in_judgments() -> None:
    with pytest.raises(ValueError, match="ascending order"):
        Spans.from_records([], ["q"], ["b", "a"])
    with pytest.raises(ValueError, match="used twice"):
        Spans.from_records([], ["q", "q"], ["a"])
    with pytest.raises(ValueError, match="relevant_from must be within 1…4"):
        Spans.from_records([], ["q"], ["a"], relevant_from=9)


def test_ranges_that_are_refused() -> None:
    with pytest.raises(ValueError, match="chunk 1: 0 ≤ start ≤ end is needed, got 4…3"):
        chunks((0, 0, 2), (0, 4, 3))
    with pytest.raises(ValueError, match="columns of one length"):
        Chunks(np.zeros(2, np.int32), np.zeros(2, np.int32), np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="need whole numbers"):
        Chunks(np.zeros(2, np.int32), np.zeros(2), np.zeros(2, np.int32))  # type: ignore[arg-type]
    start, end = np.array([0, 3, 1]), np.array([2, 4, 3])
    with pytest.raises(ValueError, match="token 2, of document 0, lies before"):
        Tokens(np.array([0, 3]), start.astype(np.int32), end.astype(np.int32))
    assert Tokens(np.array([0, 2, 3]), start.astype(np.int32), end.astype(np.int32)).document.tolist() == [0, 0, 1]
    for indptr in ([0, 2], [1, 3], [0, 4, 3], []):
        with pytest.raises(ValueError, match="indptr must rise from 0 to the 3 tokens"):
            Tokens(np.array(indptr, np.int64), start.astype(np.int32), end.astype(np.int32))


def test_what_does_not_fit_together_is_refused() -> None:
    spans, pieces = one((0, 0, 3)), chunks((0, 0, 3))
    for function in (lambda s, c, r: evaluate_spans(s, c, r, ALL), chunk_labels, passages):
        with pytest.raises(ValueError, match="1 queries but 2 rankings"):
            function(spans, pieces, listed([0], [0]))
        with pytest.raises(ValueError, match="item 1 is ranked, but chunk codes end at 0"):
            function(spans, pieces, listed([1]))
        with pytest.raises(ValueError, match="document codes of chunks must be within 0…1, got 2…2"):
            function(spans, chunks((2, 0, 3)), listed([0]))
    with pytest.raises(ValueError, match="2 documents, but tokens of 1"):
        text(spans, pieces, listed([0]), *ALL, tokens=Tokens(np.array([0, 1]), np.array([0]), np.array([3])))
    for share in (0, -0.1, 1.01, float("nan")):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            chunk_labels(spans, pieces, listed([0]), share=share)


def test_measures_of_spans_and_of_documents_are_kept_apart() -> None:
    judgments, found = Judgments.from_dict({"q": {"a": 1}}), {"q": {"a": 1.0}}
    for name in SPAN_REGISTRY:
        with pytest.raises(ValueError, match=f"{name} needs spans; use evaluate_spans"):
            evaluate(judgments, found, ["ndcg@3", f"{name}@5"])
        with pytest.raises(ValueError, match=f"{name} needs spans; use evaluate_spans"):
            evaluate_many(judgments, np.zeros((1, 1, 1), np.int32), [name])
        with pytest.raises(ValueError, match=rf"judged\({name}\) has no meaning"):
            Measure.parse(f"judged({name}@5)")
        assert str(Measure.parse(f"{name}@05")) == f"{name}@5"
        assert Measure.parse(name).higher_is_better
    with pytest.raises(ValueError, match=r"ndcg needs judged documents; use evaluate, on passages"):
        evaluate_spans(one((0, 0, 3)), chunks((0, 0, 3)), listed([0]), ["token_recall@5", "ndcg@5"])
    with pytest.raises(ValueError, match="did you mean 'token_recall'"):
        Measure.parse("token_recal@5")


def test_nothing_at_all() -> None:
    empty = Spans.from_records([], ["q"], ["a"])
    for spans, found in ((empty, listed([])), (empty, listed([0])), (one((0, 0, 3)), listed([]))):
        assert text(spans, chunks((0, 0, 0)), found, "token_recall@3", *ALL) == [0, 0, 0, 0]
        assert set(chunk_labels(spans, chunks((0, 0, 0)), found).ravel()) <= {HOLE}
    assert passages(one((0, 0, 3)), chunks(), listed([]))[1].items.shape == (1, 0)
    assert evaluate_spans(Spans.from_records([], [], []), chunks(), Rankings(*2 * [np.zeros((0, 3), np.int32)]), ALL)  # type: ignore[arg-type]


# ---- against plain Python

LENGTH, QUERIES, DOCUMENTS = 12, ["p", "q"], ["a", "b"]
ranges = st.tuples(st.integers(0, 1), st.integers(0, LENGTH), st.integers(0, LENGTH)).map(
    lambda r: (r[0], min(r[1:]), max(r[1:]))
)
positions = st.lists(st.integers(0, LENGTH), max_size=6)
Case = tuple[Spans, list[Range], list[list[int]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Spans of two queries in two documents, chunks anywhere, some of them ranked."""
    pairs = st.tuples(st.sampled_from(QUERIES), ranges.filter(lambda r: r[1] < r[2]))
    labels = draw(st.dictionaries(pairs, st.integers(0, 3), max_size=6))
    records = [(query, DOCUMENTS[d], start, end, label) for (query, (d, start, end)), label in labels.items()]
    spans = Spans.from_records(records, QUERIES, DOCUMENTS, relevant_from=draw(st.integers(1, 2)))
    pieces = draw(st.lists(ranges, max_size=7))
    rows = [draw(st.permutations(range(len(pieces)))) for _ in QUERIES]
    return spans, pieces, [row[: draw(st.integers(0, len(row)))] for row in rows]


@st.composite
def token_ranges(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Tokens of each document: in order, with gaps, overlaps and empty ones."""
    found = []
    for _ in DOCUMENTS:
        starts = sorted(draw(positions))
        ends = sorted(draw(st.lists(st.integers(0, LENGTH), min_size=len(starts), max_size=len(starts))))
        found.append([(a, max(a, b)) for a, b in zip(starts, ends, strict=True)])
    return found


def tokens_of(found: list[list[tuple[int, int]]]) -> Tokens:
    flat = np.array([pair for pairs in found for pair in pairs], np.int32).reshape(-1, 2)
    return Tokens(np.cumsum([0, *map(len, found)]), flat[:, 0], flat[:, 1])


def held(ranges: list[Range], tokens: list[list[tuple[int, int]]] | None) -> set[tuple[int, int]]:
    """The positions of ranges, as a set."""
    if tokens is None:
        return {(d, at) for d, start, end in ranges for at in range(start, end)}
    return {
        (d, nth)
        for d, start, end in ranges
        for nth, (a, b) in enumerate(tokens[d])
        if max(a, start) < min(b, end)  # a character of both
    }


def spans_of(spans: Spans, query: int) -> dict[Range, int]:
    columns = (column.tolist() for column in (spans.query, spans.document, spans.start, spans.end, spans.label))
    return {(d, start, end): label for q, d, start, end, label in zip(*columns, strict=True) if q == query}


def expected(spans: Spans, query: int, retrieved: list[Range], tokens: Any = None) -> list[float]:
    """Recall, precision and IoU by sets."""
    relevant = [span for span, label in spans_of(spans, query).items() if label >= spans.relevant_from]
    e, r = held(relevant, tokens), held(retrieved, tokens)
    return [len(e & r) / len(whole) if whole else 0 for whole in (e, r, e | r)]


@given(cases(), st.none() | token_ranges(), st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_text_is_as_sets_of_positions(case: Case, tokens: Any, cutoffs: tuple[int, int]) -> None:
    spans, pieces, rows = case
    names = [name if k is None else f"{name}@{k}" for k in (*cutoffs, None) for name in ALL]
    scores = evaluate_spans(
        spans, chunks(*pieces), listed(*rows), names, tokens=None if tokens is None else tokens_of(tokens)
    )
    for query, row in enumerate(rows):
        wanted = [v for k in (*cutoffs, None) for v in expected(spans, query, [pieces[c] for c in row[:k]], tokens)]
        assert [scores.values[Measure.parse(name)][query] for name in names] == wanted
        relevant = [span for span, label in spans_of(spans, query).items() if label >= spans.relevant_from]
        assert scores.scored[query] == bool(held(relevant, tokens))
        assert scores.judged[query] == bool(spans_of(spans, query))
        assert scores.retrieved[query] == bool(row)


def is_covered(span: Range, piece: Range, share: Fraction) -> bool:
    both = held([span], None)
    return Fraction(len(both & held([piece], None)), len(both)) >= share


shares = st.integers(1, 6).flatmap(lambda n: st.integers(1, n).map(lambda part: Fraction(part, n)))


@given(cases(), shares)
def test_labels_are_those_of_the_covered_spans(case: Case, share: Fraction) -> None:
    spans, pieces, rows = case
    labels = chunk_labels(spans, chunks(*pieces), listed(*rows), share=float(share))
    for query, row in enumerate(rows):
        judged = spans_of(spans, query)
        wanted = [
            max((label for span, label in judged.items() if is_covered(span, pieces[c], share)), default=HOLE)
            for c in row
        ]
        assert labels[query].tolist() == wanted + [HOLE] * (labels.shape[1] - len(row))


def passage_id(passage: Range) -> str:
    return f"{DOCUMENTS[passage[0]]} {passage[1]:010}-{passage[2]:010}"


@given(cases(), shares)
def test_passages_are_spans_at_the_place_of_the_first_chunk(case: Case, share: Fraction) -> None:
    spans, pieces, rows = case
    given_ranks = listed(*rows)
    judgments, found = passages(spans, chunks(*pieces), given_ranks, share=float(share))
    assert list(judgments.documents) == sorted(judgments.documents)
    for query, row in enumerate(rows):
        judged, wanted = spans_of(spans, query), dict[str, float]()
        for place, code in enumerate(row):
            covered = sorted(span for span in judged if is_covered(span, pieces[code], share))
            for passage in covered or [pieces[code]]:
                wanted.setdefault(passage_id(passage), given_ranks.scores[query, place].item())
        end = len(wanted)
        assert [judgments.documents[code] for code in found.items[query, :end]] == list(wanted)
        assert found.scores[query, :end].tolist() == list(wanted.values())
        assert set(found.items[query, end:].tolist()) <= {-1}
        assert set(found.scores[query, end:].tolist()) <= {-np.inf}
        assert judgments.by_id[query] == {passage_id(span): label for span, label in judged.items()}
    assert found.items.shape[1] == max(found.counts)
    assert judgments.relevant_from == spans.relevant_from
    for values in evaluate(judgments, found, ["ndcg", "ndcg@2", "recall", "map", "fidelity"]).values.values():
        assert np.all(values <= 1 + 1e-12)


# ---- overlap


@given(cases(), st.data())
def test_overlap_alone_changes_nothing(case: Case, data: st.DataObject) -> None:
    """After the first k chunks, chunks whose text these hold already: as after k, whatever is counted."""
    spans, pieces, rows = case
    k = data.draw(st.integers(0, len(pieces)))
    more, longer = list(pieces), []
    for row in rows:
        extra = []
        for code in row[:k]:
            d, start, end = pieces[code]
            a, b = sorted(data.draw(st.tuples(st.integers(start, end), st.integers(start, end))))
            extra.append(len(more))
            more.append((d, a, b))
        longer.append(row[:k] + extra)
    before = evaluate_spans(spans, chunks(*pieces), listed(*(row[:k] for row in rows)), ALL)
    after = evaluate_spans(spans, chunks(*more), listed(*longer), ALL)
    for measure, values in before.values.items():
        assert after.values[measure].tolist() == values.tolist()


@given(cases())
def test_the_same_text_in_other_chunks_has_the_same_values(case: Case) -> None:
    """Each chunk in two pieces that overlap, or whole: the retrieved text is the same set."""
    spans, pieces, rows = case
    parts = [(d, a, a + -(-2 * (b - a) // 3)) for d, a, b in pieces] + [(d, a + (b - a) // 3, b) for d, a, b in pieces]
    assert all(held([parts[i], parts[i + len(pieces)]], None) == held([pieces[i]], None) for i in range(len(pieces)))
    twice = [[part for code in row for part in (code, code + len(pieces))] for row in rows]
    for k in (1, 2, 3):
        whole = evaluate_spans(spans, chunks(*pieces), listed(*rows), [f"{name}@{k}" for name in ALL]).values
        halves = evaluate_spans(spans, chunks(*parts), listed(*twice), [f"{name}@{2 * k}" for name in ALL]).values
        assert [v.tolist() for v in whole.values()] == [v.tolist() for v in halves.values()]


@given(cases(), st.integers(1, 3), shares)
def test_a_chunk_that_covers_what_was_found_changes_no_passage(case: Case, times: int, share: Fraction) -> None:
    """Each chunk comes again under other codes, with one character more or less where that covers the same spans."""
    spans, pieces, rows = case
    more, longer = list(pieces), []
    for query, row in enumerate(rows):
        added, judged = [], spans_of(spans, query)
        for code in row:
            added.append(code)
            d, start, end = pieces[code]
            for other in [(d, start, end + times), (d, max(0, start - times), end), (d, start, end)]:
                now, then = ({s for s in judged if is_covered(s, p, share)} for p in (other, pieces[code]))
                if now == then and (now or other == pieces[code]):
                    added.append(len(more))
                    more.append(other)
        longer.append(added)
    measures = ["ndcg@2", "ndcg", "recall@1", "recall", "mrr", "map", "holes"]
    one_time = evaluate(*passages(spans, chunks(*pieces), listed(*rows), share=float(share)), measures)
    many_times = evaluate(*passages(spans, chunks(*more), listed(*longer), share=float(share)), measures)
    for measure, values in one_time.values.items():
        assert many_times.values[measure].tolist() == values.tolist()


# ---- real collections

COLLECTIONS = ["chunking-evaluation", "xquad-en-long", "xquad-zh-long"]
Real = tuple[list[str], list[str], Spans]


@pytest.fixture(scope="module", params=COLLECTIONS)
def real(request: pytest.FixtureRequest, shared_data: Path) -> Real:
    """Texts, queries and spans, which refer to the text alone."""

    def read(file: str) -> list[dict[str, Any]]:
        with (shared_data / request.param / file).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    documents = {row["_id"]: row["text"] for row in read("corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in read("queries.jsonl")}
    records = [(row["query_id"], row["doc_id"], row["start"], row["end"], 1) for row in read("spans.jsonl")]
    ids = sorted(documents)
    return (
        [documents[one_id] for one_id in ids],
        list(queries.values()),
        Spans.from_records(records, list(queries), ids),
    )


def windows(texts: list[str], size: int) -> list[Range]:
    return [
        (d, a, min(a + size, len(content))) for d, content in enumerate(texts) for a in range(0, len(content), size)
    ]


def keyword_search(texts: list[str], queries: list[str], pieces: Chunks, k: int) -> Rankings:
    columns = (column.tolist() for column in (pieces.document, pieces.start, pieces.end))
    index = KeywordIndex.build([texts[d][a:b] for d, a, b in zip(*columns, strict=True)], "plain")
    return index.search(queries, k, index.weights(1.5, 0.75))


def test_all_chunks_hold_all_spans(real: Real) -> None:
    texts, queries, spans = real
    pieces = chunks(*windows(texts, 1200))
    every = np.tile(np.arange(len(pieces.start), dtype=np.int32), (len(queries), 1))[:200]
    some = Spans.from_records(records_of(spans, 200), spans.queries[:200], spans.documents)
    scores = evaluate_spans(some, pieces, rank_as_given(every), ["token_recall"])
    assert scores.scored.all()
    assert scores.values[Measure("token_recall")].tolist() == [1] * len(every)
    judgments, found = passages(some, pieces, rank_as_given(every))
    assert evaluate(judgments, found, ["ndcg"]).values[Measure("ndcg")].max() <= 1


def records_of(spans: Spans, queries: int) -> list[tuple[str, str, int, int, int]]:
    return [
        (spans.queries[query], spans.documents[d], start, end, label)
        for query in range(queries)
        for (d, start, end), label in spans_of(spans, query).items()
    ]


def test_real_rankings_are_as_sets_of_positions(real: Real) -> None:
    texts, queries, spans = real
    found_tokens = tokenize(find_model(DEFAULT_ENCODER).tokenizer, texts)
    edges = found_tokens.indptr.tolist()
    starts = [found_tokens.start[a:b].tolist() for a, b in pairwise(edges)]
    per_document = [list(zip(s, [*s[1:], len(t)], strict=True)) for s, t in zip(starts, texts, strict=True)]
    cut_up = cut(found_tokens, texts, chunker="tokens", size=64, overlap=0.5)
    pieces = Chunks(cut_up.doc, cut_up.start, cut_up.end)
    flat = list(zip(pieces.document.tolist(), pieces.start.tolist(), pieces.end.tolist(), strict=True))
    found = keyword_search(texts, queries, pieces, 10)
    names = [f"{name}@5" for name in ALL]
    characters = evaluate_spans(spans, pieces, found, names).values
    in_tokens = evaluate_spans(spans, pieces, found, names, tokens=tokens_of(per_document)).values
    for query in range(0, len(queries), 40):
        ranked = [flat[code] for code in found.items[query, :5].tolist() if code >= 0]
        assert [values[query] for values in characters.values()] == expected(spans, query, ranked)
        near = {d: per_document[d] for d in {d for d, _, _ in [*ranked, *spans_of(spans, query)]}}
        assert [values[query] for values in in_tokens.values()] == expected(spans, query, ranked, near)
    judgments, ranked_passages = passages(spans, pieces, found)
    assert np.all(evaluate(judgments, ranked_passages, ["ndcg@5"]).values[Measure("ndcg", 5)] <= 1)


def test_half_overlap_on_the_same_text_changes_nothing(real: Real) -> None:
    texts, queries, spans = real
    whole = windows(texts, 1200)
    found = keyword_search(texts, queries, chunks(*whole), 5)
    # three windows of half the size for each, each half over the one before it
    halves = [
        (d, a + i * (b - a) // 4, b if i == 2 else a + i * (b - a) // 4 + (b - a + 1) // 2)
        for d, a, b in whole
        for i in range(3)
    ]
    of_each = np.where(found.items[:, :, None] >= 0, found.items[:, :, None] * 3 + np.arange(3), -1)
    in_halves = rank_as_given(of_each.reshape(len(queries), -1).astype(np.int32))
    for k in (1, 5):
        before = evaluate_spans(spans, chunks(*whole), found, [f"{name}@{k}" for name in ALL]).values
        after = evaluate_spans(spans, chunks(*halves), in_halves, [f"{name}@{3 * k}" for name in ALL]).values
        assert [v.tolist() for v in after.values()] == [v.tolist() for v in before.values()]
        assert next(iter(before.values())).mean() > 0.05


def test_an_empty_chunk_within_a_token_holds_nothing() -> None:
    spans = Spans.from_records([("q", "a", 0, 1, 1)], ["q"], ["a"])
    empty = Chunks(*(np.array([value], np.int32) for value in (0, 1, 1)))
    tokens = Tokens(np.array([0, 1]), np.array([0], np.int32), np.array([2], np.int32))
    ranked = Rankings(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))
    found = evaluate_spans(spans, empty, ranked, ["token_recall@1", "token_precision@1"], tokens=tokens)
    assert [values.tolist() for values in found.values.values()] == [[0], [0]]
