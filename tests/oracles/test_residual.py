"""What stands between layers against fla's attention over depth and Sinkhorn, and DeepSeek-V4's hyper-connections."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config

from core.entries import ConfigError
from core.models import ModelConfig, Shape, build_model
from core.models.transformer import DepthAttention, StreamMixing, sinkhorn
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, fla, put

B, T, C, N, V = 3, 5, 9, 7, 11
SHAPE = Shape(V, V, 10, one_vocabulary=True)
KINDS = [("attention", 4), ("hyper", 3)]


def perturbed(module):
    torch.manual_seed(0)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.4)
    return module


def decoder(**more):
    config = ModelConfig.transformer(C, 3, 3, 10, kind="decoder", position="alibi", **more)
    return perturbed(build_model(config, SHAPE))


def given():
    return torch.randint(4, V, (B, T)), torch.ones(B, T, dtype=torch.bool)


def test_attention_over_depth_is_flas():
    ours, outputs = perturbed(DepthAttention(C)), torch.randn(B, T, N, C, requires_grad=True)
    norm = ours.weight
    theirs, weights = fla("attnres", "naive_attnres")(
        ours.query, [v.contiguous() for v in outputs.unbind(2)], norm, return_weights=True
    )
    read, own = ours(outputs)
    assert_close(own, weights.movedim(0, -1))
    assert_close(own.sum(-1), torch.ones(B, T))
    agree(read, theirs, [outputs, ours.query, norm])


def test_sinkhorn_is_flas_and_gives_rows_and_columns_that_sum_to_one():
    logits = torch.randn(B, T, 3, 3, requires_grad=True)
    ours = sinkhorn(logits)
    agree(ours, fla("utils/sinkhorn", "naive_sinkhorn")(logits), [logits])
    assert_close(ours.sum(-1), torch.ones(B, T, 3))
    assert_close(ours.sum(-2), torch.ones(B, T, 3), 1e-4)


def hyper_connection(own: StreamMixing):
    """DeepSeek-V4's, with those weights; its matrix is ours transposed."""
    n = own.sizes[0]
    config = DeepseekV4Config(hc_mult=n, hidden_size=C, hc_eps=0.0, rms_norm_eps=1e-6)
    peer = deepseek.DeepseekV4HyperConnection(config)
    order = torch.arange(n * n).view(n, n).T.flatten() + 2 * n
    order = torch.cat((torch.arange(2 * n), order))
    return partial(
        torch.func.functional_call,
        peer,
        {"fn": own.map.weight[order], "base": own.bias[order], "scale": own.scale},
    )


def test_the_weights_of_streams_are_deepseeks():
    ours, streams = perturbed(StreamMixing(C, 3)), torch.randn(B, T, 3, C, requires_grad=True)
    read, write, mix = ours(streams)
    post, comb, collapsed = hyper_connection(ours)((streams,))
    inputs = [streams, *ours.parameters()]
    agree(torch.einsum("btn,btnc->btc", read, streams), collapsed, inputs, felt=False)
    agree(write, post, inputs, felt=False)
    agree(mix, comb.mT, inputs, felt=False)


def sublayers(model):
    for layer in model.layers:
        yield layer.around_causal, lambda x, layer=layer: layer.causal(x).merged
        yield layer.around_feed_forward, layer.feed_forward


def by_flas_attention(model, tokens):
    mixed, outputs = fla("attnres", "naive_attnres"), [model.target(tokens)]

    def read(depth):
        return mixed(depth.query, outputs, depth.weight)

    for around, sublayer in sublayers(model):
        outputs.append(sublayer(around.norm(read(around.read))).contiguous())
    return model.output(model.norm.norm(read(model.norm.read)))


def by_deepseeks_streams(model, tokens):
    streams = model.target(tokens)[:, :, None].expand(-1, -1, 3, -1).contiguous()
    for around, sublayer in sublayers(model):
        post, comb, collapsed = hyper_connection(around.mixing)((streams,))
        change = sublayer(around.norm(collapsed))
        streams = post[..., None] * change[..., None, :] + comb.mT @ streams
    return model.output(model.norm.norm(streams.mean(2)))  # the mean is GLM-5's


@each(("kind", "streams"), KINDS)
@each("norm", ["layer", "rms"])
def test_whole_models_are_those_of_their_authors(kind, streams, norm):
    model = decoder(norm="pre", normalization=norm, residual=kind, streams=streams)
    tokens, real = given()
    by_hand = by_flas_attention if kind == "attention" else by_deepseeks_streams
    theirs, weights = by_hand(model, tokens), list(model.parameters())
    for record in (False, True):
        agree(model(tokens, real, record=record).logits, theirs, weights, felt=False)
    state, logits = model.start(None), []
    for part in tokens.split((2, 1, 2), dim=1):
        step, state, _ = model.read(None, state, part)
        logits.append(step)
    assert_close(torch.cat(logits, 1), theirs)


@torch.no_grad()
@each(("kind", "streams"), KINDS)
def test_each_can_be_the_plain_residual(kind, streams):
    plain, other = (
        decoder(norm="pre", residual=one, streams=more).double()
        for one, more in (("plain", 4), (kind, streams))
    )
    other.load_state_dict(
        {name.replace("norm.", "norm.norm.") if name.startswith("norm.") else name: weight
         for name, weight in plain.state_dict().items()},
        strict=False,
    )  # fmt: skip
    for module in other.modules():
        if isinstance(module, DepthAttention):
            put((module.query, 0.0))  # the mean of all outputs has the norm of their sum
        if isinstance(module, StreamMixing):
            # All streams are x: it reads 1/n of each, and writes to each what it gives.
            bias = [-math.log(streams - 1)] * streams
            put((module.map.weight, 0.0), (module.bias[:streams], bias), (module.bias[streams:], 0))
    for norm in (*plain.modules(), *other.modules()):
        if isinstance(norm, nn.LayerNorm):
            norm.eps = 1e-14  # else the smaller numbers have another norm
    tokens, real = given()
    assert_close(other(tokens, real).logits, plain(tokens, real).logits, 1e-8)


@torch.no_grad()
def test_small_cases_by_hand():
    # RMSNorm((1, 0)) = (√2, 0) and RMSNorm((0, 2)) = (0, √2), so the scores are 0 and ln 3: weights 1/4 and 3/4.
    depth = DepthAttention(2)
    put((depth.query, [0.0, math.log(3) / math.sqrt(2)]))
    read, weights = depth(torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]))
    assert_close(weights, torch.tensor([[[0.25, 0.75]]]), 1e-5)
    assert_close(read, torch.tensor([[[0.25, 1.5]]]), 1e-5)
    # A 2 × 2 matrix scales to p and 1 − p, with p / (1 − p) = √(ad / bc): of 1, 1, 1, 4 it is 2.
    mixed = sinkhorn(torch.tensor([[1.0, 1.0], [1.0, 4.0]]).log())
    assert_close(mixed, torch.tensor([[2.0, 1.0], [1.0, 2.0]]) / 3, 1e-5)


def test_what_does_not_fit_is_refused_and_the_plain_config_is_as_before():
    with pytest.raises(ConfigError, match="take norm = pre"):
        ModelConfig.transformer(residual="attention")
    with pytest.raises(ConfigError, match="residual = hyper"):
        ModelConfig.transformer(norm="pre", residual="attention", streams=2)
    with pytest.raises(ConfigError, match="does not read residual"):
        ModelConfig("recurrent", 8, 1, None, residual="hyper")
    assert not {"residual", "streams"} & ModelConfig.transformer().to_json().keys()
    hyper = ModelConfig.transformer(norm="pre", residual="hyper", streams=2)
    assert ModelConfig.from_json(hyper.to_json()) == hyper


@each(("kind", "streams", "more"), [
    ("attention", 4, 7 * 2 * C),  # a query and the norm's weight, for six sublayers and the last read
    ("hyper", 3, 6 * (15 * 3 * C + 15 + 3)),  # 3 + 3 + 9 weights of 3 streams, their biases, three scales
])  # fmt: skip
def test_the_parameters_beside_the_plain_models(kind, streams, more):
    count = [
        sum(weight.numel() for weight in decoder(norm="pre", residual=one, streams=n).parameters())
        for one, n in (("plain", 4), (kind, streams))
    ]
    assert count[1] - count[0] == more
