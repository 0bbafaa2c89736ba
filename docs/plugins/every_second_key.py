"""A mask: each query attends to every second key before it, and to itself."""

from functools import partial

from core.attention import Entry, Param, register


def allows(i, j, stride):
    """Positions of queries, i (T, 1), and of keys, j (1, S), to True where a query may attend."""
    return (j <= i) & ((i - j) % stride == 0)


register(
    "mask",
    Entry(
        "every_second_key",
        "Every second key",
        build=lambda config, parts, **params: partial(allows, **params),
        latex=r"j \le i \wedge (i - j) \bmod s = 0",
        meaning="A query attends to itself and to every second key before it, so half as many keys are read.",
        paper="",
        year=2026,
        params=(
            Param(
                "stride",
                "Stride",
                default=2,
                low=1,
                high=16,
                step=1,
                meaning="distance between the keys that are read",
            ),
        ),
        short="(i−j) mod {stride} = 0",
    ),
)
