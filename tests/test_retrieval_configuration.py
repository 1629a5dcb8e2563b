"""A configuration is a value: canonical, checked, printed, named."""

import math
from dataclasses import FrozenInstanceError, asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import SettingsError
from sweep.retrieval.configuration import ALGORITHMS, FIRST_STAGES, PARAMETERS, Configuration, Value

Settings = dict[str, Value]
EVERY = {"chunk_size", "chunk_overlap", "top_k", "algorithm"}
VECTOR, KEYWORD = {"encoder", "index"}, {"analyzer", "k1", "b"}
HYBRID = VECTOR | KEYWORD | {"rrf_k", "fusion_depth"}
SEMANTIC = {"first_stage", "pool", "reranker", "reranker_model"}
MATTERS: list[tuple[Settings, set[str]]] = [
    ({"algorithm": "keyword"}, EVERY | KEYWORD),
    ({"algorithm": "vector"}, EVERY | VECTOR),
    ({"algorithm": "vector", "index": "HNSW16"}, EVERY | VECTOR | {"ef_search"}),
    ({"algorithm": "hybrid"}, EVERY | HYBRID),
    ({"algorithm": "hybrid", "index": "HNSW16"}, EVERY | HYBRID | {"ef_search"}),
    ({"algorithm": "semantic", "first_stage": "keyword"}, EVERY | KEYWORD | SEMANTIC),
    ({"algorithm": "semantic", "first_stage": "vector"}, EVERY | VECTOR | SEMANTIC),
    ({"algorithm": "semantic"}, EVERY | HYBRID | SEMANTIC),
]
OTHER: Settings = {
    "encoder": "m", "ef_search": 9, "analyzer": "plain", "k1": 0.9, "b": 0.1, "rrf_k": 9, "fusion_depth": 99,
    "pool": 98, "reranker": "cross-encoder", "reranker_model": "n",
}  # fmt: skip

valid_settings: st.SearchStrategy[Settings] = st.fixed_dictionaries(
    {},
    optional={
        "algorithm": st.sampled_from(ALGORITHMS),
        "chunk_size": st.integers(1, 512),
        "chunk_overlap": st.floats(0, 0.5),
        "top_k": st.integers(1, 20),
        "encoder": st.sampled_from(["m", "n"]),
        "index": st.sampled_from(["Flat", "HNSW8", "HNSW32"]),
        "ef_search": st.integers(1, 99),
        "k1": st.integers(0, 3) | st.floats(0, 3),
        "b": st.floats(0, 1),
        "first_stage": st.sampled_from(FIRST_STAGES),
        "pool": st.integers(20, 100),
        "fusion_depth": st.integers(100, 200),
    },
)


@pytest.mark.parametrize(("settings", "matters"), MATTERS, ids=[" ".join(map(str, s.values())) for s, _ in MATTERS])
def test_what_cannot_matter_is_dropped(settings: Settings, matters: set[str]) -> None:
    assert set(Configuration.of(settings).settings) == matters
    assert set(Configuration.of(OTHER | settings).settings) == matters
    idle = {n: v for n, v in OTHER.items() if n not in matters}
    assert Configuration.of(settings | idle) == Configuration.of(settings)
    for name in OTHER.keys() & matters:
        changed = Configuration.of(settings | {"reranker_model": "k"} | {name: OTHER[name]})
        assert changed != Configuration.of(settings | {"reranker_model": "k"})


@given(valid_settings)
def test_settings_read_back_as_the_same_value(settings: Settings) -> None:
    point = Configuration.of(settings)
    again = Configuration.of(point.settings)
    assert again == point
    assert hash(again) == hash(point)
    assert (again.id, str(again)) == (point.id, str(point))
    assert again.settings == {n: v for n, v in asdict(point).items() if v is not None}
    assert list(point.settings) == [n for n in PARAMETERS if n in point.settings]


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


def test_ids_do_not_change_from_version_to_version() -> None:
    # the first 8 digits of sha256sum of the settings as JSON with sorted keys: stored studies and exports hold them
    settings: Settings = {"algorithm": "keyword", "chunk_size": 64, "chunk_overlap": 0.25, "top_k": 5, "k1": 1.2}
    assert Configuration.of(settings).id == "5ff35d85"
    assert Configuration.of({}).id == "959bc2e7"
    assert str(Configuration.of({})) == (
        "algorithm=vector chunk_size=254 chunk_overlap=0.0 top_k=10 encoder=all-MiniLM-L6-v2 index=Flat"
    )


def test_a_point_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Configuration.of({}).top_k = 3  # type: ignore[misc]


WHOLE = [n for n, p in PARAMETERS.items() if p.cast is int]
REAL = [n for n, p in PARAMETERS.items() if p.cast is float]
TEXT = [n for n, p in PARAMETERS.items() if p.cast is str]
NOT_NUMBERS: list[Value] = [math.nan, math.inf, -math.inf, True, False, "5", "", -1, 10**400, -(10**400)]
REFUSED: list[tuple[str, Value]] = [
    *((name, value) for name in WHOLE for value in [*NOT_NUMBERS, 0, 1.5, 1e-9, 1e300]),
    *((name, value) for name in REAL for value in [*NOT_NUMBERS, -1e-9]),
    *((name, value) for name in TEXT for value in (True, 1, 0.5, "")),
    *(("index", v) for v in ("flat", "HNSW", "HNSW0", "HNSW032", "HNSW32,Flat", "IVF8,Flat", " Flat", "Flat\n")),
    ("index", "HNSW1"),  # FAISS takes the logarithm of it as a divisor, and ends the process
    ("index", "HNSW99999999999"),
    ("index", "HNSW3\N{ARABIC-INDIC DIGIT TWO}"),
    *((name, "bm25") for name in ("algorithm", "first_stage", "reranker", "analyzer")),
    ("first_stage", "semantic"),
    ("chunk_overlap", 0.51),
    ("b", 1.01),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda v: str(v)[:12])
def test_a_value_that_is_not_allowed_is_named(name: str, value: Value) -> None:
    with pytest.raises(SettingsError) as refused:
        Configuration.of({name: value})
    assert str(refused.value).startswith(f"{name}: ")
    assert PARAMETERS[name].allowed in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_value_is_checked_even_where_it_cannot_matter() -> None:
    with pytest.raises(SettingsError, match="k1"):
        Configuration.of({"algorithm": "vector", "k1": -1})


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="unknown parameter 'chunksize'; did you mean 'chunk_size'"):
        Configuration.of({"chunksize": 64})


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


def test_a_cross_encoder_needs_its_model() -> None:
    cross: Settings = {"algorithm": "semantic", "reranker": "cross-encoder"}
    with pytest.raises(SettingsError, match="needs reranker_model"):
        Configuration.of(cross)
    assert Configuration.of(cross | {"reranker_model": "m"}).reranker_model == "m"
    assert Configuration.of(cross | {"algorithm": "vector"}).reranker is None


@pytest.mark.parametrize("first_stage", FIRST_STAGES)
def test_searches_are_those_of_the_first_stage(first_stage: str) -> None:
    plain = ("keyword", "vector") if first_stage == "hybrid" else (first_stage,)
    assert Configuration.of({"algorithm": first_stage}).searches == plain
    assert Configuration.of({"algorithm": "semantic", "first_stage": first_stage}).searches == plain
