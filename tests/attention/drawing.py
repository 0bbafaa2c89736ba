"""Configs drawn from the entries themselves, so that a new entry is tested by every property without a word more."""

import itertools
from collections.abc import Collection
from functools import cache

import torch
from hypothesis import assume, strategies as st

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError
from core.attention.config import EXAMPLE_PARTS, example, example_config

B, T, S, C, H = 2, 5, 7, 24, 3
FITTING = {"grouped_query": {"kv_heads": 1}}  # what must follow from H, which two do not divide
Item = tuple[str, str]  # axis, key
ENTRIES: list[Item] = [(axis, entry.key) for axis, entries in AXES.items() for entry in entries]


def plain(axis, key):
    """A choice with its defaults; a composed mask gets parts."""
    return example(axis, key, **FITTING.get(key, {}))


def config_of(axis, key, heads=H):
    """The config of a choice with its defaults, and beside it what it needs."""
    return example_config(axis, key, C, heads, **FITTING.get(key, {}))


def perturbed(layer):
    """The layer with every weight moved: what begins at zero, or as the identity, would hide what it does."""
    with torch.no_grad():
        for weight in layer.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return layer


def run(config, cross=False, record=True, **how):
    """The layer of a config on random inputs, the second item of the batch shorter where the mask asks for padding."""
    x = torch.randn(B, T, C, requires_grad=True)
    context = torch.randn(B, S, C, requires_grad=True) if cross else None
    key_mask = (
        (torch.arange(S if cross else T) < torch.tensor([4, 3])[:, None])
        if "padding" in str(config.mask)
        else None
    )
    return x, context, Attention(config, **how)(x, context, key_mask=key_mask, record=record)


def read_in_parts(layer, x, parts=(4, 1, 3, 1, 2), key_mask=None, record=False):
    """The output of a text that comes in parts (a prefill, tokens alone or together), and the cache after the last."""
    cache, outs = None, []
    masks = [None] * len(parts) if key_mask is None else key_mask.split(parts, dim=1)
    for part, real in zip(x.split(parts, dim=1), masks, strict=True):
        steps, cache = layer.step(part, cache, record, key_mask=real)
        outs.append(steps.merged)
    return torch.cat(outs, 1), cache


def positioned(config):
    """A layer whose positions do something: what starts at zero would hide what it does."""
    layer = Attention(config, add_positions=True)
    for weight in layer.position.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return layer


def value_of(param):
    if isinstance(param.default, str) and not param.choices:
        return st.just(param.default)
    if param.choices:
        return st.sampled_from(param.choices)
    if isinstance(param.default, bool):
        return st.booleans()
    if isinstance(param.default, int):
        # a table must reach the inputs' end
        low = max(int(param.low), S) if param.key == "max_len" else int(param.low)
        return st.integers(low, max(low, min(int(param.high), 64)))
    return st.floats(max(param.low, 0.05), min(param.high, 1e4))


def choices(axis, entries):

    def fill(entry):
        return st.fixed_dictionaries({param.key: value_of(param) for param in entry.params}).map(
            lambda params: Choice.of(entry.key, **params)
        )

    return st.sampled_from(entries).flatmap(fill)


def masks():
    return st.recursive(
        choices("mask", [entry for entry in AXES["mask"] if entry.key not in EXAMPLE_PARTS]),
        lambda part: st.one_of(
            part.map(lambda p: Choice.of("not", p)),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(part, min_size=1, max_size=3)).map(
                lambda pair: Choice.of(pair[0], *pair[1])
            ),
        ),
        max_leaves=4,
    )


@st.composite
def configs(draw, **fixed):
    """Up to three axes chosen at random besides those fixed, the others as they are by default."""
    axes = draw(
        st.lists(
            st.sampled_from([axis for axis in AXES if axis not in fixed]), max_size=3, unique=True
        )
    )
    chosen = {
        axis: draw(masks() if axis == "mask" else choices(axis, AXES[axis])) for axis in axes
    } | fixed
    try:
        return AttentionConfig(C, draw(st.sampled_from([1, 2, 3, 4, 6])), **chosen)
    except ConfigError:
        assume(False)


# Few configs in which every pair of choices across two axes that can go together stands at least once.


def build(items: Collection[Item]) -> AttentionConfig:
    return AttentionConfig(C, H, **{axis: plain(axis, key) for axis, key in items})


@cache
def pairs() -> dict[tuple[Item, Item], str | None]:
    """Every pair of choices of two axes, and the sentence that refuses it."""
    refusals: dict[tuple[Item, Item], str | None] = {}
    for pair in itertools.combinations(ENTRIES, 2):
        if pair[0][0] != pair[1][0]:
            try:
                build(pair)
                refusals[pair] = None
            except ConfigError as refusal:
                refusals[pair] = str(refusal)
    return refusals


def rows(without: Collection[Item] = ()) -> list[tuple[Item, ...]]:
    """A covering array of strength two, greedy and deterministic, over the choices that are not in `without`."""
    fits = {
        frozenset(pair)
        for pair, refusal in pairs().items()
        if refusal is None and not set(pair) & set(without)
    }
    left, array = dict.fromkeys(pair for pair in pairs() if frozenset(pair) in fits), []
    while left:
        row = list(next(iter(left)))
        for axis in AXES:
            fitting = [
                item
                for item in ENTRIES
                if item[0] == axis and all(frozenset((item, other)) in fits for other in row)
            ]
            new = {
                item: sum((a, b) in left or (b, a) in left for a in (item,) for b in row)
                for item in fitting
            }
            for item in sorted(new, key=new.get, reverse=True)[:4]:
                if new[item] and builds([*row, item]):
                    row.append(item)
                    break
        for pair in itertools.permutations(row, 2):
            left.pop(pair, None)
        array.append(tuple(row))
    return array


def builds(items: Collection[Item]) -> bool:
    try:
        build(items)
    except ConfigError:
        return False
    return True
