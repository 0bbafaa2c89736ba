"""Every entry of every axis, and every pair across axes: what it says of itself, and that it runs or says why not."""

import itertools

import pytest
import torch

from core.attention import AXES, PRESETS, Attention, AttentionConfig, ConfigError, Steps, entry
from tests.attention import covering
from tests.attention.drawing import B, C, H, T, plain, run
from tests.cases import each

ENTRIES = [(axis, e.key) for axis, entries in AXES.items() for e in entries]
TENSORS = (
    "q",
    "k",
    "v",
    "raw",
    "scores",
    "masked",
    "normalized",
    "weights",
    "position_values",
    "out",
    "merged",
)


def finite(x, context, steps):
    assert isinstance(steps, Steps)
    assert steps.merged.shape == (B, T, C)
    assert steps.merged.isfinite().all()
    steps.merged.sum().backward()
    assert x.grad.isfinite().all() and (context is None or context.grad.isfinite().all())


def test_every_pair_is_built_or_refused_by_name():
    """Whatever the two axes, the pair makes a config, or ConfigError names both and a way out."""
    wrong = [
        reason
        for (one, other), reason in covering.pairs().items()
        if reason and not (one[1] in reason and other[1] in reason and "take" in reason)
    ]
    assert not wrong


def failures(rows, **how):
    """The rows whose output or gradient is not finite, and why; what is made for one sequence may refuse two."""
    for row in rows:
        try:
            finite(*run(covering.build(row), add_positions=True, **how))
        except ConfigError as refusal:
            if not how.get("cross") or "take" not in str(refusal):
                yield row, str(refusal)
            elif len(row) > 2:  # not lost: two by two
                yield from failures(itertools.combinations(row, 2), **how)
        except Exception as error:
            yield row, repr(error)


def test_every_pair_runs_on_one_sequence():
    """Each pair that can be built stands in one of these rows at least."""
    rows = covering.rows()
    assert not [*failures(rows), *failures(rows, record=False)]


def test_every_pair_runs_across_two_sequences():
    """The same without the choices that refuse two sequences alone: they would hide the others of their row."""

    def refuses(item):
        try:
            run(covering.build([item]), cross=True, add_positions=True)
        except ConfigError as refusal:
            return "take" in str(refusal)
        return False

    alone = [item for item in ENTRIES if covering.builds([item]) and refuses(item)]
    assert not list(failures(covering.rows(without=alone), cross=True))


@each("dtype", [torch.float64, torch.bfloat16])
@each(("axis", "key"), ENTRIES)
def test_the_dtype_is_kept(axis, key, dtype):
    config = AttentionConfig(C, H, **{axis: plain(axis, key)})
    layer, x = Attention(config, add_positions=True).to(dtype), torch.randn(B, T, C, dtype=dtype)
    for record in (True, False):
        steps = layer(x, key_mask=torch.ones(B, T, dtype=torch.bool), record=record)
        dtypes = {name: t.dtype for name in TENSORS if (t := getattr(steps, name)) is not None}
        assert set(dtypes.values()) == {dtype}, dtypes


@each(("axis", "key"), ENTRIES)
def test_every_entry_computes_in_bfloat16(axis, key):
    """As a run with precision = bf16 calls it: linear maps give halves, and what is added to them may be float32."""
    layer, x = (
        Attention(AttentionConfig(C, H, **{axis: plain(axis, key)})),
        torch.randn(B, T, C, requires_grad=True),
    )
    with torch.autocast("cpu", torch.bfloat16):
        merged = layer(
            x, key_mask=torch.arange(T) < torch.tensor([4, 3])[:, None], record=False
        ).merged
    merged.float().sum().backward()
    assert merged.isfinite().all() and x.grad.isfinite().all()


@each("shape", [(1, 1), (1, 7), (7, 1)])
@each("preset", PRESETS)
def test_presets_at_every_edge(preset, shape):
    queries, keys = shape
    layer = Attention(preset.config(C, H), add_positions=True)
    try:
        steps = layer(torch.randn(1, queries, C), torch.randn(1, keys, C))
    except ConfigError as refusal:
        assert (queries != keys or layer.config.projection.key == "short_conv") and "take" in str(
            refusal
        )
        return
    assert steps.merged.shape == (1, queries, C) and steps.merged.isfinite().all()


@each(("axis", "key"), ENTRIES)
def test_an_entry_says_everything(axis, key):
    item = entry(axis, key)
    assert item.name and item.latex and len(item.meaning) > 20
    assert 2014 <= item.year <= 2030 and (not item.url or item.url.startswith("https://"))
    for param in item.params:
        assert param.meaning and param.name
        assert param.check(param.default, key) == param.default
        if not param.choices and not isinstance(param.default, bool | str):
            assert param.low <= param.default <= param.high and param.step
            for beyond in (param.low - 1, param.high + 1, float("nan"), "x", None):
                with pytest.raises(ConfigError):
                    param.check(beyond, key)


def test_keys_are_unique():
    for axis, entries in AXES.items():
        assert len({e.key for e in entries}) == len(entries), axis
