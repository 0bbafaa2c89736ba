"""The Transformer against torch's own layers, and against itself: padding, steps, records, seeds."""

from typing import Any

import pytest
import torch
from torch import nn

from core.attention import AXES
from core.attention.config import needs
from core.entries import Choice, ConfigError
from core.models import Encoder, ModelConfig, Shape, build_model
from core.models.decoding import select_rows
from core.models.transformer import DecoderLayer, EncoderLayer
from tests.attention.drawing import plain
from tests.cases import each

C, HEADS, D_FF, B, T, S = 21, 3, 13, 5, 7, 11
FIRST = torch.tensor([S, 3, 1, 7, 5])  # real keys in each row


def config(norm="post", **more):
    return ModelConfig.transformer(C, HEADS, layers=2, d_ff=D_FF, norm=norm, **more)


def copy_attention(mine, theirs):
    projection = mine.projection
    with torch.no_grad():
        for i, linear in enumerate((projection.query, projection.key, projection.value)):
            linear.weight.copy_(theirs.in_proj_weight[i * C : (i + 1) * C])
            linear.bias.copy_(theirs.in_proj_bias[i * C : (i + 1) * C])
        projection.output.load_state_dict(theirs.out_proj.state_dict())


def copy_rest(mine, theirs, norms):
    mine.feed_forward.inner.load_state_dict(theirs.linear1.state_dict())
    mine.feed_forward.outer.load_state_dict(theirs.linear2.state_dict())
    for block, norm in norms.items():
        getattr(mine, block).norm.load_state_dict(getattr(theirs, norm).state_dict())


def randomize(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


def compare(mine, theirs, inputs, call_mine, call_theirs, keep):
    """Outputs and the gradients of every input, where `keep` marks real queries."""
    results = []
    for call in (call_mine, call_theirs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = call(*leaves)[keep]
        grads = torch.autograd.grad((out * out.detach().cos()).sum(), leaves)
        results.append((out, *grads))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


@each("record", [False, True])
@each("norm", ["post", "pre"])
def test_encoder_layer_is_torchs(norm, record):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        C, HEADS, D_FF, 0.0, batch_first=True, norm_first=norm == "pre"
    )
    randomize(theirs)
    mine = EncoderLayer(config(norm))
    copy_attention(mine.attention, theirs.self_attn)
    copy_rest(mine, theirs, {"around_attention": "norm1", "around_feed_forward": "norm2"})
    real = torch.arange(S) < FIRST[:, None]
    compare(
        mine,
        theirs,
        [torch.randn(B, S, C)],
        lambda x: mine(x, real, record)[0],
        lambda x: theirs(x, src_key_padding_mask=~real),
        real,
    )


@each("record", [False, True])
@each("norm", ["post", "pre"])
def test_decoder_layer_is_torchs(norm, record):
    torch.manual_seed(1)
    theirs = nn.TransformerDecoderLayer(
        C, HEADS, D_FF, 0.0, batch_first=True, norm_first=norm == "pre"
    )
    randomize(theirs)
    mine = DecoderLayer(config(norm))
    copy_attention(mine.causal, theirs.self_attn)
    copy_attention(mine.cross, theirs.multihead_attn)
    copy_rest(
        mine,
        theirs,
        {"around_causal": "norm1", "around_cross": "norm2", "around_feed_forward": "norm3"},
    )
    real, causal = (
        torch.arange(S) < FIRST[:, None],
        torch.triu(torch.ones(T, T, dtype=torch.bool), 1),
    )
    compare(
        mine,
        theirs,
        [torch.randn(B, T, C), torch.randn(B, S, C)],
        lambda x, m: mine(x, m, real, record=record)[0],
        lambda x, m: theirs(x, m, tgt_mask=causal, memory_key_padding_mask=~real),
        torch.ones(B, T, dtype=torch.bool),
    )


@each("norm", ["post", "pre"])
def test_without_feed_forward_a_layer_is_its_attention_and_nothing_after_it(norm):
    layer = EncoderLayer(ModelConfig.transformer(C, HEADS, d_ff=0, norm=norm))
    x = torch.randn(B, S, C)
    around = layer.around_attention
    attended = layer.attention(around.norm(x) if norm == "pre" else x).merged
    expected = x + attended if norm == "pre" else around.norm(x + attended)
    assert torch.allclose(layer(x)[0], expected, atol=1e-5)
    assert {name.partition(".")[0] for name, _ in layer.named_parameters()} == {
        "attention",
        "around_attention",
    }


def test_encoder_stack_is_torchs():
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(C, HEADS, D_FF, 0.0, batch_first=True, norm_first=True)
    theirs = nn.TransformerEncoder(layer, 2, nn.LayerNorm(C), enable_nested_tensor=False)
    randomize(theirs)
    mine = Encoder(config("pre"))
    mine.norm.load_state_dict(theirs.norm.state_dict())
    for a, b in zip(mine.layers, theirs.layers, strict=True):
        copy_attention(a.attention, b.self_attn)
        copy_rest(a, b, {"around_attention": "norm1", "around_feed_forward": "norm2"})
    x = torch.randn(B, S, C)
    torch.testing.assert_close(mine(x)[0], theirs(x), rtol=1e-4, atol=2e-5)


def test_encoder_is_counted_once():
    encoder = Encoder(config())
    per_layer = 4 * (C * C + C) + (C * D_FF + D_FF) + (D_FF * C + C) + 4 * C
    assert sum(p.numel() for p in encoder.parameters()) == 2 * per_layer
    assert len(encoder.state_dict()) == 2 * 16


def test_padding_mask_and_compositions_can_be_asked_for():
    torch.manual_seed(0)
    source, real = torch.randint(4, 9, (2, 5)), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    for mask in ("padding", Choice.of("and", Choice("padding"), Choice.of("local", window=1))):
        model = build_model(ModelConfig.transformer(8, 2, mask=mask), Shape(9, 9, 8)).eval()
        for keep in (real, torch.ones_like(real)):
            out = model(source, keep, source[:, :3], record=True)
            assert out.logits.shape == (2, 3, 9)
            assert out.logits.isfinite().all()
    far = out.maps["self"][0].weights[0, 0, 0, 2:]
    assert torch.equal(far, torch.zeros_like(far))


# Stepwise decoding computes the source's keys and values once, with the logits of the whole target at once.


ONCE_C, H, ONCE_S = 24, 3, 7
KINDS = {
    "transformer": lambda choices: ModelConfig.transformer(ONCE_C, H, 2, **choices),
    "recurrent": lambda choices: ModelConfig.recurrent(
        ONCE_C, num_heads=H, **{"projection": "multi_head"} | choices
    ),
    "bahdanau": lambda choices: ModelConfig.recurrent(
        ONCE_C,
        num_heads=H,
        feeding="bahdanau",
        **{"projection": "multi_head"} | choices,
    ),
    "hybrid": lambda choices: ModelConfig.recurrent(
        ONCE_C, kind="hybrid", num_heads=H, **{"projection": "multi_head"} | choices
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
    source, mask = (
        torch.randint(4, 11, (2, ONCE_S)),
        torch.arange(ONCE_S) < torch.tensor([[ONCE_S], [5]]),
    )
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
    assert [length for length in lengths if length] == [ONCE_S] * layers
