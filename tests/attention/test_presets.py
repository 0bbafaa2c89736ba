"""Presets: each builds at many sizes, runs, survives JSON, stands in order of year, and says what it changed."""

import json

import pytest
import torch

from core.attention import (
    AXES,
    PRESETS,
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    entry,
    preset,
)
from core.attention.presets.base import AXIS_NAMES, name, sentence
from tests.cases import each

EACH = each("item", PRESETS)
USUAL = preset("vaswani").config()


@EACH
@each(("size", "heads"), [(24, 1), (24, 3), (64, 4), (64, 8), (60, 5)])
def test_builds_runs_and_survives_json(item, size, heads):
    config = item.config(size, heads)
    assert AttentionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    for record in (True, False):
        merged = Attention(config, add_positions=True)(
            torch.randn(2, 7, size), record=record
        ).merged
        assert merged.shape == (2, 7, size) and merged.isfinite().all()


def test_in_order_of_year():
    years = [item.year for item in PRESETS]
    assert years == sorted(years) and years[0] == 2014
    assert (
        len({item.key for item in PRESETS}) == len({item.name for item in PRESETS}) == len(PRESETS)
    )


def test_no_two_are_the_same():
    configs = [item.config(64, 8) for item in PRESETS]
    assert len(set(configs)) == len(configs)


@EACH
def test_says_what_it_changed_and_only_that(item):
    config, sentences = item.config(), item.changed()
    usual = USUAL.with_(num_heads=config.num_heads)
    axes = [axis for axis in AXES if getattr(config, axis) != getattr(usual, axis)]
    assert bool(sentences) == (item.key != "vaswani")
    if not sentences:
        return
    own_places = any(config.has(axis, "own positions") for axis in ("projection", "kernel"))
    *changes, own = sentences
    assert own == item.meaning and own.endswith(".")
    assert [change.split(":")[0] for change in changes] == [AXIS_NAMES[axis] for axis in axes]
    for axis, change in zip(axes, changes, strict=True):
        assert name(axis, getattr(config, axis)) in change or axis == "position" and own_places
        assert change.endswith(".")


def test_a_kernel_or_projection_with_places_of_its_own_is_said():
    """Order is not invisible to it, though the axis of positions has none."""
    for key, owner in (
        ("gated_deltanet", "Gated delta rule"),
        ("minimax", "Retention"),
        ("deepseek_v2", "Latent"),
    ):
        sentence = next(
            sentence for sentence in preset(key).changed() if sentence.startswith("Positions")
        )
        assert sentence.startswith(f"Positions: only those of {owner}")
    assert "RoPE" in preset("retnet").changed()[1]


def test_the_sentences_come_from_the_entries():
    sentences = preset("alibi").changed()
    assert (
        sentences[0]
        == f"Positions: ALiBi instead of Sinusoidal. {entry('position', 'alibi').meaning}"
    )
    assert sentences[1] == f"Masks: Causal. {entry('mask', 'causal').meaning}"


def test_parameters_are_said_where_they_differ():
    plain = USUAL.with_(projection=Choice.of("multi_head", bias=False)).projection
    assert sentence("projection", USUAL.projection, plain) == "Projections: Multi-head, with bias."
    yarn = preset("gpt_oss").config().position
    assert (
        name("position", yarn, full=True) == "YaRN (factor 32, original length 4,096, base 150,000)"
    )
    both = Choice.of("and", Choice("causal"), Choice.of("local", window=5))
    assert name("mask", both, full=True) == "Causal and Local window (window 5)"


def test_numbers_follow_the_sizes():
    assert [preset("llama3").config(64, heads).kv_heads for heads in (1, 2, 4, 8, 16)] == [
        1,
        1,
        1,
        2,
        4,
    ]
    assert (
        preset("mistral").config(60, 6).kv_heads == 1
        and preset("gemma2").config(60, 6).kv_heads == 3
    )
    latent = preset("deepseek_v2").config(64, 8).projection
    assert (latent["latent"], latent["rope"]) == (32, 4)
    with pytest.raises(ConfigError, match="num_heads = 5 does not divide d_model = 64"):
        preset("llama3").config(64, 5)


def test_an_unknown_key_lists_those_there_are():
    with pytest.raises(ConfigError, match="preset = 'nobody'; expected one of bahdanau, .*gpt_oss"):
        preset("nobody")
