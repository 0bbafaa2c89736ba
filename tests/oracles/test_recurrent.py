"""Recurrent models against their papers' equations, written out row by row and word by word, with their gradients."""

from functools import partial

import torch

from core.models import ModelConfig, Shape, build_model
from tests.cases import each

LENGTHS, T, SIZE = (5, 3), 4, 6
SHAPE = Shape(11, 13, 8)
LUONG = {
    f"{feeding}-{cell}-{score}": ModelConfig.recurrent(SIZE, score, cell=cell, feeding=feeding)
    for feeding in ("none", "input")
    for cell in ("gru", "lstm")
    for score in ("dot", "general")
}


def gru(x, h, w_x, w_h, b_x, b_h):
    """Cho 2014 with the reset after the product, as torch has it."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = (w_x @ x + b_x).chunk(3), (w_h @ h + b_h).chunk(3)
    reset, keep = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return (1 - keep) * torch.tanh(x_n + reset * h_n) + keep * h


def lstm(x, state, w_x, w_h, b_x, b_h):
    """Hochreiter & Schmidhuber 1997 with a forget gate."""
    h, c = state
    enter, forget, new, leave = (w_x @ x + b_x + w_h @ h + b_h).chunk(4)
    c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(c), c


def cell_of(module, suffix=""):
    """A step of one layer of a torch module, on plain vectors."""
    weights = [
        getattr(module, f"{name}_l0{suffix}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    many = isinstance(module, torch.nn.LSTM)
    return lambda x, state: (lstm if many else gru)(x, state, *weights)


def hidden(state):
    return state[0] if isinstance(state, tuple) else state


def side_by_side(first, second):
    if isinstance(first, tuple):
        return tuple(torch.cat(pair) for pair in zip(first, second, strict=True))
    return torch.cat((first, second))


def read(model, source):
    """The states of one source, and both directions' last."""
    zeros = torch.zeros(SIZE // 2)
    start = (zeros, zeros) if isinstance(model.encoder, torch.nn.LSTM) else zeros
    words = [model.source.weight[i] for i in source]
    forward, backward = [start], [start]
    for word in words:
        forward.append(cell_of(model.encoder)(word, forward[-1]))
    for word in reversed(words):
        backward.append(cell_of(model.encoder, "_reverse")(word, backward[-1]))
    both = zip(forward[1:], backward[:0:-1], strict=True)
    return (
        torch.stack([torch.cat((hidden(f), hidden(b))) for f, b in both]),
        forward[-1],
        backward[-1],
    )


def context_of(model, query, states):
    """Σ α h, the scores as the papers write them."""
    score = model.attention.score
    if hasattr(score, "vector"):
        scores = [
            score.vector[0] @ torch.tanh(score.query[0] @ query + score.key[0] @ h) for h in states
        ]
    elif hasattr(score, "weight"):
        scores = [query @ score.weight[0] @ h for h in states]
    else:
        scores = [query @ h for h in states]
    return sum(weight * h for weight, h in zip(torch.stack(scores).softmax(0), states, strict=True))


def luong(model, source, target):
    """Logits of one pair: h = tanh(W[c; s]), fed to the next step by input feeding."""
    states, forward, backward = read(model, source)
    state, h, logits = side_by_side(forward, backward), torch.zeros(SIZE), []
    for i in target:
        word = model.target.weight[i]
        x = torch.cat((word, h)) if model.config.feeding == "input" else word
        state = cell_of(model.decoder)(x, state)
        s = hidden(state)
        h = torch.tanh(
            model.readout.weight @ torch.cat((context_of(model, s, states), s)) + model.readout.bias
        )
        logits.append(model.output.weight @ h + model.output.bias)
    return torch.stack(logits)


def bahdanau(model, source, target):
    """Logits of one pair: the state before asks, its context enters the cell, pairs of the readout are maximized."""
    states, _, backward = read(model, source)
    s, logits = torch.tanh(model.enter.weight @ backward + model.enter.bias), []
    for i in target:
        word, context = model.target.weight[i], context_of(model, s, states)
        pairs = model.readout.weight @ torch.cat((s, word, context)) + model.readout.bias
        logits.append(model.output.weight @ pairs.reshape(SIZE, 2).amax(1) + model.output.bias)
        s = cell_of(model.decoder)(torch.cat((word, context)), s)
    return torch.stack(logits)


def hybrid(model, source, target):
    """Luong's decoder over states that one head of torch's own attention has let look at one another."""
    states, forward, backward = read(model, source)
    inner = model.inner.projection
    heads = [inner.query, inner.key, inner.value]
    attended, _ = torch.nn.functional.multi_head_attention_forward(
        *[states[:, None]] * 3,
        SIZE,
        2,
        torch.cat([m.weight for m in heads]),
        torch.cat([m.bias for m in heads]),
        None,
        None,
        False,
        0.0,
        inner.output.weight,
        inner.output.bias,
    )
    states = torch.nn.functional.layer_norm(
        states + attended[:, 0], (SIZE,), model.norm.weight, model.norm.bias
    )
    cross, state, logits = model.attention.projection, side_by_side(forward, backward), []
    for i in target:
        state = cell_of(model.decoder)(model.target.weight[i], state)
        s, heads = hidden(state), []
        q, k, v = (
            part(x) for part, x in ((cross.query, s), (cross.key, states), (cross.value, states))
        )
        for span in (slice(0, 3), slice(3, 6)):
            heads.append((k[:, span] @ q[span] / 3**0.5).softmax(0) @ v[:, span])
        h = torch.tanh(
            model.readout.weight @ torch.cat((cross.output(torch.cat(heads)), s))
            + model.readout.bias
        )
        logits.append(model.output.weight @ h + model.output.bias)
    return torch.stack(logits)


def agree(config, reference):
    """All logits of a padded batch and the gradient of every weight."""
    torch.manual_seed(0)
    model = build_model(config, SHAPE).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(
                torch.randn_like(weight) * 0.5
            )  # far from where biases are zero and norms are one
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    source, target = (
        torch.randint(4, 11, mask.shape).masked_fill(~mask, 0),
        torch.randint(4, 13, (len(LENGTHS), T)),
    )
    torch.set_default_dtype(torch.float64)
    try:
        theirs = torch.stack(
            [
                reference(model, source[row, :n].tolist(), target[row].tolist())
                for row, n in enumerate(LENGTHS)
            ]
        )
    finally:
        torch.set_default_dtype(torch.float32)
    for record in (False, True):
        ours = model(source, mask, target, record=record).logits
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        factors = torch.randn_like(ours)
        names, weights = zip(*model.named_parameters(), strict=True)
        mine, other = (
            torch.autograd.grad((logits * factors).sum(), weights, retain_graph=True)
            for logits in (ours, theirs)
        )
        for name, a, b in zip(names, mine, other, strict=True):
            assert a.abs().max() > 0, f"{name} has no gradient"
            torch.testing.assert_close(
                a, b, rtol=1e-9, atol=1e-9, msg=partial("{}: {}".format, name)
            )


@each("config", LUONG.values())
def test_luongs_decoder_and_input_feeding(config):
    agree(config, luong)


@each("score", ["additive", "dot"])
def test_bahdanaus_decoder(score):
    agree(ModelConfig.recurrent(SIZE, score, feeding="bahdanau"), bahdanau)


@each("cell", ["gru", "lstm"])
def test_the_hybrid(cell):
    agree(
        ModelConfig.recurrent(
            SIZE, "scaled_dot", kind="hybrid", cell=cell, num_heads=2, projection="multi_head"
        ),
        hybrid,
    )
