"""What scores on a sample of queries say about scores on all queries: intervals, paired tests, sets of configurations.

Tests of a pair come with their adjustment for many pairs and with the number of queries that a difference needs.

    C, Q, B     configurations, scored queries, bootstrap draws
    table       float64 (C, Q): the score of each configuration on each query; rows are paired by their queries
    t           a mean difference over its standard error
    level       confidence, 0 < level < 1

All resampling is of whole queries (columns), so that what configurations have in common stays in every draw. Every
function that resamples takes a generator and is a function of it. A table with NaN or infinity is a ValueError.

Critical values over many comparisons are max-t quantiles over bootstrap draws (Romano and Wolf 2005, Econometrica
73:1237), which know how strongly the comparisons hang together. They do not know that each standard error is itself an
estimate, which matters at 30 queries and 200 rivals (coverage 93 % for 95 %); so each draw of each comparison is
divided by a root of χ²/(Q − 1), as Student's t is made.
"""

__all__ = [
    "NonInferior",
    "PairedDifference",
    "Smoother",
    "bootstrap_means",
    "confidence_set",
    "holm",
    "mean_intervals",
    "non_inferior",
    "paired_difference",
    "queries_needed",
    "randomisation_test",
    "smooth",
]

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

DRAWS = 2000
EQUAL = 1e-6  # scores closer than this are the same score
BLOCK = 1 << 22  # numbers held at once while resampling


def bootstrap_means(table: Floats, n_boot: int, rng: np.random.Generator) -> Floats:
    """Means of each configuration over queries drawn with replacement: float64 (n_boot, C).

    All configurations see the same draws. They are a product of a matrix of counts and the table, so that no array of
    draws × configurations × queries exists.
    """
    table = _checked(table)
    n = table.shape[1]
    means = np.empty((n_boot, table.shape[0]))
    step = max(1, BLOCK // n)
    for start in range(0, n_boot, step):
        rows = min(step, n_boot - start)
        drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        means[start : start + rows] = (counts / n) @ table.T
    return means


def mean_intervals(table: Floats, rng: np.random.Generator, *, level: float = 0.95, n_boot: int = 5 * DRAWS) -> Floats:
    """Bias-corrected and accelerated bootstrap interval of the mean of each row: float64 (C, 2), low and high.

    Source: Efron 1987, JASA 82:171; the acceleration of a mean is its skewness over 6 √Q. A row of constant scores
    gives (value, value); one query says nothing about the spread and gives (nan, nan).
    """
    table = _checked(table)
    means = table.mean(axis=1)
    intervals = np.stack([means, means], axis=1)
    if table.shape[1] == 1:
        return np.full_like(intervals, np.nan)
    spread = np.ptp(table, axis=1) > EQUAL
    if not spread.any():
        return intervals
    all_draws = bootstrap_means(table[spread], n_boot, rng)
    tails = special.ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    for row, draws in zip(np.flatnonzero(spread), all_draws.T, strict=True):
        deviations = table[row] - means[row]
        acceleration = np.sum(deviations**3) / (6 * np.sum(deviations**2) ** 1.5)
        below = (np.mean(draws < means[row]) + np.mean(draws <= means[row])) / 2
        bias = special.ndtri(np.clip(below, 0.5 / n_boot, 1 - 0.5 / n_boot))
        z = bias + tails
        intervals[row] = np.quantile(draws, special.ndtr(bias + z / (1 - acceleration * z)))
    return intervals


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """a − b over the same queries: mean with its interval, two-sided p, and on how many queries each was better.

    effect_size is Cohen's d of paired samples, d_z: the mean over the standard deviation (ddof 1) of the differences
    (Cohen 1988, Statistical Power Analysis, 2nd edition, 48).
    """

    mean: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int
    effect_size: float


def paired_difference(a: Floats, b: Floats, *, level: float = 0.95) -> PairedDifference:
    """Compare scores `a` and `b` (Q,) of two configurations on the same queries by the paired t-test.

    A difference without spread has no t: equal scores give p = 1 and effect size 0, a constant difference gives
    p = 2^(1−Q), what an exact sign test gives, and effect size ±∞. With one query, p, the interval and the effect size
    are nan. Shapes that differ are a ValueError.
    """
    d = _differences(a, b)
    n, mean = len(d), float(d.mean())
    ahead = (int(np.sum(d > EQUAL)), int(np.sum(np.abs(d) <= EQUAL)), int(np.sum(d < -EQUAL)))
    if n == 1:
        return PairedDifference(mean, float("nan"), float("nan"), float("nan"), *ahead, float("nan"))
    if np.ptp(d) <= EQUAL:
        if abs(mean) <= EQUAL:
            return PairedDifference(mean, mean, mean, 1.0, *ahead, 0.0)
        return PairedDifference(mean, mean, mean, 2.0 ** (1 - n), *ahead, float(np.copysign(np.inf, mean)))
    deviation = float(d.std(ddof=1))
    error = deviation / n**0.5
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * error
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error))
    return PairedDifference(mean, mean - half, mean + half, p, *ahead, mean / deviation)


def randomisation_test(a: Floats, b: Floats, rng: np.random.Generator, *, n_resamples: int = 9999) -> float:
    """Two-sided p of the paired randomisation test of the mean difference of scores `a` and `b` (Q,).

    p is the share of sign patterns of the differences whose mean is at least as far from 0; ties have no sign and drop
    out. Exact when the others have at most `n_resamples` patterns, else from that many random ones and the observed
    one. Equal scores give 1, and so does a single query: its two patterns are equally extreme. Shapes that differ are a
    ValueError.

    Source: Fisher 1935, The Design of Experiments; for retrieval Smucker, Allan and Carterette 2007, CIKM, 623.
    """
    from scipy.stats import permutation_test  # slow to import

    d = _differences(a, b)
    d = d[np.abs(d) > EQUAL]
    if len(d) < 2:
        return 1.0
    observed = abs(d.sum()) - 1e-9 * np.abs(d).sum()  # sums that differ by rounding alone are equal

    def extreme(signed: Floats, axis: int) -> Floats:
        return np.where(np.abs(signed.sum(axis=axis)) >= observed, 1.0, 0.0)

    with np.errstate(over="ignore"):  # SciPy 1.14 counts the patterns as a float
        result = permutation_test(
            (d,),
            extreme,
            permutation_type="samples",
            vectorized=True,
            n_resamples=n_resamples,
            batch=max(1, BLOCK // (4 * len(d))),  # it holds each pattern as indices and values, twice each
            alternative="greater",
            random_state=rng,  # SciPy 1.14 does not know its new name, rng
        )
    return float(result.pvalue)


def holm(p: Floats) -> Floats:
    """p-values (n,) adjusted for being n, in the order given: those at most α are rejected with family-wise error α.

    The i-th smallest is multiplied by n − i + 1, is at least the one before and at most 1. No assumption on how the
    tests hang together. ValueError for values that are not between 0 and 1. Source: Holm 1979, Scandinavian Journal of
    Statistics 6:65.
    """
    if p.ndim != 1:
        raise ValueError(f"p-values need one dimension; got shape {p.shape}")
    if (wrong := np.flatnonzero(~((p >= 0) & (p <= 1)))).size:
        raise ValueError(f"p-value {wrong[0]}: {p[wrong[0]]} is not between 0 and 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def queries_needed(difference: float, deviation: float, *, power: float = 0.8, level: float = 0.95) -> int:
    """The least number of queries with which the two-sided paired t-test shows a mean `difference` with that `power`.

    deviation: standard deviation of the difference from query to query, above 0. Shown is p < 1 − level, whatever the
    sign. At least 2; exact for normal differences, by the noncentral t (Cohen 1988, Statistical Power Analysis, 2nd
    edition, chapter 2). ValueError for numbers out of range, a difference below a ten-millionth of the deviation among
    them: it would take 10¹⁵ queries.
    """
    if not (np.isfinite([difference, deviation]).all() and deviation > 0):
        raise ValueError(f"difference {difference} and deviation {deviation} must be finite, the deviation above 0")
    if not (0 < power < 1 and 0 < level < 1):
        raise ValueError(f"power {power} and level {level} must lie between 0 and 1")
    effect = abs(difference) / deviation
    if effect < 1e-7:
        raise ValueError(f"difference {difference} is 0 or vanishes beside deviation {deviation}; at least 1e-7 of it")

    def reached(n: int) -> float:
        critical = float(special.stdtrit(n - 1, (1 - level) / 2))
        tails = special.nctdtr(n - 1, effect * n**0.5, [critical, -critical])  # nan where less than 1e-10
        below, not_above = np.nan_to_num(tails).tolist()
        return float(1 - not_above + below)

    high = 2
    while reached(high) < power:
        high *= 2
    return bisect_left(range(high), power, lo=2, key=reached)


@dataclass(frozen=True, slots=True)
class Smoother:
    """The linear map S = w I + (1 − w) P with P = basis basisᵀ: shrinks values of C configurations toward a model.

    basis is float64 (C, rank) with orthonormal columns; weight is w, from 0 (the model alone) to 1 (no shrinking).
    """

    basis: Floats
    weight: float

    def __call__(self, values: Floats) -> Floats:
        """S values, for values (C,) or (C, anything); costs C × rank for each column, and never forms C × C."""
        return self.weight * values + (1 - self.weight) * (self.basis @ (self.basis.T @ values))


def smooth(table: Floats, design: Floats) -> tuple[Floats, Smoother]:
    """Shrink the mean scores toward the column space of `design` (C, p): the estimates (C,) and the map to them.

    With m the means, r = (I − P) m and V the covariance of m over queries (paired, over Q), the weight of r is
    max(0, 1 − tr((I−P) V (I−P)) / Σ r²): the share of the residual that noise does not explain (empirical Bayes; Efron
    and Morris 1973, JASA 68:117). Rank deficiency of the design is no matter. One query shows no noise: the weight is
    0.
    """
    table = _checked(table)
    if design.ndim != 2 or len(design) != len(table):
        raise ValueError(f"the design needs a row for each of {len(table)} configurations; got shape {design.shape}")
    left, singular, _ = np.linalg.svd(design.astype(np.float64), full_matrices=False)
    basis = left[:, singular > singular.max(initial=0) * max(design.shape) * np.finfo(np.float64).eps]
    n, means = table.shape[1], table.mean(axis=1)
    residual = means - basis @ (basis.T @ means)
    signal = float(residual @ residual)
    if n == 1 or signal <= len(table) * EQUAL**2:
        return (smoother := Smoother(basis, 0.0))(means), smoother
    centred = table - means[:, None]
    centred -= basis @ (basis.T @ centred)
    noise = float(np.sum(centred**2)) / (n * (n - 1))
    smoother = Smoother(basis, max(0.0, 1 - noise / signal))
    return smoother(means), smoother


def confidence_set(
    table: Floats, rng: np.random.Generator, *, level: float = 0.95, n_boot: int = DRAWS
) -> NDArray[np.bool_]:
    """Which configurations may have the best mean over all queries: bool (C,). The best one is among them with `level`.

    A configuration is out when some rival is shown to be better: when its greatest paired t exceeds the max-t quantile
    over its rivals, so that the best is lost with a chance of at most 1 − level however many rivals it has. Where
    several are equally best, this holds for each of them. Rivals that are clearly worse than a configuration do not
    count, at the price of a tenth of 1 − level. With one query nothing is shown, and all are in.

    Sources: multiple comparisons with the best (Hsu 1984, Annals of Statistics 12:1136) with bootstrap critical values
    as in Mogstad, Romano, Shaikh and Wilhelm 2024 (Review of Economic Studies 91:476); clearly worse rivals by the
    first step of Romano, Shaikh and Wolf 2014 (Econometrica 82:1979).
    """
    table = _checked(table)
    c, n = table.shape
    if n == 1 or c == 1:
        return np.ones(c, dtype=np.bool_)
    t, error = _paired_t(table, 1 - level)
    first = (1 - level) / 10
    second = 1 - level - first
    rivals = (t > special.stdtrit(n - 1, first / (c - 1))) & (error > 0)
    greatest = t.max(axis=1)
    bonferroni = -special.stdtrit(n - 1, second / np.maximum(rivals.sum(axis=1), 1))  # never less strict than max-t
    kept: NDArray[np.bool_] = greatest <= bonferroni
    deviations, factors = _draws(table - table.mean(axis=0), n_boot, rng)  # what all share falls out of differences
    for i in np.flatnonzero(kept & (greatest > -special.stdtrit(n - 1, second))):
        others = np.flatnonzero(rivals[i])
        scaled = deviations[others]  # a copy, worked on in place: this loop is where the time goes
        scaled -= deviations[i]
        scaled *= factors[others]
        scaled /= error[i, others, None].astype(np.float32)
        kept[i] = greatest[i] <= np.quantile(scaled.max(axis=0), 1 - second)
    return kept


def _paired_t(table: Floats, alpha: float) -> tuple[Floats, Floats]:
    """How far j is ahead of i in standard errors, [i, j], and the standard errors: both (C, C).

    Identical configurations have t = 0 and error 0. A constant difference has no standard error: its t is infinite
    where an exact sign test over all rivals would show it, else 0.
    """
    c, n = table.shape
    means = table.mean(axis=1)
    ahead = means - means[:, None]
    centred = table - means[:, None]
    covariance = centred @ centred.T / (n * (n - 1))
    total = np.diag(covariance)[:, None] + np.diag(covariance)
    squared = total - 2 * covariance
    error = np.sqrt(np.where(squared > 1e-12 * total, squared, 0.0))
    constant = np.inf if (c - 1) * 0.5**n <= alpha else 0.0
    certain = np.zeros_like(ahead)
    certain[ahead > EQUAL], certain[ahead < -EQUAL] = constant, -constant
    return np.divide(ahead, error, out=certain, where=error > 0), error


def _draws(table: Floats, n_boot: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Bootstrap deviations of the means, and the factors that make them vary as Student's t does: both (C, B)."""
    c, n = table.shape
    deviations = bootstrap_means(table - table.mean(axis=1, keepdims=True), n_boot, rng).T
    deviations = deviations * (n / (n - 1)) ** 0.5  # a resampled mean varies by (n − 1)/n of the unbiased variance
    factors = np.sqrt((n - 1) / rng.chisquare(n - 1, size=(c, n_boot)))
    return np.ascontiguousarray(deviations, dtype=np.float32), factors.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class NonInferior:
    """Smoothed losses against the smoothed maximum.

    leader is the row of the maximum, the first where several are equal; loss, error and bound are float64 (C,): the
    estimated loss, its standard error, and what it is at most, simultaneously; critical is the number of errors between
    loss and bound; members is bool (C,): bound ≤ tolerance.
    """

    leader: int
    loss: Floats
    error: Floats
    critical: float
    bound: Floats
    members: NDArray[np.bool_]


def non_inferior(
    table: Floats,
    smoother: Smoother,
    tolerance: float,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    n_boot: int = DRAWS,
) -> NonInferior:
    """Which configurations are shown to lose at most `tolerance` against the maximum of the smoothed means.

    Upper bounds of the smoothed losses hold simultaneously with `level`, by the max-t bootstrap over queries; the
    smoother is held fixed. With one query, only what equals the maximum is a member.
    """
    smoothed = smoother(_checked(table))
    n = smoothed.shape[1]
    estimates = smoothed.mean(axis=1)
    leader = int(np.flatnonzero(estimates >= estimates.max() - EQUAL)[0])
    difference = smoothed[leader] - smoothed
    loss = difference.mean(axis=1)
    varies = np.ptp(difference, axis=1) > EQUAL
    if n == 1:
        bound = np.where(loss <= EQUAL, loss, np.inf)
        return NonInferior(leader, loss, np.full(len(loss), np.inf), np.inf, bound, bound <= tolerance + EQUAL)
    error = np.where(varies, difference.std(axis=1, ddof=1) / n**0.5, 0.0)
    critical = 0.0
    if varies.any():
        deviations, factors = _draws(difference[varies], n_boot, rng)
        critical = float(np.quantile((-deviations * factors / error[varies, None]).max(axis=0), level))
    bound = loss + max(critical, 0.0) * error
    return NonInferior(leader, loss, error, critical, bound, bound <= tolerance + EQUAL)


def _checked(table: Floats) -> Floats:
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"scores need at least one configuration and one query; got shape {table.shape}")
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise ValueError(f"configuration {row}, query {column}: score {table[row, column]} is not finite; drop the row")
    return table


def _differences(a: Floats, b: Floats) -> Floats:
    if a.shape != b.shape:
        raise ValueError(f"scores of the same queries are needed: got shapes {a.shape} and {b.shape}")
    return _checked((a - b)[None]).ravel()
