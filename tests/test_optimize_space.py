"""The space of a study: parsing, the grid, and the round trip through Optuna. Expected values are counted by hand."""

from collections import Counter
from itertools import product
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import FixedTrial

from sweep.errors import SettingsError, StudyFileError
from sweep.optimize.axis import Axis, Range
from sweep.optimize.space import DECIDERS, Space, SpaceError, difference, extends
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import ALGORITHMS, DEFAULT_ENCODER, FIRST_STAGES, PARAMETERS

DESIGN: dict[str, Any] = {  # DESIGN §7
    "encoder": "all-MiniLM-L6-v2",
    "chunk_size": [64, 128, 254],
    "chunk_overlap": [0.0, 0.25],
    "algorithm": ["keyword", "vector", "hybrid", "semantic"],
    "index": {"choices": ["Flat", "HNSW32"], "when": {"algorithm": ["vector", "hybrid"]}},
    "ef_search": {"choices": [16, 64], "when": {"index": "HNSW32"}},
    "top_k": [3, 5, 10, 20],
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def configurations(space: Space) -> tuple[Configuration, ...]:
    grid = space.grid()
    assert grid is not None
    return grid.configurations


def problems(mapping: dict[str, Any]) -> list[str]:
    with pytest.raises(SpaceError) as error:
        Space.parse(mapping)
    return str(error.value).splitlines()


def suggested(space: Space, wanted: tuple[Configuration, ...]) -> list[Configuration]:
    """Send each configuration through a real study: params → enqueue → suggest."""
    study = optuna.create_study()
    for configuration in wanted:
        study.enqueue_trial(space.params(configuration))
    return [Configuration.of(space.suggest(study.ask())) for _ in wanted]


# ------------------------------------------------------------------ parsing


def test_values_keep_the_users_order_and_take_the_parameters_type() -> None:
    space = Space.parse({"top_k": [20, 3, 5], "chunk_overlap": [0.25, 0], "chunk_size": 128})
    assert space.axes == (
        Axis("top_k", (20, 3, 5)),
        Axis("chunk_overlap", (0.25, 0.0)),
        Axis("chunk_size", (128,)),
    )
    assert [type(space.axes[1].values[i]) for i in range(2)] == [float, float]
    assert [a.fixed for a in space.axes] == [False, False, True]


def test_one_problem_names_its_place_the_value_and_what_is_allowed() -> None:
    # S15: an overlap is a share of the size; a size or an overlap that makes no progress is refused before any run
    allowed = "is not allowed; allowed: a share of chunk_size from 0 to 0.5"
    for value in (0.51, 1, 4, -1, -0.1, float("nan"), float("inf"), True, "0.1"):
        assert problems({"chunk_overlap": value}) == [f"space.chunk_overlap: {value!r} {allowed}"]
    assert problems({"chunk_size": [0]}) == [
        "space.chunk_size[0]: 0 is not allowed; allowed: a whole number of tokens from 1"
    ]


@pytest.mark.parametrize("value", [None, [1, 2], (1,), {1}, {"a": 1}, b"x"])
def test_a_choice_is_a_plain_value(value: Any) -> None:
    # S28: tuples and lists come back changed from a storage
    (line,) = problems({"chunk_size": [128, value]})
    assert line.startswith("space.chunk_size[1]: a value is text, a number, true or false; got ")


def test_an_absent_value_and_an_empty_list_are_refused() -> None:
    assert problems({"top_k": None}) == [
        "space.top_k: a value is text, a number, true or false; got nothing. Allowed: a whole number from 1"
    ]
    assert problems({"top_k": []}) == ["space.top_k: must be a list of at least one value, got []"]
    assert problems({"top_k": {"choices": 3}}) == ["space.top_k.choices: must be a list of at least one value, got 3"]


def test_numbers_without_end_are_refused_not_crashed_on() -> None:
    for value in (float("nan"), float("inf")):
        assert problems({"top_k": value}) == [f"space.top_k: {value} is not allowed; allowed: a whole number from 1"]
    assert problems({"k1": 10**400})[0].endswith("is not allowed; allowed: a number from 0")


def test_every_problem_is_listed_after_their_number() -> None:
    assert problems({"chunk_sise": 64, "top_k": [3, 3.0, 0]}) == [
        "3 problems",
        f"space.chunk_sise: unknown key; did you mean 'chunk_size'? Allowed: {', '.join(PARAMETERS)}",
        "space.top_k[1]: 3.0 is there twice; remove one",
        "space.top_k[2]: 0 is not allowed; allowed: a whole number from 1",
    ]


def test_the_error_is_a_study_file_error() -> None:
    with pytest.raises(StudyFileError, match=r"^space\.foo: unknown key\. Allowed: algorithm, "):
        Space.parse({"foo": 1})


@pytest.mark.parametrize(
    ("axis", "line"),
    [
        (
            {"low": 1, "hihg": 3},
            "top_k.hihg: unknown key; did you mean 'high'? Allowed: choices, low, high, step, log, when",
        ),
        ({"low": 1, "choices": [1]}, "top_k: write either choices: [...], or low and high with step or log"),
        ({"when": {"algorithm": "vector"}}, "top_k: write either choices: [...], or low and high with step or log"),
        ({"low": 1}, "top_k: a range needs low and high; high is missing"),
        ({"low": 0, "high": 9}, "top_k.low: 0 is not allowed; allowed: a whole number from 1"),
        ({"low": 9, "high": 9}, "top_k: low 9 is not below high 9; for one value write top_k: 9"),
        ({"low": 1, "high": 9, "log": 1}, "top_k.log: must be true or false, got 1"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "top_k.step: step and log exclude each other; remove one"),
        ({"low": 1, "high": 9, "step": 0}, "top_k.step: 0 is not allowed; allowed: a whole number from 1"),
        ({"low": 1, "high": 9, "step": 0.5}, "top_k.step: 0.5 is not allowed; allowed: a whole number from 1"),
        (
            {"low": 1, "high": 10**20},
            "top_k.high: 100000000000000000000 is not allowed; allowed: a whole number from 1, at most 1,000,000,000",
        ),
        ({"low": 1, "high": 9, "step": None}, "top_k.step: None is not allowed; allowed: a whole number from 1"),
    ],
)
def test_bad_ranges(axis: dict[str, Any], line: str) -> None:
    assert problems({"top_k": axis}) == [f"space.{line}"]


def test_bad_ranges_of_other_types() -> None:
    assert problems({"k1": {"low": 0, "high": 2, "log": True}}) == ["space.k1.low: a log range starts above 0, got 0.0"]
    assert problems({"b": {"low": 0, "high": 1, "step": -0.5}}) == [
        "space.b.step: -0.5 is not allowed; allowed: a number above 0"
    ]
    assert problems({"encoder": {"low": 1, "high": 2}}) == [
        "space.encoder: a range is made of numbers; list the values: [...]"
    ]


def test_a_step_that_misses_high_is_refused_with_the_cure() -> None:
    # S32: 128, 384, 640, 896
    assert problems({"chunk_size": {"low": 128, "high": 1000, "step": 256}}) == [
        "space.chunk_size.step: 128 to 1000 in steps of 256 ends at 896 and 1000 is never tried; "
        "write high: 896, or a step that divides 872"
    ]
    assert problems({"chunk_size": {"low": 128, "high": 200, "step": 100}})[0].endswith(
        "write the values as a list: [128, 200]"
    )
    Space.parse({"chunk_size": {"low": 128, "high": 896, "step": 256}})
    Space.parse({"b": {"low": 0.1, "high": 0.7, "step": 0.1}})  # 0.6 / 0.1 is not whole in binary


def test_the_values_of_a_range() -> None:
    tenths = Range(0.1, 0.4, 0.1)
    assert [tenths[i] for i in range(len(tenths))] == [0.1, 0.2, 0.3, 0.4]  # 0.1 + 2 · 0.1 is not 0.3 in binary
    assert 0.3 in tenths
    assert 0.35 not in tenths
    assert 0.5 not in tenths
    assert True not in Range(0, 1, 1)
    assert tenths.snap(0.1 + 2 * 0.1) == 0.3
    with pytest.raises(TypeError):
        len(Range(0.0, 1.0))


# --------------------------------------------------------------- conditions


def test_axes_come_after_what_decides_them_whatever_the_order_in_the_file() -> None:
    backwards = Space.parse(dict(reversed(DESIGN.items())))
    names = [a.name for a in backwards.axes]
    assert names.index("algorithm") < names.index("index") < names.index("ef_search")
    assert names.index("algorithm") < names.index("encoder")
    assert set(configurations(backwards)) == set(configurations(Space.parse(DESIGN)))


def test_deciders_are_exactly_what_applies_looks_at() -> None:
    # Change one parameter at a time, over all values that a rule could tell apart.
    values: dict[str, list[Any]] = {
        "algorithm": list(ALGORITHMS), "first_stage": list(FIRST_STAGES), "chunker": ["tokens", "document"],
        "index": ["Flat", "HNSW32", "IVF8,PQ8,RFlat"], "bm25_variant": ["lucene", "bm25l", "bm25+"],
        "fusion": ["rrf", "convex"], "mmr_lambda": [1.0, 0.5], "vector_weight": [0.0, 0.5, 1.0],
    }  # fmt: skip
    bases = [dict(zip(values, point, strict=True)) for point in product(*values.values())]
    filled = {(*base.values(), n, v): Configuration.filled({**base, n: v}) for base in bases
              for n, p in PARAMETERS.items() for v in values.get(n, ["x"] if p.cast is str else [1, 7])}  # fmt: skip
    for name, parameter in PARAMETERS.items():
        found = set()
        before = {tuple(base.values()): parameter.applies(Configuration.filled(base)) for base in bases}
        for (*base, n, _), configuration in filled.items():
            if n not in (*found, name) and parameter.applies(configuration) != before[tuple(base)]:
                found.add(n)
        assert found == set(DECIDERS[name]), name


def test_a_retrievers_options_follow_its_name() -> None:
    space = Space.parse(
        {
            "mine.alpha": [0.5, True, "x"],
            "retriever": ["mine", "yours"],
            "algorithm": ["keyword", "retriever"],
            "top_k": 3,
        }
    )
    assert [a.name for a in space.axes] == ["algorithm", "retriever", "mine.alpha", "top_k"]
    found = configurations(space)
    assert [dict(c.options) for c in found if c.retriever == "mine"] == [{"mine.alpha": v} for v in (0.5, True, "x")]
    assert [dict(c.options) for c in found if c.retriever != "mine"] == [{}, {}]
    for point in found:
        assert Configuration.of(space.suggest(optuna.trial.FixedTrial(space.params(point)))) == point


def test_values_that_mean_the_same_are_one_point_and_can_be_enqueued() -> None:
    axes = {
        "index": ["HNSW8", "IVF4,Flat"], "ef_search": [4, 8, 90], "nprobe": {"low": 1, "high": 9}, "top_k": [5, 50],
        "chunk_size": 4, "chunk_overlap": [0.0, 0.1, 0.5], "max_per_document": [3, 60],
    }  # fmt: skip
    space = Space.parse(axes)
    grid = space.grid()
    assert grid is not None
    assert len(set(grid.configurations)) == len(grid)
    assert {c.nprobe for c in grid.configurations} == {None, 1, 2, 3, 4}
    assert {c.chunk_overlap for c in grid.configurations} == {0.0, 0.5}
    widths = {c.ef_search for c in grid.configurations if c.top_k == 50 and c.index == "HNSW8"}
    assert widths == {50, 90, 250}  # 250: five looked at for each of 50
    assert len(grid) + grid.repeated == 2 * 3 * 9 * 2 * 3 * 2  # an axis that cannot matter counts its values too
    for point in grid.configurations:
        assert Configuration.of(space.suggest(optuna.trial.FixedTrial(space.params(point)))) == point


def test_auto_stands_alone() -> None:
    assert problems({"analyzer": ["auto", "english"]}) == [
        "space.analyzer: auto stands for one of the others; list those, or auto alone"
    ]
    assert Space.parse({"analyzer": ["auto"]}).size == 1


def test_bad_conditions() -> None:
    index = ["Flat", "HNSW32"]
    assert problems({"index": {"choices": index, "when": {"algoritm": "vector"}}})[0].startswith(
        "space.index.when.algoritm: unknown key; did you mean 'algorithm'? Allowed: "
    )
    assert problems({"index": {"choices": index, "when": {"algorithm": "vector"}}}) == [
        "space.index.when.algorithm: algorithm is not in this space; declare it there or remove the condition"
    ]
    assert problems({"index": index, "ef_search": {"choices": [16], "when": {"index": "HNSW64"}}}) == [
        "space.ef_search.when.index: index is never HNSW64 in this space; it is Flat, HNSW32"
    ]
    assert problems({"index": {"choices": index, "when": {"algorithm": ["vectr"]}}})[0].startswith(
        "space.index.when.algorithm[0]: 'vectr' is not allowed; allowed: keyword, vector, hybrid, semantic"
    )
    whens: list[Any] = [{}, [], "vector", None]
    for when in whens:
        assert problems({"index": {"choices": index, "when": when}}) == [
            f"space.index.when: must name a parameter and its values, as {{algorithm: [vector, hybrid]}}; got {when!r}"
        ]


def test_conditions_in_a_circle() -> None:
    assert problems({"top_k": {"choices": [3, 5], "when": {"top_k": 3}}}) == [
        "space.top_k.when: conditions go in a circle: top_k → top_k; remove one"
    ]
    ring = {
        "chunk_size": 9,
        "index": {"choices": ["Flat", "HNSW32"], "when": {"ef_search": 1}},
        "ef_search": {"choices": [1, 2], "when": {"index": "HNSW32"}},
    }
    assert problems(ring) == ["space.index.when: conditions go in a circle: index → ef_search → index; remove one"]
    # an index cannot decide the algorithm, which decides whether there is an index
    unspoken = {"index": ["Flat", "HNSW32"], "algorithm": {"choices": ["vector", "keyword"], "when": {"index": "Flat"}}}
    assert problems(unspoken)[0].startswith("space.algorithm.when: conditions go in a circle: ")


def test_a_condition_on_a_parameter_that_cannot_matter_does_not_hold() -> None:
    space = Space.parse(
        {
            "algorithm": ["keyword", "vector"],
            "index": "Flat",
            "chunk_size": {"choices": [64, 128], "when": {"index": "Flat"}},
        }
    )
    # keyword has no index: the default size 254; vector: both sizes
    assert [(c.algorithm, c.chunk_size) for c in configurations(space)] == [
        ("keyword", 254), ("vector", 64), ("vector", 128),
    ]  # fmt: skip


def test_a_condition_sees_the_default_of_an_axis_that_is_not_active() -> None:
    space = Space.parse(
        {
            "algorithm": ["vector", "hybrid"],
            "index": {"choices": ["HNSW32"], "when": {"algorithm": "vector"}},
            "chunk_size": {"choices": [64, 128], "when": {"index": "Flat"}},
        }
    )
    # vector: HNSW32, size by default; hybrid: Flat by default, so both sizes
    assert [(c.index, c.chunk_size) for c in configurations(space)] == [("HNSW32", 254), ("Flat", 64), ("Flat", 128)]


# --------------------------------------------------------------------- grid


def test_the_grid_of_the_design_example() -> None:
    # sizes 3 × overlaps 2 × top_k 4 = 24, × (keyword 1 + vector 3 + hybrid 3 + semantic 1); 3 is Flat and HNSW
    # with 16 and 64; but a hybrid search asks for 100 chunks, and a graph's search is at least so wide: both mean 100
    space = Space.parse(DESIGN)
    grid = space.grid()
    assert grid is not None
    assert (len(grid), space.size, dict(grid.invalid), grid.repeated) == (168, 168, {}, 24)
    assert Counter(c.algorithm for c in grid.configurations) == {
        "keyword": 24, "vector": 72, "hybrid": 48, "semantic": 24,
    }  # fmt: skip
    assert len(set(grid.configurations)) == 168
    assert {c.index for c in grid.configurations if c.algorithm == "semantic"} == {"Flat"}


def test_the_grid_follows_the_declared_order() -> None:
    space = Space.parse({"top_k": [5, 3], "chunk_size": [128, 64]})
    assert [(c.top_k, c.chunk_size) for c in configurations(space)] == [(5, 128), (5, 64), (3, 128), (3, 64)]


def test_combinations_that_mean_the_same_are_counted_once() -> None:
    # 2 · 2 · 2 = 8: keyword 1 (of 4), vector Flat 1 (of 2), vector HNSW32 2
    space = Space.parse({"algorithm": ["keyword", "vector"], "index": ["Flat", "HNSW32"], "ef_search": [16, 64]})
    grid = space.grid()
    assert grid is not None
    assert (len(grid), grid.repeated) == (4, 4)


def test_a_pool_below_top_k_is_skipped_and_counted() -> None:
    # S26: pool 2 with top_k 3 is refused, pool 2 with top_k 5 too
    grid = Space.parse({"algorithm": "semantic", "pool": [2, 6], "top_k": [3, 5]}).grid()
    assert grid is not None
    assert [(c.pool, c.top_k) for c in grid.configurations] == [(6, 3), (6, 5)]
    assert grid.invalid == {
        "pool 2 is smaller than top_k 3: a reranker returns from its pool": 1,
        "pool 2 is smaller than top_k 5: a reranker returns from its pool": 1,
    }
    assert grid.repeated == 0


def test_a_reason_counts_each_combination_that_it_stops() -> None:
    grid = Space.parse({"algorithm": "semantic", "pool": 2, "chunk_size": [64, 128], "top_k": 3}).grid()
    assert grid is not None
    assert (len(grid), list(grid.invalid.values())) == (0, [2])


def test_what_cannot_be_listed_has_no_grid() -> None:
    assert Space.parse({"b": {"low": 0, "high": 1}}).grid() is None
    assert Space.parse({"b": {"low": 0, "high": 1}}).size is None
    assert Space.parse({"b": {"low": 0, "high": 1, "step": 0.25}, "algorithm": "keyword"}).size == 5
    assert Space.parse({"top_k": {"low": 1, "high": 8, "log": True}}).size == 8


def test_more_than_the_most_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.optimize.space.MOST", 6)
    assert Space.parse({"top_k": [1, 2, 3], "chunk_size": [64, 128]}).size == 6
    assert Space.parse({"top_k": [1, 2, 3, 4], "chunk_size": [64, 128]}).size is None
    assert Space.parse({"top_k": {"low": 1, "high": 10**9}}).grid() is None  # and at once


def test_an_empty_space_is_the_default_configuration() -> None:
    assert configurations(Space.parse({})) == (Configuration.of({}),)


# ------------------------------------------------------------------- optuna


def test_each_point_of_a_conditional_grid_comes_back_from_a_study() -> None:
    points = configurations(Space.parse(DESIGN))
    assert suggested(Space.parse(DESIGN), points) == list(points)


def test_only_what_is_swept_and_matters_is_a_parameter_of_the_trial() -> None:
    space = Space.parse({"algorithm": ["keyword", "vector"], "encoder": "x", "index": ["Flat", "HNSW32"], "top_k": 3})
    study = optuna.create_study()
    study.enqueue_trial({"algorithm": "keyword"})
    trial = study.ask()
    assert space.suggest(trial) == {"algorithm": "keyword", "top_k": 3}
    assert trial.params == {"algorithm": "keyword"}
    vector = Configuration.of({"algorithm": "vector", "encoder": "x", "index": "HNSW32", "top_k": 3})
    assert space.params(vector) == {"algorithm": "vector", "index": "HNSW32"}


def test_sampled_trials_stay_in_the_space() -> None:
    space = Space.parse(
        {
            "algorithm": ["keyword", "semantic"],
            "b": {"low": 0.1, "high": 0.7, "step": 0.1},
            "k1": {"low": 0.1, "high": 2},
            "rrf_k": {"low": 1, "high": 100, "log": True},
            "top_k": {"low": 2, "high": 20, "step": 3},
        }
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    found = [Configuration.of(space.suggest(study.ask())) for _ in range(60)]
    assert {c.b for c in found} <= {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}
    assert {c.top_k for c in found} <= {2, 5, 8, 11, 14, 17, 20}
    assert {c.algorithm for c in found} == {"keyword", "semantic"}
    assert suggested(space, tuple(found)) == found


def test_a_configuration_from_elsewhere_is_refused_by_name() -> None:
    space = Space.parse({"chunk_size": [64, 128], "top_k": 3})
    with pytest.raises(SettingsError, match=r"^chunk_size 254 is not in the space"):
        space.params(Configuration.of({"chunk_size": 254, "top_k": 3}))
    with pytest.raises(SettingsError, match=r"^top_k 5 is not in the space"):
        space.params(Configuration.of({"chunk_size": 64, "top_k": 5}))
    with pytest.raises(SettingsError, match=r"^chunk_overlap 0\.25 is not in the space"):  # not declared: the default
        space.params(Configuration.of({"chunk_size": 64, "top_k": 3, "chunk_overlap": 0.25}))


CHOICES: dict[str, list[Any]] = {
    "algorithm": list(ALGORITHMS), "chunk_size": [64, 128], "chunk_overlap": [0, 0.25], "top_k": [3, 60],
    "encoder": ["x", "y"], "index": ["Flat", "HNSW8", "HNSW32"], "ef_search": [16, 64], "analyzer": ["plain"],
    "k1": [0.9, 2], "rrf_k": [1, 60], "first_stage": list(FIRST_STAGES), "pool": [2, 50, 120],
    "reranker": ["late-interaction", "cross-encoder"], "reranker_model": ["all-MiniLM-L6-v2", "z"],
}  # fmt: skip


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    names = draw(st.lists(st.sampled_from(sorted(CHOICES)), unique=True, min_size=1, max_size=6))
    mapping: dict[str, Any] = {}
    for name in names:
        values = draw(st.lists(st.sampled_from(CHOICES[name]), unique=True, min_size=1, max_size=3))
        earlier = [n for n in mapping if n in ("algorithm", "chunk_size", "first_stage", "index", "reranker")]
        mapping[name] = {"choices": values}
        if earlier and name not in ("algorithm", "first_stage", "index") and draw(st.booleans()):
            other = draw(st.sampled_from(earlier))
            mapping[name]["when"] = {other: draw(st.sampled_from(mapping[other]["choices"]))}
    if draw(st.booleans()):
        mapping["b"] = {"low": 0.1, "high": 0.3, "step": 0.1}
    return Space.parse(mapping)


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_any_grid_is_distinct_and_comes_back(space: Space) -> None:
    points = configurations(space)
    assert len(set(points)) == len(points)
    some = points[:: max(1, len(points) // 25)]
    assert suggested(space, some) == list(some)


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_any_space_reads_back_from_its_canonical_form(space: Space) -> None:
    again = Space.parse(space.to_dict())
    assert (again, again.to_dict()) == (space, space.to_dict())
    assert difference(space.to_dict(), again.to_dict()) == []


# --------------------------------------------------------------- difference


def changed(**axes: Any) -> tuple[list[str], bool]:
    old, new = Space.parse(DESIGN).to_dict(), Space.parse({**DESIGN, **axes}).to_dict()
    return difference(old, new), extends(old, new)


def test_canonical_form() -> None:
    assert Space.parse({"chunk_size": 64, "k1": {"low": 1, "high": 2}, "top_k": {"low": 1, "high": 3}}).to_dict() == {
        "chunk_size": {"choices": [64]},
        "k1": {"low": 1.0, "high": 2.0},
        "top_k": {"low": 1, "high": 3, "step": 1},
    }


def test_added_values_extend_a_space() -> None:
    # S28: chunk {128, 256} resumed with {128, 256, 512}
    assert changed(chunk_size=[64, 128, 254, 512]) == (["chunk_size: 512 added"], True)
    assert changed(encoder=["all-MiniLM-L6-v2", "x"]) == (["encoder: x added"], True)
    assert changed(chunk_size=[128, 64, 254]) == (["chunk_size: order changed from 64, 128, 254 to 128, 64, 254"], True)
    assert changed() == ([], True)


def test_other_changes_do_not() -> None:
    assert changed(top_k=[3, 5, 40]) == (["top_k: 40 added", "top_k: 10, 20 removed"], False)
    assert changed(analyzer=["plain"]) == (["analyzer: new in the space, plain"], False)
    assert changed(top_k={"low": 1, "high": 4}) == (["top_k: was 3, 5, 10, 20, is low 1, high 4, step 1"], False)
    assert changed(ef_search=[16, 64]) == (["ef_search: condition was index HNSW32, is none"], False)
    less = Space.parse({n: v for n, v in DESIGN.items() if n != "encoder"}).to_dict()
    assert difference(Space.parse(DESIGN).to_dict(), less) == ["encoder: removed from the space, was all-MiniLM-L6-v2"]
    assert not extends(Space.parse(DESIGN).to_dict(), less)
    wider = [Space.parse({"top_k": {"low": 1, "high": h}}).to_dict() for h in (4, 5)]
    assert (difference(*wider), extends(*wider)) == (
        ["top_k: was low 1, high 4, step 1, is low 1, high 5, step 1"],
        False,
    )


# --------------------------------------------------------------- one point, one configuration


def test_a_hybrid_of_one_side_alone_is_that_side() -> None:
    space = Space.parse(
        {"algorithm": ["keyword", "vector", "hybrid"], "vector_weight": [0.0, 0.5, 1.0], "rrf_k": [1, 60], "k1": [1, 2],
         "ef_search": [64, 200], "index": "HNSW32"}
    )  # fmt: skip
    grid = space.grid()
    assert grid is not None
    assert Counter(c.algorithm for c in grid.configurations) == {"keyword": 2, "vector": 2, "hybrid": 2 * 2 * 2}
    for c in grid.configurations:
        assert Configuration.of(space.suggest(FixedTrial(space.params(c)))) == c  # type: ignore[arg-type]
    semantic = {"algorithm": "semantic", "first_stage": "hybrid"}
    assert Configuration.of({**semantic, "vector_weight": 1.0}).first_stage == "vector"
    assert Configuration.of({**semantic, "vector_weight": 0.0}).encoder is None


@pytest.mark.parametrize("when", [{}, {"when": {"fusion": "convex"}}])
def test_a_side_alone_is_a_point_of_a_space_of_hybrids(when: dict[str, Any]) -> None:
    weights = {"choices": [0.0, 0.5, 1.0], **when}
    space = Space.parse({"algorithm": "hybrid", "fusion": ["rrf", "convex"], "vector_weight": weights, "top_k": 3})
    found = configurations(space)
    assert {c.algorithm for c in found} == {"hybrid", "keyword", "vector"}
    assert len(found) == 4  # each side alone, and both weighed evenly by either fusion
    for c in found:
        trial = FixedTrial(space.params(c))
        assert Configuration.of(space.suggest(trial)) == c  # type: ignore[arg-type]


def test_what_an_index_and_a_pool_round_up_to_is_written() -> None:
    refined = {"index": "HNSW32_SQ8,RFlat", "refine_factor": 4, "top_k": 50}
    assert [Configuration.of({**refined, "ef_search": v}).ef_search for v in (64, 200, 300)] == [200, 200, 300]
    pooled = {"algorithm": "semantic", "pool": 20, "mmr_lambda": 0.5}
    assert [Configuration.of({**pooled, "mmr_pool": v}).mmr_pool for v in (15, 20, 50)] == [15, 20, 20]


def test_corners_are_points() -> None:
    space = Space.parse(
        {
            "algorithm": ["keyword", "vector", "semantic"],
            "encoder": {"choices": ["a", "b"], "when": {"algorithm": "vector"}},
            "chunk_size": {"low": 64, "high": 512},
            "reranker": {"choices": ["late-interaction", "encoder"], "when": {"algorithm": "semantic"}},
            "reranker_model": {"choices": ["a", "c"], "when": {"reranker": "encoder"}},
            "first_stage": "keyword",
            "b": {"low": 0.0, "high": 1.0},
        }
    )
    found = {(c.algorithm, c.chunk_size, *c.models) for c in space.corners()}
    models = [
        ("keyword",),
        ("vector", "a"),
        ("vector", "b"),
        ("semantic", DEFAULT_ENCODER),
        ("semantic", "a"),
        ("semantic", "c"),
    ]
    assert found == {(m[0], size, *m[1:]) for m in models for size in (64, 512)}
    assert space.first.settings["b"] == 0.0
