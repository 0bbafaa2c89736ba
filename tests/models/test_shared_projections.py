"""Projections that mix tokens or layers, as an author writes them: convolved keys, and value residuals in a stack."""

import pytest
import torch

from core.attention import AXES, Attention, AttentionConfig, Entry, register
from core.attention.basics import MultiHead, split_heads
from core.models.base import Shape
from core.models.config import ModelConfig
from core.models.transformer import Decoder, TransformerSeq2Seq
from tests.attention.drawing import perturbed
from tests.cases import each

B, T, C, H, V = 2, 9, 24, 3, 11


class ConvolvedKeys(MultiHead):
    """Each key is the mean of its own map and that of the token before it."""

    reads_key_mask = True

    def __init__(self, config):
        super().__init__(config.d_model, config.num_heads, True)

    def forward(self, x, context, offset=0, key_mask=None):
        keys = self.key(context)
        if key_mask is not None:
            keys = keys * key_mask.unsqueeze(-1)
        keys = (keys + torch.nn.functional.pad(keys, (0, 0, 1, 0))[:, :-1]) / 2
        return (
            self.queries(x),
            split_heads(keys, self.num_heads),
            split_heads(self.value(context), self.num_heads),
        )

    def extend(self, x, stored, offset, key_mask=None, **_):
        q, k, v = self(x, x, offset)
        before = stored[2] if stored else torch.zeros_like(x[:, :1])
        k[:, :, 0] += (
            split_heads((self.key(before) if stored else before), self.num_heads)[:, :, 0] / 2
        )
        if stored:
            k, v = torch.cat((stored[0], k), 2), torch.cat((stored[1], v), 2)
        return q, k, v, (k, v, x[:, -1:])


class ValueResidual(MultiHead):
    """v = λ₁ v + λ₂ v of the first layer. Zhou et al. 2024 (2410.17897), equation 5."""

    shares = True

    def __init__(self, config):
        super().__init__(config.d_model, config.num_heads, False)
        self.share = torch.nn.Parameter(torch.tensor([0.5, 0.5]))

    def forward(self, x, context, offset=0, shared=None):
        q, k, v = super().forward(x, context, offset)
        if self.layer == 0:
            shared["values"] = v
            return q, k, v
        return q, k, self.share[0] * v + self.share[1] * shared["values"]


@pytest.fixture
def axes():
    before = list(AXES["projection"])
    for key, build in (("convolved_keys", ConvolvedKeys), ("value_residual", ValueResidual)):
        register(
            "projection",
            Entry(
                key,
                key,
                build,
                "x",
                "A projection of an author, for the tests.",
                "",
                2026,
                traits=frozenset({"one sequence"}),
            ),
        )
    yield
    AXES["projection"].entries[:] = before


@each("side", ["left", "right"])
@each("record", [True, False])
def test_convolved_keys_do_not_feel_padding(axes, side, record):
    layer = perturbed(Attention(AttentionConfig(C, H, projection="convolved_keys"))).double()
    x, real = torch.randn(B, T, C, dtype=torch.float64), torch.ones(B, T, dtype=torch.bool)
    parts = [(torch.randn(B, 4, C, dtype=torch.float64), ~real[:, :4]), (x, real)][
        :: 1 if side == "left" else -1
    ]
    padded, key_mask = (torch.cat(one, 1) for one in zip(*parts, strict=True))
    out = layer(padded, key_mask=key_mask, record=record).merged[key_mask].view_as(x)
    torch.testing.assert_close(out, layer(x, record=record).merged)


def stack(kind="decoder", **more):
    config = ModelConfig.transformer(
        C, H, 3, 2 * C, kind=kind, norm="pre", position="rope", projection="value_residual", **more
    )
    return config, Shape(V, V, 2 * T, one_vocabulary=True)


def by_hand(model, tokens):
    """The stack written out, with every layer's values and those of the first."""
    x, first = model.target(tokens), None
    for layer in model.layers:
        read, own = layer.around_causal.enter(x), layer.causal
        q, k, v = (
            split_heads(getattr(own.projection, name)(read), H)
            for name in ("query", "key", "value")
        )
        share = own.projection.share
        first, v = (v, v) if first is None else (first, share[0] * v + share[1] * first)
        q, k = (own.position.rotate(one, 0, tokens.shape[1]) for one in (q, k))
        scores = (q @ k.mT * (C // H) ** -0.5).masked_fill(
            torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf
        )
        out = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = layer.around_causal.leave(x, own.projection.output(out))
        x = layer.around_feed_forward.wrap(x, layer.feed_forward)
    return model.output(model.norm(x))


def test_value_residuals_in_a_stack_are_those_written_by_hand(axes):
    model = perturbed(Decoder(*stack()).double().eval())
    tokens = torch.randint(V, (B, T))
    theirs, real = by_hand(model, tokens), torch.ones(B, T, dtype=torch.bool)
    assert [layer.causal.projection.layer for layer in model.layers] == [0, 1, 2]
    for record in (True, False):
        torch.testing.assert_close(model(tokens, real, record=record).logits, theirs)
    state, steps = model.start(None), []
    for part in tokens.split((4, 1, 3, 1), dim=1):
        logits, state, _ = model.read(None, state, part, False)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), theirs)
    gradients = []
    for recompute in (False, True):
        model.checkpointing = recompute
        model.zero_grad()
        model(tokens, real).logits.square().sum().backward()
        gradients.append(
            [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        )
    torch.testing.assert_close(*gradients)


def test_an_encoder_and_a_decoder_have_a_first_layer_each(axes):
    config, shape = stack("transformer")
    model = perturbed(TransformerSeq2Seq(config, shape).double().eval())
    tokens, real = torch.randint(V, (B, T)), torch.ones(B, T, dtype=torch.bool)
    assert model(tokens, real, tokens).logits.isfinite().all()
    assert model.layers[1].cross.config.projection.key == "multi_head"
    with torch.no_grad():
        model.encoder.layers[0].attention.projection.value.weight.zero_()
        encoded = model.encode(tokens, real).states
        model.encoder.layers[1].attention.projection.share[1] = 0
        model.encoder.layers[2].attention.projection.share[1] = 0
    torch.testing.assert_close(model.encode(tokens, real).states, encoded)
