"""Intervals, paired tests, smoothing, confidence sets, against hand calculation, SciPy, tables and simulation."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from metrics.inference import (
    Smoother,
    bootstrap_means,
    confidence_set,
    holm,
    mean_intervals,
    non_inferior,
    paired_difference,
    queries_needed,
    randomisation_test,
    smooth,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def correlated(means, n, generator, spread=0.3):
    """Scores that share most of their variation from query to query, as configurations of one system do."""
    return means[:, None] + spread * (generator.standard_normal(n) + 0.5 * generator.standard_normal((len(means), n)))


def test_bootstrap_means_use_the_same_queries_for_all_configurations():
    scores = rng(1).random(40)
    draws = bootstrap_means(np.stack([scores, 2 * scores, np.ones(40)]), 500, rng())
    assert draws.shape == (500, 3)
    np.testing.assert_allclose(draws[:, 1], 2 * draws[:, 0])
    np.testing.assert_allclose(draws[:, 2], 1.0)
    # the spread of a resampled mean is the population standard deviation over √n
    assert draws[:, 0].std() == pytest.approx(scores.std() / 40**0.5, rel=0.1)
    assert draws[:, 0].mean() == pytest.approx(scores.mean(), abs=4 * scores.std() / 40**0.5 / 500**0.5)


def test_bootstrap_means_do_not_depend_on_the_block(monkeypatch):
    table = rng(1).random((3, 50))
    whole = bootstrap_means(table, 20, rng())
    monkeypatch.setattr("metrics.inference.BLOCK", 150)  # 3 draws at once, the last block shorter
    np.testing.assert_allclose(bootstrap_means(table, 20, rng()), whole)


@pytest.mark.parametrize("kind", ["uniform", "zeros and a few ones", "skewed"])
def test_mean_intervals_agree_with_scipy(kind):
    scores = {
        "uniform": rng(2).random(60),
        "zeros and a few ones": np.repeat([0.0, 1.0], [70, 10]),
        "skewed": rng(3).exponential(size=80),
    }[kind]
    expected = stats.bootstrap((scores,), np.mean, n_resamples=20_000, method="BCa", rng=rng(4)).confidence_interval
    low, high = mean_intervals(scores[None], rng(5), n_boot=20_000)[0]
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.03 * width)
    assert high == pytest.approx(expected.high, abs=0.03 * width)


def test_mean_intervals_without_spread_are_the_value_and_with_one_query_unknown():
    assert mean_intervals(np.full((1, 7), 0.1), rng())[0].tolist() == pytest.approx([0.1, 0.1])
    assert np.isnan(mean_intervals(np.array([[0.4]]), rng())).all()


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=30))
@settings(deadline=None)
def test_paired_difference_agrees_with_scipy(pairs):
    a, b = np.array(pairs).T
    if np.ptp(a - b) < 1e-3:
        return
    result, expected = paired_difference(a, b), stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-6)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert result.wins + result.ties + result.losses == len(a)
    back = paired_difference(b, a)
    assert (back.mean, back.wins, back.p) == pytest.approx((-result.mean, result.losses, result.p))
    # t is d_z √Q
    assert result.effect_size * len(a) ** 0.5 == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)
    assert back.effect_size == pytest.approx(-result.effect_size)


def test_paired_difference_by_hand():
    result = paired_difference(np.array([0.5, 0.7, 0.2, 0.9]), np.array([0.5, 0.3, 0.4, 0.5]))
    assert (result.wins, result.ties, result.losses) == (2, 1, 1)  # 0, .4, −.2, .4
    assert result.mean == pytest.approx(0.15)
    # deviations −.15, .25, −.35, .25: sum of squares .27, s = .3, error .15, t(3, .975) = 3.182446
    assert (result.low, result.high) == pytest.approx((0.15 - 3.182446 * 0.15, 0.15 + 3.182446 * 0.15), abs=1e-6)
    assert result.effect_size == pytest.approx(0.5)  # .15 / .3


def test_paired_difference_without_spread():
    a = np.array([0.1, 0.2, 0.3])
    same, shifted, one = paired_difference(a, a), paired_difference(a + 0.25, a), paired_difference(a[:1], a[1:2])
    assert (same.mean, same.p, same.ties) == (0.0, 1.0, 3)
    assert (shifted.low, shifted.high, shifted.p) == pytest.approx((0.25, 0.25, 0.25))  # 2 of 2³ sign patterns
    assert np.isnan([one.p, one.low, one.high, one.effect_size]).all()
    assert (same.effect_size, shifted.effect_size) == (0.0, np.inf)
    assert paired_difference(a, a + 0.25).effect_size == -np.inf


@pytest.mark.parametrize("compare", [paired_difference, lambda a, b: randomisation_test(a, b, rng())])
def test_what_is_no_pair_is_refused(compare):
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        compare(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="query 1: score nan"):
        compare(np.array([0.5, np.nan]), np.zeros(2))
    with pytest.raises(ValueError, match="at least one"):
        compare(np.zeros(0), np.zeros(0))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        # sums of ±1 ± 2 ± 4 are ±1, ±3, ±5, ±7: all differ, so |7| has 2 of 8, |3| (4 − 2 + 1) has 6 of 8
        ([0.1, 0.2, 0.4], 2 / 8),
        ([0.1, -0.2, 0.4], 6 / 8),
        # |±1 ± 1 ± 1 ± 3|: 6 twice, 4 six times, 2 six times, 0 twice. All ahead but one of 1: 4, so 8 of 16
        ([0.1, -0.1, 0.1, 0.3], 8 / 16),
        ([-0.1, 0.1, -0.1, -0.3], 8 / 16),
        # |±1 ± 2 ± 3 ± 4| is 0 twice (1 + 4 = 2 + 3), else at least 2; .1 + .2 + .3 − .4 is 2 but for rounding
        ([0.1, 0.2, 0.3, -0.4], 14 / 16),
        ([0.1, 0.2, *[0.0] * 40, 0.4], 2 / 8),  # ties take no part, so this is exact
        ([1e-8, 1e-8, 1e-8], 1.0),
        ([0.1, 0.2, -0.3, 0.3, -0.1, -0.2], 1.0),  # the sum is 0 but for rounding
        ([0.25, 0.25, 0.25], 2 / 8),  # constant: as paired_difference
        ([0.0, 0.0, 0.0], 1.0),
        ([0.0, 0.3, 0.0], 1.0),
        ([0.3], 1.0),
    ],
)
def test_randomisation_test_by_hand(differences, p):
    assert randomisation_test(np.array(differences), np.zeros(len(differences)), rng()) == pytest.approx(p)


def test_randomisation_test_agrees_with_enumeration():
    for seed in range(5):
        a, b = rng(seed).random((2, 10))
        b[:2] = a[2:4]
        d = a - b
        sums = np.array([sum(s * x for s, x in zip(signs, d, strict=True)) for signs in product([1, -1], repeat=10)])
        assert randomisation_test(a, b, rng()) == pytest.approx(np.mean(np.abs(sums) >= abs(d.sum()) - 1e-12))


def test_randomisation_test_with_many_queries_is_the_t_test():
    for shift in (0.0, 0.02, 0.05):
        a, b = correlated(np.array([0.5 + shift, 0.5]), 400, rng(5))
        p = paired_difference(a, b).p
        assert randomisation_test(a, b, rng(1)) == pytest.approx(p, abs=4 * (p * (1 - p) / 9999) ** 0.5 + 0.003)
    a, b = correlated(np.array([0.9, 0.1]), 400, rng(5))
    assert randomisation_test(a, b, rng(), n_resamples=199) == pytest.approx(1 / 200)  # never 0: the observed counts


def test_randomisation_test_rejects_a_true_null_as_often_as_it_says():
    """Size by simulation, for skewed scores that share their distribution."""
    repetitions, generator = 1000, rng(6)
    p = [
        randomisation_test(*generator.exponential(size=(2, 25)), generator, n_resamples=199) for _ in range(repetitions)
    ]
    for alpha in (0.05, 0.5):
        assert np.mean(np.array(p) <= alpha) == pytest.approx(alpha, abs=3 * (alpha * (1 - alpha) / repetitions) ** 0.5)


def test_randomisation_test_does_not_depend_on_the_block(monkeypatch):
    a, b = correlated(np.array([0.55, 0.5]), 30, rng(5))
    whole = randomisation_test(a, b, rng())
    monkeypatch.setattr("metrics.inference.BLOCK", 30 * 4 * 1500)  # the last block is shorter
    assert randomisation_test(a, b, rng()) == whole


def test_holm_by_hand():
    # sorted .01 .02 .03 .04, times 4 3 2 1: .04 .06 .06 .04; the last is lifted to .06
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.04, 0.02])), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.0, 0.5])), [1.0, 0.0, 1.0])
    assert holm(np.array([0.3])).tolist() == [0.3]
    assert holm(np.empty(0)).tolist() == []


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.02, 1.0])), min_size=1, max_size=12))
def test_holm_is_the_greatest_of_what_it_takes_to_reject_each_smaller(values):
    """The definition, one by one: all p up to pᵢ must fall, each when as many are left as are not smaller."""
    expected = [min(1.0, max(q * sum(r >= q for r in values) for q in values if q <= p)) for p in values]
    np.testing.assert_allclose(holm(np.array(values)), expected)


def test_holm_refuses_what_is_no_p():
    for bad in (np.nan, -0.1, 1.1, np.inf):
        with pytest.raises(ValueError, match=f"p-value 1: {bad} is not"):
            holm(np.array([0.5, bad]))
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        holm(np.full((2, 2), 0.5))


def test_queries_needed_as_tabled():
    """G*Power 3.1, t test of two dependent means, two-sided."""
    assert [queries_needed(d, 1.0) for d in (0.2, 0.5, 0.8)] == [199, 34, 15]
    assert queries_needed(-0.1, 0.2) == 34  # neither the sign nor the unit matters


@pytest.mark.parametrize(
    ("d", "power", "level"), [(0.5, 0.8, 0.95), (0.3, 0.95, 0.99), (0.3, 0.8, 0.9999), (2.0, 0.95, 0.999)]
)
def test_queries_needed_is_the_least_number_by_scipys_noncentral_t(d, power, level):
    def reached(n):
        critical = stats.t.ppf((1 + level) / 2, n - 1)
        other = np.nan_to_num(stats.nct.cdf(-critical, n - 1, d * n**0.5))  # SciPy gives nan where it vanishes
        return stats.nct.sf(critical, n - 1, d * n**0.5) + other

    n = queries_needed(d, 1.0, power=power, level=level)
    assert reached(n - 1) < power <= reached(n)


def test_queries_needed_gives_the_power_that_it_says():
    """By simulation with the paired t-test: difference .03, deviation .1."""
    repetitions, generator, n = 1000, rng(8), queries_needed(0.03, 0.1)
    base = generator.random(n)
    shown = [paired_difference(base + generator.normal(0.03, 0.1, n), base).p < 0.05 for _ in range(repetitions)]
    assert np.mean(shown) == pytest.approx(0.8, abs=3 * (0.8 * 0.2 / repetitions) ** 0.5)


def test_queries_needed_at_the_ends():
    # d √n is where a normal with both tails has the power; Student's t takes z²/2 = 1.92 more (Guenther 1981)
    z = stats.norm.isf(0.025)
    shift = optimize.brentq(lambda x: stats.norm.cdf(x - z) + stats.norm.cdf(-x - z) - 0.8, 2, 4, xtol=1e-14)
    for d in (1e-2, 1e-3):
        assert queries_needed(d, 1.0) - (shift / d) ** 2 == pytest.approx(1.92 + 0.5, abs=0.6)  # rounded up
    assert queries_needed(1e-6, 1.0) == pytest.approx((shift / 1e-6) ** 2, rel=1e-9)
    assert queries_needed(1e6, 1.0) == queries_needed(0.5, 1.0, power=0.04) == 2  # chance alone shows 5 %


@pytest.mark.parametrize(
    "bad",
    [
        {"difference": 0.0},
        {"difference": np.nan},
        {"difference": np.inf},
        {"difference": 1e-9},
        {"deviation": 0.0},
        {"deviation": -1.0},
        {"deviation": np.inf},
        {"power": 0.0},
        {"power": 1.0},
        {"level": 0.0},
        {"level": 1.0},
        {"level": np.nan},
    ],
)
def test_queries_needed_refuses_what_has_no_answer(bad):
    name, value = next(iter(bad.items()))
    with pytest.raises(ValueError, match=f"{name} {value}"):
        queries_needed(**({"difference": 0.1, "deviation": 0.2} | bad))


# Two settings with two values each. The interaction contrast u = (1, −1, −1, 1)/2 is all that an additive model leaves.
# Query 1 is (0, 1, 2, 3) + 1u, query 2 is 3u: the contrast is 1 and 3, its mean 2, its variance over n is 2/2 = 1.
ADDITIVE = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=float)
BY_HAND = np.array([[0.5, 1.5], [0.5, -1.5], [1.5, -1.5], [3.5, 1.5]])


def test_smooth_by_hand():
    estimates, smoother = smooth(BY_HAND, ADDITIVE)
    assert smoother.weight == pytest.approx(1 - 1 / 2**2)
    # means (1, −.5, 0, 2.5) = additive part (0, .5, 1, 1.5) + residual (1, −1, −1, 1); three quarters of it are kept
    np.testing.assert_allclose(estimates, [0.75, -0.25, 0.25, 2.25])
    np.testing.assert_allclose(smoother(BY_HAND).mean(axis=1), estimates)


def test_smooth_with_redundant_columns_is_the_same():
    redundant = np.column_stack([ADDITIVE, 1 - ADDITIVE[:, 1], ADDITIVE.sum(axis=1), np.zeros(4)])
    np.testing.assert_allclose(smooth(BY_HAND, redundant)[0], smooth(BY_HAND, ADDITIVE)[0], atol=1e-12)


def test_smooth_fades_out_as_queries_grow():
    repeated = np.tile(BY_HAND, 1000)  # 2000 queries: contrast variance 1.0005, over n .0005
    assert smooth(repeated, ADDITIVE)[1].weight == pytest.approx(1 - (2000 / 1999) / 2000 / 4)


def test_smooth_keeps_nothing_of_what_noise_explains():
    noisy = np.array([[1.0, -1.0, 0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    estimates, smoother = smooth(noisy, ADDITIVE)
    assert smoother.weight == 0.0
    assert estimates[0] - estimates[1] == pytest.approx(estimates[2] - estimates[3])  # additive


def test_smooth_degenerate():
    constant, one_query = smooth(np.full((4, 5), 0.5), ADDITIVE), smooth(BY_HAND[:, :1], ADDITIVE)
    np.testing.assert_allclose(constant[0], 0.5)
    assert one_query[1].weight == 0.0
    saturated = smooth(BY_HAND, np.eye(4))  # a model that explains everything shrinks nothing
    np.testing.assert_allclose(saturated[0], BY_HAND.mean(axis=1))
    with pytest.raises(ValueError, match="a row for each of 4"):
        smooth(BY_HAND, ADDITIVE[:3])


def test_confidence_set_keeps_a_clear_winner_alone_and_its_identical_twin():
    table = correlated(np.array([0.5, 0.5, 0.9, 0.45]), 100, rng(1))
    assert confidence_set(table, rng()).tolist() == [False, False, True, False]
    assert confidence_set(np.vstack([table, table[2]]), rng()).tolist() == [False, False, True, False, True]


def test_confidence_set_of_what_cannot_be_told_apart_is_everything():
    for table in (np.full((5, 40), 0.3), rng().random((4, 1)), rng().random((1, 30))):
        assert confidence_set(table, rng()).all()


def test_a_constant_difference_counts_once_a_sign_test_would_show_it():
    few, many = rng().random(3), rng().random(20)
    assert confidence_set(np.stack([few, few + 0.1]), rng()).all()  # ½³ > .05
    assert confidence_set(np.stack([many, many + 0.1]), rng()).tolist() == [False, True]


def test_the_best_configuration_is_in_the_confidence_set():
    """Coverage by simulation, in the least favourable case: all are equally good, any of them counts as the best."""
    repetitions, generator, means = 250, rng(11), np.full(20, 0.5)
    covered = [confidence_set(correlated(means, 60, generator), generator, n_boot=500)[0] for _ in range(repetitions)]
    assert np.mean(covered) >= 0.95 - 2.5 * (0.05 * 0.95 / repetitions) ** 0.5
    assert np.mean(covered) < 0.995  # nor so wide that it never errs


def test_the_confidence_set_narrows_as_queries_grow():
    generator, means = rng(12), np.linspace(0.5, 0.4, 20)
    sizes = [confidence_set(correlated(means, n, generator), generator).sum() for n in (30, 300, 3000)]
    assert sizes[0] > sizes[1] > sizes[2] >= 1


def test_non_inferior_by_hand():
    """One comparison: the bound is a bootstrap t bound, which for even spread is close to the t quantile."""
    base = rng(1).random(200)
    difference = np.tile([0.0, 0.02], 100)  # mean .01, error ≈ .01/√199 = .00071; t(199, .95) = 1.653
    result = non_inferior(np.stack([base, base - difference]), Smoother(np.eye(2), 1.0), 0.02, rng(2))
    assert (result.leader, result.loss[1]) == (0, pytest.approx(0.01))
    assert result.error[1] == pytest.approx(0.01 / 199**0.5)
    assert result.critical == pytest.approx(1.653, abs=0.12)
    np.testing.assert_allclose(result.bound, [0, 0.01 + result.critical * 0.01 / 199**0.5])
    assert result.members.tolist() == [True, True]
    tight = non_inferior(np.stack([base, base - difference]), Smoother(np.eye(2), 1.0), 0.0105, rng(2))
    assert tight.members.tolist() == [True, False]


def test_non_inferior_degenerate():
    same = non_inferior(np.full((3, 10), 0.4), Smoother(np.eye(3), 1.0), 0.0, rng())
    assert same.members.all()
    assert same.leader == 0
    one = non_inferior(np.array([[0.5], [0.5], [0.499]]), Smoother(np.eye(3), 1.0), 0.1, rng())
    assert one.members.tolist() == [True, True, False]  # one query shows nothing


def test_non_inferior_bounds_hold_simultaneously():
    """Against a fixed leader, all 19 true losses lie below their bounds in 95 % of samples."""
    repetitions, generator = 250, rng(13)
    means = np.r_[0.9, np.full(19, 0.5)]  # the leader is never in doubt
    held = [
        np.all(
            non_inferior(correlated(means, 60, generator), Smoother(np.eye(20), 1.0), 0.1, generator).bound[1:] >= 0.4
        )
        for _ in range(repetitions)
    ]
    assert 0.95 - 2.5 * (0.05 * 0.95 / repetitions) ** 0.5 <= np.mean(held) < 0.995


def test_everything_that_resamples_is_a_function_of_its_generator():
    table, (_, smoother) = rng(1).random((6, 40)), smooth(rng(1).random((6, 40)), np.ones((6, 1)))
    for run in (
        lambda g: mean_intervals(table[:1], g).tolist(),
        lambda g: confidence_set(table, g).tolist(),
        lambda g: non_inferior(table, smoother, 0.02, g).bound.tolist(),
        lambda g: randomisation_test(table[0], table[1], g),
    ):
        assert run(rng(3)) == run(rng(3))
    assert (mean_intervals(table[:1], rng(3)) != mean_intervals(table[:1], rng(4))).any()
    assert len({randomisation_test(table[0], table[1], rng(seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    table = np.array([[0.1, 0.2], [0.3, bad]])
    with pytest.raises(ValueError, match="configuration 1, query 1"):
        confidence_set(table, rng())
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_means(np.empty((0, 3)), 10, rng())
