"""A configuration is a value: canonical, checked, printed, named."""

import math
from dataclasses import FrozenInstanceError, asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import SettingsError
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import ALGORITHMS, FIRST_STAGES, PARAMETERS, Value, known_parameter

Settings = dict[str, Value]
EVERY = {"algorithm", "top_k"}
CHUNKS = EVERY | {"chunker", "chunk_size", "chunk_overlap", "chunk_context", "max_per_document"}
VECTOR = {"encoder", "similarity", "quantization", "index", "mmr_lambda"}
KEYWORD = {"analyzer", "bm25_variant", "k1", "b"}
HYBRID = VECTOR | KEYWORD | {"fusion", "rrf_k", "vector_weight", "fusion_depth"}
SEMANTIC = {"first_stage", "pool", "reranker", "reranker_model"}
GRAPH = {"ef_construction", "ef_search"}
MATTERS: list[tuple[Settings, set[str]]] = [
    ({"algorithm": "keyword"}, CHUNKS | KEYWORD),
    ({"algorithm": "keyword", "bm25_variant": "bm25+"}, CHUNKS | KEYWORD | {"delta"}),
    ({"algorithm": "keyword", "chunker": "document"}, EVERY | {"chunker", "chunk_context"} | KEYWORD),
    ({"algorithm": "vector"}, CHUNKS | VECTOR),
    ({"algorithm": "vector", "index": "HNSW16"}, CHUNKS | VECTOR | GRAPH),
    ({"algorithm": "vector", "index": "IVF8,PQ4"}, CHUNKS | VECTOR | {"nprobe"}),
    ({"algorithm": "vector", "index": "PQ4,RFlat"}, CHUNKS | VECTOR | {"refine_factor"}),
    ({"algorithm": "vector", "mmr_lambda": 0.5}, CHUNKS | VECTOR | {"mmr_pool"}),
    ({"algorithm": "hybrid"}, CHUNKS | HYBRID),
    ({"algorithm": "hybrid", "index": "HNSW16"}, CHUNKS | HYBRID | GRAPH),
    ({"algorithm": "hybrid", "fusion": "convex"}, CHUNKS | HYBRID - {"rrf_k"} | {"normalization"}),
    ({"algorithm": "semantic", "first_stage": "keyword"}, CHUNKS | KEYWORD | SEMANTIC),
    ({"algorithm": "semantic", "first_stage": "vector"}, CHUNKS | VECTOR | SEMANTIC),
    ({"algorithm": "semantic"}, CHUNKS | HYBRID | SEMANTIC),
    ({"algorithm": "retriever", "retriever": "mine"}, EVERY | {"retriever"}),
    ({"algorithm": "retriever", "retriever": "mine", "mine.alpha": 0.5}, EVERY | {"retriever", "mine.alpha"}),
]
OTHER: Settings = {
    "chunk_context": "title", "encoder": "m", "dimensions": 64, "similarity": "l2", "quantization": "int8",
    "ef_construction": 90, "ef_search": 990, "nprobe": 3, "refine_factor": 9, "analyzer": "bigrams", "k1": 0.9,
    "b": 0.1, "delta": 0.1, "rrf_k": 9, "normalization": "z-score", "vector_weight": 0.2, "fusion_depth": 99,
    "pool": 98, "reranker": "cross-encoder", "reranker_model": "n", "mmr_pool": 77, "max_per_document": 2,
    "other.alpha": 1,
}  # fmt: skip

valid_settings: st.SearchStrategy[Settings] = st.fixed_dictionaries(
    {"retriever": st.sampled_from(["mine", "yours"])},
    optional={
        "algorithm": st.sampled_from(ALGORITHMS),
        "chunker": st.sampled_from(["tokens", "sentences", "document"]),
        "chunk_size": st.integers(1, 512),
        "chunk_overlap": st.floats(0, 0.5),
        "chunk_context": st.sampled_from(["none", "title"]),
        "top_k": st.integers(1, 20),
        "encoder": st.sampled_from(["m", "n"]),
        "dimensions": st.integers(1, 99),
        "index": st.sampled_from(["Flat", "HNSW8", "HNSW32", "IVF8,Flat", "PQ4,RFlat", "IVF20,PQ4,RFlat"]),
        "ef_search": st.integers(1, 99),
        "nprobe": st.integers(1, 30),
        "k1": st.integers(0, 3) | st.floats(0, 3),
        "b": st.floats(0, 1),
        "bm25_variant": st.sampled_from(["lucene", "bm25l"]),
        "fusion": st.sampled_from(["rrf", "convex"]),
        "first_stage": st.sampled_from(FIRST_STAGES),
        "pool": st.integers(20, 100),
        "fusion_depth": st.integers(100, 200),
        "mmr_lambda": st.sampled_from([0.3, 1, 1.0]),
        "mmr_pool": st.integers(20, 60),
        "max_per_document": st.integers(0, 25),
        "mine.alpha": st.booleans() | st.text(max_size=3) | st.floats(0, 1),
        "yours.beta": st.integers(0, 3),
    },
)


@pytest.mark.parametrize(("settings", "matters"), MATTERS, ids=[" ".join(map(str, s.values())) for s, _ in MATTERS])
def test_what_cannot_matter_is_dropped(settings: Settings, matters: set[str]) -> None:
    assert set(Configuration.of(settings).settings) == matters
    assert set(Configuration.of(OTHER | settings).settings) == matters | (
        {"dimensions"} if matters >= VECTOR else set()
    )
    idle = {n: v for n, v in OTHER.items() if n not in matters | {"dimensions"}}
    assert Configuration.of(settings | idle) == Configuration.of(settings)
    for name in OTHER.keys() & matters - settings.keys():
        changed = Configuration.of(settings | {"reranker_model": "k"} | {name: OTHER[name]})
        assert changed != Configuration.of(settings | {"reranker_model": "k"})


@given(valid_settings)
def test_settings_read_back_as_the_same_value(settings: Settings) -> None:
    point = Configuration.of(settings)
    again = Configuration.of(point.settings)
    assert again == point
    assert hash(again) == hash(point)
    assert (again.id, str(again)) == (point.id, str(point))
    fields = {n: v for n, v in asdict(point).items() if v is not None and n != "options"}
    assert again.settings == fields | dict(point.options)
    assert list(point.settings) == [*(n for n in PARAMETERS if n in fields), *(n for n, _ in point.options)]


@given(valid_settings, valid_settings)
def test_points_are_equal_exactly_where_their_settings_are(one: Settings, two: Settings) -> None:
    a, b = Configuration.of(one), Configuration.of(two)
    assert (a == b) == (a.settings == b.settings) == (str(a) == str(b))
    assert (a.id == b.id) or a != b  # 32 bits: two of a few points do not share one


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({}, dict.fromkeys(PARAMETERS)),
        ({"chunk_size": 64}, {"chunk_size": 64.0}),
        ({"algorithm": "keyword", "k1": 1}, {"k1": 1.0, "algorithm": "keyword"}),
        ({"chunk_overlap": 0}, {"chunk_overlap": 0.0}),
        ({"chunk_overlap": -0.0}, {"chunk_overlap": 0.0}),
    ],
    ids=["None is the default", "64.0", "order and 1.0", "0", "minus zero"],
)
def test_equal_points_are_written_alike(one: Settings, two: Settings) -> None:
    a, b = Configuration.of(one), Configuration.of(two)
    assert (a, a.id, str(a)) == (b, b.id, str(b))
    assert [type(v) for v in a.settings.values()] == [type(v) for v in b.settings.values()]


SAME: list[tuple[Settings, Settings]] = [
    ({"chunk_size": 3, "chunk_overlap": 0.25}, {"chunk_size": 3, "chunk_overlap": 0.0}),  # .75 of a token
    ({"index": "HNSW8", "top_k": 50, "ef_search": 16}, {"index": "HNSW8", "top_k": 50, "ef_search": 50}),
    (
        {"index": "HNSW8", "algorithm": "hybrid", "ef_search": 9},
        {"index": "HNSW8", "algorithm": "hybrid", "ef_search": 99},
    ),
    ({"index": "IVF16,Flat", "nprobe": 16}, {"index": "IVF16,Flat", "nprobe": 99}),
    ({"top_k": 5, "max_per_document": 5}, {"top_k": 5}),
    ({"mmr_lambda": 1, "mmr_pool": 20}, {}),
    ({"index": "PQ48x8"}, {"index": "PQ48"}),
    (
        {"index": "HNSW8", "top_k": 20, "max_per_document": 20, "ef_search": 30},
        {"index": "HNSW8", "top_k": 20, "ef_search": 30},
    ),
]


@pytest.mark.parametrize(("one", "two"), SAME, ids=lambda s: " ".join(map(str, s.values())))
def test_values_that_mean_the_same_make_one_point(one: Settings, two: Settings) -> None:
    assert Configuration.of(one) == Configuration.of(two)


def test_what_is_asked_of_a_search() -> None:
    depth = {
        10: {},
        60: {"mmr_lambda": 0.5, "mmr_pool": 60},
        50: {"max_per_document": 2},  # five looked at for each wanted
        100: {"algorithm": "hybrid"},
        33: {"algorithm": "semantic", "first_stage": "vector", "pool": 33},
    }
    for wanted, settings in depth.items():
        assert Configuration.of({"top_k": 10, **settings}).depth == wanted  # type: ignore[dict-item]


def test_ids_do_not_change_from_version_to_version() -> None:
    # the first 8 digits of sha256sum of the settings as JSON with sorted keys: stored studies and exports hold them
    settings: Settings = {"algorithm": "keyword", "chunk_size": 64, "chunk_overlap": 0.25, "top_k": 5, "k1": 1.2}
    assert Configuration.of(settings).id == "458c9cb8"
    assert Configuration.of({}).id == "a70bfdf1"
    assert str(Configuration.of({})) == (
        "algorithm=vector chunker=tokens chunk_size=254 chunk_overlap=0.0 chunk_context=none top_k=10 "
        "encoder=all-MiniLM-L6-v2 similarity=cosine quantization=none index=Flat mmr_lambda=1.0 max_per_document=0"
    )


def test_a_point_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Configuration.of({}).top_k = 3  # type: ignore[misc]


WHOLE = [n for n, p in PARAMETERS.items() if p.cast is int]
REAL = [n for n, p in PARAMETERS.items() if p.cast is float]
TEXT = [n for n, p in PARAMETERS.items() if p.cast is str]
NOT_NUMBERS: list[Value] = [math.nan, math.inf, -math.inf, True, False, "5", "", -1, 10**400, -(10**400)]
REFUSED: list[tuple[str, Value]] = [
    *((name, value) for name in WHOLE for value in [*NOT_NUMBERS, 1.5, 1e-9, 1e300]),
    *((name, 0) for name in WHOLE if name != "max_per_document"),
    *((name, value) for name in REAL for value in [*NOT_NUMBERS, -1e-9]),
    *((name, value) for name in TEXT for value in (True, 1, 0.5, "")),
    *(("index", v) for v in ("flat", "HNSW", "HNSW0", "HNSW032", "HNSW32,Flat", "IVF8", " Flat", "Flat\n")),
    ("index", "HNSW1"),  # FAISS takes the logarithm of it as a divisor, and ends the process
    ("index", "HNSW99999999999"),
    ("index", "HNSW3\N{ARABIC-INDIC DIGIT TWO}"),
    *((name, "bm25") for name in ("algorithm", "chunker", "chunk_context", "similarity", "quantization", "analyzer")),
    *((name, "bm25") for name in ("bm25_variant", "fusion", "normalization", "first_stage", "reranker")),
    *(("mine.alpha", v) for v in (math.nan, math.inf, -math.inf)),
    ("first_stage", "semantic"),
    ("chunk_overlap", 0.51),
    ("b", 1.01),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda v: str(v)[:12])
def test_a_value_that_is_not_allowed_is_named(name: str, value: Value) -> None:
    with pytest.raises(SettingsError) as refused:
        Configuration.of({name: value})
    assert str(refused.value).startswith(f"{name}: ")
    assert known_parameter(name).allowed in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_value_is_checked_even_where_it_cannot_matter() -> None:
    with pytest.raises(SettingsError, match="k1"):
        Configuration.of({"algorithm": "vector", "k1": -1})


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="unknown parameter 'chunksize'; did you mean 'chunk_size'"):
        Configuration.of({"chunksize": 64})
    for name in (".x", "x.", "."):
        with pytest.raises(SettingsError, match="unknown parameter"):
            Configuration.of({name: 64})


def test_a_retriever_has_its_own_options() -> None:
    mine: Settings = {"algorithm": "retriever", "retriever": "mine", "top_k": 3}
    point = Configuration.of(mine | {"mine.b": "x", "mine.a": True, "yours.a": 1, "chunk_size": 64, "mine.c": None})
    assert point.settings == mine | {"mine.a": True, "mine.b": "x"}
    assert point.searches == ()
    assert Configuration.of({"algorithm": "vector", "mine.a": 1}) == Configuration.of({"algorithm": "vector"})
    with pytest.raises(SettingsError, match="needs retriever"):
        Configuration.of({"algorithm": "retriever"})


def test_a_pool_for_diversity_holds_what_is_chosen() -> None:
    with pytest.raises(SettingsError, match="mmr_pool 4 is smaller than top_k 5"):
        Configuration.of({"mmr_lambda": 0.5, "mmr_pool": 4, "top_k": 5})


def test_a_pool_smaller_than_top_k_is_refused() -> None:  # CASES S26
    semantic: Settings = {"algorithm": "semantic", "first_stage": "vector", "top_k": 3}
    with pytest.raises(SettingsError, match="pool 2 is smaller than top_k 3"):
        Configuration.of(semantic | {"pool": 2})
    assert Configuration.of(semantic | {"pool": 3}).pool == 3
    assert Configuration.of({"algorithm": "vector", "top_k": 3, "pool": 2}).pool is None


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "hybrid", "top_k": 11, "fusion_depth": 10},
        {"algorithm": "semantic", "pool": 11, "fusion_depth": 10},
    ],
)
def test_fusion_gives_no_more_than_it_takes(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="fusion_depth 10 is smaller than the 11"):
        Configuration.of(settings)
    assert Configuration.of(settings | {"fusion_depth": 11}).fusion_depth == 11


@pytest.mark.parametrize("reranker", ["cross-encoder", "encoder"])
def test_a_reranker_needs_its_model(reranker: str) -> None:
    cross: Settings = {"algorithm": "semantic", "reranker": reranker}
    with pytest.raises(SettingsError, match="needs reranker_model"):
        Configuration.of(cross)
    assert Configuration.of(cross | {"reranker_model": "m"}).reranker_model == "m"
    assert Configuration.of(cross | {"algorithm": "vector"}).reranker is None


@pytest.mark.parametrize("first_stage", FIRST_STAGES)
def test_searches_are_those_of_the_first_stage(first_stage: str) -> None:
    plain = ("keyword", "vector") if first_stage == "hybrid" else (first_stage,)
    assert Configuration.of({"algorithm": first_stage}).searches == plain
    assert Configuration.of({"algorithm": "semantic", "first_stage": first_stage}).searches == plain
