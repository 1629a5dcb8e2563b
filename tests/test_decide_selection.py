"""The choosing rule: which configuration is recommended, by what, and how often it is wrong."""

from itertools import product

import numpy as np
import pytest

from metrics.inference import smooth
from sweep.decide.selection import Selection, main_effects, select
from sweep.errors import InputError, NothingFeasibleError
from sweep.retrieval.configuration import Configuration

TOP_K = (3, 5, 10)


def configurations(chunk_sizes=(64, 128, 254), top_ks=TOP_K, algorithms=("keyword", "vector")):
    return [
        Configuration.of({"chunk_size": c, "top_k": k, "algorithm": a})
        for c, k, a in product(chunk_sizes, top_ks, algorithms)
    ]


def choose(space, table, *, cost=None, feasible=None, **rest) -> Selection:
    cost = (
        np.array([c.top_k * c.chunk_size for c in space], dtype=float)
        if cost is None
        else np.asarray(cost, dtype=float)
    )
    feasible = np.ones(len(space), dtype=bool) if feasible is None else feasible
    return select(space, table, {"tokens": cost}, feasible, **({"cost_order": ["tokens"], "tolerance": 0.02} | rest))


def noisy(means, n, seed, spread=0.2):
    """Scores of which most of the variation is shared by all configurations."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal(n) + 0.4 * generator.standard_normal((len(means), n))
    return np.asarray(means)[:, None] + spread * noise


def same_span(a, b):
    return np.linalg.matrix_rank(a) == np.linalg.matrix_rank(b) == np.linalg.matrix_rank(np.column_stack([a, b]))


def test_main_effects_by_hand():
    design = main_effects(configurations(chunk_sizes=(64,), top_ks=TOP_K, algorithms=("vector",)))
    assert design.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]  # an intercept and two of three values


def test_conditional_parameters_have_their_effects_within_their_condition():
    space = [
        Configuration.of({"algorithm": "keyword"}),
        Configuration.of({"algorithm": "vector", "index": "Flat"}),
        Configuration.of({"algorithm": "vector", "index": "HNSW32", "ef_search": 16}),
        Configuration.of({"algorithm": "vector", "index": "HNSW32", "ef_search": 64}),
    ]
    # four kinds of configuration, told apart by algorithm, then index, then ef_search: nothing is left unexplained
    assert same_span(main_effects(space), np.eye(4))
    crossed = [Configuration.of({**c.settings, "chunk_size": s}) for s in (64, 128) for c in space]
    by_hand = np.column_stack([np.tile(np.eye(4), (2, 1)), np.repeat([0.0, 1.0], 4)])
    assert same_span(main_effects(crossed), by_hand)


def test_constant_scores_give_the_fewest_results_in_any_order():
    for order in ((3, 5, 10), (10, 5, 3), (5, 10, 3)):
        space = configurations((128,), order, ("vector",))
        answer = choose(space, np.full((3, 20), 0.4), cost=np.ones(3))
        assert space[answer.recommended].top_k == space[answer.argmax].top_k == 3
        assert answer.good_enough == answer.may_be_best == (0, 1, 2)
        assert not answer.clear


def test_equal_cost_and_estimate_go_to_fewer_results_then_the_smaller_index_then_the_smaller_settings():
    space = configurations((254, 128, 64), (10, 5), ("vector",))  # 254/10, 254/5, 128/10, 128/5, 64/10, 64/5
    for index_bytes, chunk_size in (([1, 2, 1, 1, 1, 2], 128), ([1, 1, 1, 1, 1, 2], 128), ([1, 9, 1, 9, 1, 9], 64)):
        costs = {"tokens": np.ones(6), "index_bytes": np.array(index_bytes, dtype=float)}
        answer = select(
            space, np.full((6, 20), 0.4), costs, np.ones(6, dtype=bool), cost_order=["tokens"], tolerance=0.02
        )
        chosen = space[answer.recommended]
        assert (chosen.top_k, chosen.chunk_size) == (5, chunk_size)


def test_equal_cost_goes_to_the_better_estimate():
    space = configurations((64, 128), (5,), ("vector",))
    base = np.random.default_rng(0).random(50)
    answer = choose(space, np.stack([base, base + 0.001]), cost=[7, 7])
    assert answer.good_enough == (0, 1)
    assert answer.recommended == 1


def test_cheapest_that_is_shown_to_lose_little_is_recommended():
    space = configurations((64, 128, 254), (5,), ("vector",))
    answer = choose(space, noisy([0.3, 0.595, 0.6], 2000, seed=1, spread=0.1), cost=[1, 2, 3])
    assert answer.recommended == 1
    assert answer.argmax == 2
    assert answer.good_enough == (1, 2)
    assert answer.may_be_best == (2,)
    assert answer.clear
    assert answer.reason == "cheapest of 2 that are shown to lose at most 0.02 against the greatest estimate"
    assert answer.more_queries is None


def test_later_costs_decide_between_equal_earlier_ones():
    space = configurations((64, 128), (5,), ("vector",))
    table, costs = np.full((2, 9), 0.5), {"tokens": np.array([5.0, 5.0]), "bytes": np.array([2.0, 1.0])}
    answer = select(space, table, costs, np.ones(2, dtype=bool), cost_order=["tokens", "bytes"], tolerance=0.02)
    assert answer.recommended == 1


def test_more_queries_by_the_square_root_law():
    space = configurations((64, 128), (5,), ("vector",))
    base, difference = np.random.default_rng(0).random(50), np.tile([0.25, -0.23], 25)  # loses .01 ± .0343 on average
    answer = choose(space, np.stack([base - difference, base]), cost=[1, 2])
    assert (answer.recommended, answer.promising) == (1, 0)
    error, critical = 0.24 / 49**0.5, 1.677  # t(49, .95); needed: (critical × error / (.02 − .01))² × 50 in all
    assert answer.more_queries == pytest.approx(50 * (critical * error / 0.01) ** 2 - 50, rel=0.2)
    text = "the greatest estimate; no other is shown to lose at most 0.02 against it"
    more = f"about {answer.more_queries} more queries would let the cheaper {space[0].id} qualify"
    assert answer.reason == f"{text}: {more}"
    # with that many, it does
    times = int(np.ceil(1.2 * (answer.more_queries + 50) / 50))
    assert choose(space, np.tile(np.stack([base - difference, base]), times), cost=[1, 2]).recommended == 0


def test_one_configuration_and_one_query():
    space = configurations((64,), (5,), ("vector",))
    for table in (np.array([[0.3, 0.5, 0.4]]), np.array([[0.3]])):
        answer = choose(space, table)
        assert (answer.recommended, answer.argmax, answer.may_be_best, answer.good_enough) == (0, 0, (0,), (0,))
        assert answer.clear
        assert answer.reason == "the only feasible configuration"
    two = choose(configurations((64, 128), (5,), ("vector",)), np.array([[0.3], [0.31]]), cost=[1, 2])
    assert two.recommended == 1
    assert two.may_be_best == (0, 1)
    assert two.more_queries is None


def test_infeasible_configurations_are_left_out_but_keep_their_means():
    space = configurations((64, 128, 254), (5,), ("vector",))
    table = noisy([0.9, 0.6, 0.3], 100, seed=1)
    table[2] = np.nan  # failed
    answer = choose(space, table, feasible=np.array([False, True, False]))
    assert answer.recommended == answer.argmax == 1
    assert answer.good_enough == answer.may_be_best == (1,)
    assert np.isnan(answer.estimates).tolist() == np.isnan(answer.loss_bounds).tolist() == [True, False, True]
    assert answer.means[0] == pytest.approx(table[0].mean())


def test_nothing_feasible_names_the_constraint_that_excludes_most():
    space = configurations((64, 128, 254), (5,), ("vector",))
    violated = {
        "holes_ratio <= 0.2": np.array([True, False, False]),
        "context_tokens <= 9": np.array([False, True, True]),
    }
    with pytest.raises(NothingFeasibleError, match=r"'context_tokens <= 9' excludes 2; loosen"):
        choose(space, np.ones((3, 4)), feasible=np.zeros(3, dtype=bool), violated=violated)
    with pytest.raises(NothingFeasibleError, match="none of 3 configurations is complete"):
        choose(space, np.ones((3, 4)), feasible=np.zeros(3, dtype=bool))


def test_bad_input_is_named():
    space = configurations((64, 128), (5,), ("vector",))
    with pytest.raises(InputError, match="'token' was not measured; did you mean 'tokens'"):
        choose(space, np.ones((2, 4)), cost_order=["token"])
    with pytest.raises(InputError, match="tokens of configuration 1 is nan"):
        choose(space, np.ones((2, 4)), cost=[1, np.nan])
    for tolerance in (-0.1, float("nan")):
        with pytest.raises(InputError, match="tolerance"):
            choose(space, np.ones((2, 4)), tolerance=tolerance)


def test_the_order_of_the_configurations_does_not_matter():
    space = configurations()
    means = [0.5 + 0.002 * c.top_k + (0.02 if c.algorithm == "vector" else 0) for c in space]
    table = noisy(means, 120, seed=4, spread=0.1)
    table[3] = table[8]
    reference = choose(space, table)
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(len(space))
        answer = choose([space[i] for i in shuffled], table[shuffled])
        assert [shuffled[answer.recommended], shuffled[answer.argmax]] == [reference.recommended, reference.argmax]
        assert sorted(shuffled[list(answer.may_be_best)]) == list(reference.may_be_best)
        assert sorted(shuffled[list(answer.good_enough)]) == list(reference.good_enough)
        assert (answer.reason, answer.weight) == (reference.reason, reference.weight)
        np.testing.assert_array_equal(answer.estimates, reference.estimates[shuffled])
        np.testing.assert_array_equal(answer.loss_bounds, reference.loss_bounds[shuffled])


def test_estimates_are_the_smoothed_means_of_the_feasible():
    space, feasible = configurations(), np.arange(18) % 3 > 0
    table = noisy(np.random.default_rng(3).normal(0.5, 0.02, 18), 50, seed=2)  # interactions and noise of like size
    answer = choose(space, table, feasible=feasible)
    expected, smoother = smooth(table[feasible], main_effects([c for c, f in zip(space, feasible, strict=True) if f]))
    np.testing.assert_allclose(answer.estimates[feasible], expected)
    assert answer.weight == pytest.approx(smoother.weight)
    assert 0 < answer.weight < 1


def test_the_recommended_rarely_loses_more_than_the_tolerance_against_the_argmax():
    """Simulated spaces with real interactions: in at most 5 % is the true loss against arg-max's choice over .02."""
    repetitions, space, lost, cheaper = 200, configurations(), [], []
    for seed in range(repetitions):
        generator = np.random.default_rng([seed, 1])
        effects = {v: generator.normal(0, 0.03) for v in (64, 128, 254, *TOP_K, "keyword", "vector")}
        means = np.array([0.5 + effects[c.chunk_size] + effects[c.top_k] + effects[c.algorithm] for c in space])
        means += generator.normal(0, 0.008, len(space))
        answer = choose(space, noisy(means, 100, [seed, 2], spread=0.15))
        lost.append(means[answer.argmax] - means[answer.recommended] > 0.02)
        cheaper.append(answer.recommended != answer.argmax)
    assert np.mean(lost) <= 0.05 + 2.5 * (0.05 * 0.95 / repetitions) ** 0.5
    assert np.mean(cheaper) > 0.1  # and the rule does choose otherwise
