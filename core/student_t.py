"""Student's t distribution; scipy.special has it too, and takes a fifth of a second to import."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

MOST_TERMS = 10_000  # of the continued fraction: its number grows with the square root of the degrees of freedom
TINY = 1e-300


def survival(t: float, freedom: float) -> float:
    """P(T > t) for T with so many degrees of freedom, which need not be whole. Abramowitz and Stegun 1964, 26.7.1."""
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=4096)
def quantile(p: float, freedom: float) -> float:
    """The t with P(T ≤ t) = p, by Newton's method; ValueError unless 0.5 ≤ p < 1.

    The density falls beyond 0, so that steps from the normal quantile, which is smaller, never pass the solution.
    """
    if not 0.5 <= p < 1:
        raise ValueError(f"p = {p} is not at least 0.5 and below 1.")
    t, step = NormalDist().inv_cdf(p), math.inf
    while step > 1e-13 * t:
        step = (survival(t, freedom) - (1 - p)) / _density(t, freedom)
        t += step
    return t


def _density(t: float, freedom: float) -> float:
    return math.exp(-_log_beta(freedom / 2, 0.5) - 0.5 * math.log(freedom)
                    - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), by the continued fraction on the side where it converges fast. Press et al. 1992, section 6.4."""
    if x in (0.0, 1.0):
        return x
    factor = math.exp(a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b))
    if x < (a + 1) / (a + b + 2):
        return factor * _fraction(a, b, x) / a
    return 1 - factor * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b) by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, MOST_TERMS):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                     -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1 / _nonzero(1 + term * d), _nonzero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY
