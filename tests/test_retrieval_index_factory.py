"""Factory strings: what is allowed builds in FAISS, what is not is refused, what is too large for the data shrinks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import SettingsError
from sweep.retrieval import index_factory
from sweep.retrieval.index_factory import Factory, canonical, check

ALLOWED = [
    "Flat", "SQ8", "SQ6", "SQ4", "SQfp16", "HNSW32", "HNSW2", "HNSW32_SQ8", "IVF256,Flat", "IVF4,SQ8", "IVF256,PQ48",
    "PQ48", "PQ48x4", "PQ16,RFlat", "IVF256,PQ48x4,Refine(SQ8)", "HNSW32_SQ8,RFlat", "SQ4,Refine(SQ8)",
]  # fmt: skip
REFUSED = [
    "flat", "HNSW", "HNSW0", "HNSW1", "HNSW032", "HNSW1000", "HNSW32,Flat", " Flat", "Flat\n", "Flat,RFlat",
    "IVF0,Flat", "IVF1,Flat", "IVF8", "IVF8,", "IVF8,HNSW32", "PQ0", "PQ8x3", "PQ8x9", "PQ8,Refine", "SQ5", "OPQ16,PQ8",
    "", "IVF8,Flat,Flat", "HNSW3\N{ARABIC-INDIC DIGIT TWO}", "SQ8,Refine()", "SQ8,RSQfp16",
    "IVF8,Flat,RFlat", "HNSW32,RFlat", "SQ8,Refine(SQ8)", "SQfp16,Refine(SQ8)", "HNSW8_SQ8,Refine(SQ6)",  # no finer
]  # fmt: skip


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_allowed_is_read_and_written_back(text: str) -> None:
    assert index_factory.allowed(text)
    assert str(Factory.parse(text)) == canonical(text) == text


@pytest.mark.parametrize(
    ("text", "written"), [("PQ48x8", "PQ48"), ("SQ8,Refine(Flat)", "SQ8,RFlat"), ("IVF9,PQ4x8,RFlat", "IVF9,PQ4,RFlat")]
)
def test_what_faiss_writes_in_two_ways_is_written_in_one(text: str, written: str) -> None:
    assert canonical(text) == written
    assert Factory.parse(text) == Factory.parse(written)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_allowed_is_refused(text: str) -> None:
    assert not index_factory.allowed(text)


codes = st.sampled_from(["SQ8", "SQ6", "SQ4", "SQfp16"]) | st.builds(
    "PQ{}{}".format, st.integers(1, 40), st.sampled_from(["", "x4", "x5", "x8"])
)
held = st.builds(str.__add__, codes, st.sampled_from(["", ",RFlat", ",Refine(SQ8)", ",Refine(SQfp16)"]))
inverted = st.builds("IVF{},{}".format, st.integers(2, 9), held | st.just("Flat"))
graphs = st.builds("HNSW{}{}".format, st.integers(2, 40), st.sampled_from(["", "_SQ8", "_SQ4", "_SQfp16,RFlat"]))


@settings(max_examples=60, deadline=None)
@given(held | inverted | graphs, st.integers(1, 96))
def test_what_passes_the_check_builds_in_faiss_and_parts_that_do_not_divide_do_not(text: str, d: int) -> None:
    import faiss

    factory = Factory.parse(text)
    if factory is None:
        assert text.endswith(("Refine(SQ8)", "Refine(SQfp16)"))  # no finer than the code
    elif factory.parts and d % factory.parts:
        with pytest.raises(SettingsError, match="parts do not divide"):
            check(text, d)
        with pytest.raises(RuntimeError):
            faiss.index_factory(d, text, faiss.METRIC_INNER_PRODUCT)
    else:
        assert check(text, d) == factory
        made = [faiss.index_factory(d, t, faiss.METRIC_INNER_PRODUCT) for t in (text, str(factory))]
        assert type(made[0]) is type(made[1])
        assert [m.d for m in made] == [d, d]


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match=r"^index: 'IVF' is not allowed; allowed: Flat, SQ8, HNSW32, .*PQ48"):
        check("IVF", 24)
    with pytest.raises(SettingsError, match=r"^index IVF8,PQ7: 7 parts do not divide 24 dimensions; allowed: 1, 2, 3, 4, 6, 8, 12, 24$"):  # noqa: E501  # fmt: skip
        check("IVF8,PQ7", 24)


def test_what_matters_for_which() -> None:
    graph, lists, refined = "HNSW8_SQ8", "IVF7,PQ4", "IVF7,PQ4,RFlat"
    assert [index_factory.has_graph(t) for t in (graph, lists, "Flat")] == [True, False, False]
    assert [index_factory.lists(t) for t in (graph, lists, refined)] == [0, 7, 7]
    assert [index_factory.has_lists(t) for t in (graph, lists)] == [False, True]
    assert [index_factory.refined(t) for t in (graph, lists, refined)] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "n", "built"),
    [
        ("IVF256,Flat", 100_000, "IVF256,Flat"),
        ("IVF256,Flat", 2_100, "IVF53,Flat"),  # 2,100 / 39
        ("IVF256,Flat", 77, "Flat"),  # not enough for two lists
        ("IVF100,Flat", 10, "Flat"),  # CASES S22
        ("IVF256,SQ8", 50, "SQ8"),
        ("IVF256,SQ8,RFlat", 50, "SQ8,RFlat"),
        ("IVF256,Flat", 78, "IVF2,Flat"),
        ("IVF256,PQ48", 300, "IVF7,PQ48"),
        ("IVF256,PQ48", 255, "Flat"),
        ("PQ48,RFlat", 255, "Flat"),
        ("PQ48x4", 16, "PQ48x4"),
        ("PQ48x4", 15, "Flat"),
        ("HNSW32", 0, "HNSW32"),
        ("HNSW32_SQ8", 3, "HNSW32_SQ8"),
    ],
)
def test_too_few_vectors_make_a_smaller_index(text: str, n: int, built: str) -> None:
    factory = Factory.parse(text)
    assert factory is not None
    assert str(factory.for_vectors(n)) == built


@given(st.sampled_from(ALLOWED), st.integers(0, 20_000))
def test_what_shrank_is_allowed_and_shrinks_no_more(text: str, n: int) -> None:
    factory = Factory.parse(text)
    assert factory is not None
    made = factory.for_vectors(n)
    assert index_factory.allowed(str(made))
    assert made.for_vectors(n) == made


def test_only_flat_is_exact_and_graphs_and_refinements_do_not_scan() -> None:
    read = {t: Factory.parse(t) for t in ALLOWED}
    assert [t for t, f in read.items() if f and f.exact] == ["Flat"]
    assert [t for t, f in read.items() if f and not f.scans] == [t for t in ALLOWED if "HNSW" in t or "R" in t[1:]]
    assert np.all([bool(f) for f in read.values()])
