"""What short convolutions are for: one layer that must compare a token with its neighbour (MQAR, Arora 2023)."""

import torch
import torch.nn.functional as F

from core.attention import Choice, preset
from core.attention.config import AXES
from core.models import ModelConfig, Shape, build_model
from tests.cases import each

PAIRS, WORDS, ROWS, STEPS, PEAK = 4, 8, 64, 200, 1e-2


def texts(rows, generator):
    """Pairs of a key and its value, then every key again in another order, with its value; the values, and where the
    keys before them are."""
    keys = torch.rand(rows, WORDS, generator=generator).argsort(1)[:, :PAIRS]
    values = torch.randint(WORDS, keys.shape, generator=generator) + WORDS
    order = torch.rand(rows, PAIRS, generator=generator).argsort(1)
    answers = values.gather(1, order)
    pairs = [(keys, values), (keys.gather(1, order), answers)]
    text = torch.cat([torch.stack(pair, 2).flatten(1) for pair in pairs], 1)
    return text[:, :-1], answers, torch.arange(2 * PAIRS, 4 * PAIRS - 1, 2)


def recalled(key, projection, seed):
    """The share of values that one layer recalls after STEPS steps."""
    attention = preset(key).config(32, 2).with_(projection=projection)
    torch.manual_seed(seed)
    config = ModelConfig.transformer(
        32, 2, kind="decoder", norm="pre", **{axis: getattr(attention, axis) for axis in AXES}
    )
    shape = Shape(2 * WORDS, 2 * WORDS, 4 * PAIRS, one_vocabulary=True)
    model, data = build_model(config, shape), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), PEAK, fused=True)
    for step in range(STEPS):
        text, answers, asked = texts(ROWS, data)
        logits = model(text, torch.ones_like(text, dtype=torch.bool)).logits[:, asked]
        optimizer.param_groups[0]["lr"] = PEAK * min(1, step / 20) * (1 - 0.9 * step / STEPS)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), answers.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    text, answers, asked = texts(256, data)
    logits = model(text, torch.ones_like(text, dtype=torch.bool)).logits[:, asked]
    return (logits.argmax(-1) == answers).float().mean().item()


@each("key", ["gla", "mamba2", "gated_deltanet"])
def test_one_layer_recalls_with_short_convolutions_and_not_without(key):
    mixed = [recalled(key, "short_conv", seed) for seed in range(3)]
    alone = recalled(key, Choice.of("multi_head", bias=False), 0)
    assert sum(mixed) / 3 > 0.9 and alone < 0.6, f"{mixed}, {alone} alone"
