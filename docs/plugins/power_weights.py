"""A normalizer: positive scores to the power 1.5, divided by their sum."""

from functools import partial

from core.attention import Entry, Param, register


def normalize(scores, mask, power):
    """Scores (B, H, T, S) to weights; `mask` is True where a query may attend, or None.

    Masked scores arrive as the least finite number, which relu turns into 0. A formula that does not ignore them, such
    as a mean, has to fill them itself: scores.masked_fill(~mask, 0).
    """
    positive = scores.relu() ** power
    return positive / positive.sum(-1, keepdim=True).clamp(
        min=1e-6
    )  # a row without a positive score is 0


register(
    "normalizer",
    Entry(
        "power_weights",
        "Power weights",
        build=lambda config: partial(normalize, **config.normalizer.kwargs),
        latex=r"w_{ij} = \max(0, s_{ij})^p / \textstyle\sum_k \max(0, s_{ik})^p",
        meaning="Positive scores to a power, divided by their sum: keys with a negative score get no weight at all.",
        paper="",
        year=2026,
        params=(
            Param(
                "power",
                "Power",
                default=1.5,
                low=1.0,
                high=4.0,
                step=0.25,
                meaning="exponent of the positive scores",
            ),
        ),
        short="max(0, s)^{power} / Σ",
        traits=frozenset({"at most one"}),
    ),
)
