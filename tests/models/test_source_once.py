"""Stepwise decoding computes the source's keys and values once, with the logits of the whole target at once."""

from typing import Any

import pytest
import torch

from core.attention import AXES, ConfigError
from core.attention.config import needs
from core.decoding.prefix import select_rows
from core.models import ModelConfig, Shape, build_model
from tests.attention.drawing import plain
from tests.cases import each

C, H, S = 24, 3, 7
KINDS = {
    "transformer": lambda choices: ModelConfig.transformer(C, H, 2, **choices),
    "recurrent": lambda choices: ModelConfig.recurrent(
        C, num_heads=H, **{"projection": "multi_head"} | choices
    ),
    "bahdanau": lambda choices: ModelConfig.recurrent(
        C, num_heads=H, feeding="bahdanau", **{"projection": "multi_head"} | choices
    ),
    "hybrid": lambda choices: ModelConfig.recurrent(
        C, kind="hybrid", num_heads=H, **{"projection": "multi_head"} | choices
    ),
}


def build(kind, axis, key):
    """An untrained model of that kind with that choice, and the tokens of each context that its cross-attention
    projects from now on."""
    try:
        config = KINDS[kind]({axis: plain(axis, key)} | needs(axis, key))
        model: Any = build_model(config, Shape(11, 13, 17)).eval()
    except ConfigError:
        pytest.skip("does not go with this model")
    layers, lengths = (
        [layer.cross for layer in model.layers] if kind == "transformer" else [model.attention],
        [],
    )
    for layer in layers:
        layer.projection.register_forward_pre_hook(
            lambda module, given: lengths.append(given[1].shape[1])
        )
    return model, lengths, len(layers)


@each("kind", KINDS)
@each(
    ("axis", "key"),
    [(axis, item.key) for axis in ("projection", "score", "kernel") for item in AXES[axis]],
)
@torch.no_grad()
def test_the_source_is_projected_once(kind, axis, key):
    """Of padded sources, whose rows are exchanged after the second step, as a beam search does."""
    model, lengths, layers = build(kind, axis, key)
    source, mask = torch.randint(4, 11, (2, S)), torch.arange(S) < torch.tensor([[S], [5]])
    tokens, rows, logits = torch.randint(4, 13, (2, 5)), torch.tensor([1, 0]), []
    memory = model.encode(source, mask)
    whole = model.decode(memory, tokens).logits
    lengths.clear()
    state = model.start(memory)
    for number, token in enumerate(tokens.unbind(1)):
        if number == 2:
            memory, state = select_rows(memory, rows), select_rows(state, rows)
        one, state, _ = model.step(memory, state, token if number < 2 else token[rows])
        logits.append(one if number < 2 else one[rows])
    torch.testing.assert_close(torch.stack(logits, 1), whole, rtol=1e-4, atol=1e-4)
    assert [length for length in lengths if length] == [S] * layers
