"""Whole models and every gradient of theirs, against the same written plainly: torch's, a GPT, a ViT, a table;
and what stands between layers."""

import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config

from core.attention import AttentionConfig, Choice, preset
from core.attention.config import AXES, example
from core.entries import ConfigError
from core.models import ModelConfig, Shape, build_model, map_tokens, sentence_spans
from core.models.recurrent import sentences_of
from core.models.transformer import DepthAttention, StreamMixing, sinkhorn
from tests.cases import each
from tests.close import assert_close
from tests.models.test_patterns import ENTRIES, trains
from tests.oracles.agreement import agree, fla, put

C, H, INNER, LAYERS, B, S, T, V = 12, 3, 20, 2, 4, 7, 5, 11
D = C // H
LENGTHS = torch.tensor([7, 3, 1, 5])
REAL = torch.arange(S) < LENGTHS[:, None]


def made(shape, **more):
    return perturbed(build_model(ModelConfig.transformer(C, H, LAYERS, INNER, **more), shape))


def compare(model, given, theirs):
    weights = dict(model.named_parameters())
    for record in (False, True):
        agree(
            model(*given, record=record).logits, theirs(weights), list(weights.values()), felt=False
        )


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def rms_norm(w, name, x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.weight"]


def attention(w, name, x, seen):
    q, k, v = (linear(w, f"{name}.projection.{part}", x) for part in ("query", "key", "value"))
    heads = []
    for h in range(H):
        part = slice(h * D, (h + 1) * D)
        heads.append(
            torch.softmax(
                (q[:, part] @ k[:, part].T / math.sqrt(D)).masked_fill(~seen, -torch.inf), -1
            )
            @ v[:, part]
        )
    return linear(w, f"{name}.projection.output", torch.cat(heads, -1))


def relu(inner, gate):
    return inner.clamp(min=0)


def gelu(inner, gate):
    return 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))


def swiglu(inner, gate):
    return inner * torch.sigmoid(inner) * gate


def stack(w, at, x, norm, causal=False, normalize=layer_norm, activation=relu):
    """One row through all layers, each part with its norm before or after, and the last norm of a pre-norm stack."""
    everything = torch.ones(len(x), len(x), dtype=torch.bool)
    for i, part in itertools.product(range(LAYERS), ("causal" if causal else "attention", "mlp")):
        name = f"{at}layers.{i}.{part.replace('mlp', 'feed_forward')}"
        around = name.replace(f"{i}.", f"{i}.around_") + ".norm"
        read = normalize(w, around, x) if norm == "pre" else x
        if part == "mlp":
            gate = linear(w, f"{name}.gate", read) if f"{name}.gate.weight" in w else None
            x = x + linear(w, f"{name}.outer", activation(linear(w, f"{name}.inner", read), gate))
        else:
            x = x + attention(w, name, read, everything.tril() if causal else everything)
        x = x if norm == "pre" else normalize(w, around, x)
    return normalize(w, f"{at}norm", x) if norm == "pre" else x


def encoder(w, x, norm):
    return stack(w, "encoder.", x, norm)


def test_a_decoder_is_a_gpt():
    # Pre-norm, learned places, GELU, tied: each row of the batch as one line of its own, nothing padded.
    model = made(
        Shape(V, V, 10, one_vocabulary=True),
        kind="decoder",
        tied=True,
        norm="pre",
        activation="gelu",
        position="learned",
    )
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))

    def gpt(w):
        rows, words = [], w["target.token.weight"]
        for row, n in enumerate(LENGTHS.tolist()):
            line = torch.cat((source[row, :n], target[row]))
            x = words[line] * math.sqrt(C) + w["places.position.table.weight"][: len(line)]
            x = stack(w, "", x, "pre", causal=True, activation=gelu)
            rows.append((x @ words.T + w["output.bias"])[n:])
        return torch.stack(rows)

    compare(model, (source.masked_fill(~REAL, 0), REAL, target), gpt)


def test_a_language_model_with_rms_norm_and_swiglu():
    shape = Shape(V, V, 10, one_vocabulary=True)
    how = {"norm": "pre", "activation": "swiglu", "position": "sinusoidal"}
    model = made(shape, kind="decoder", normalization="rms", **how)
    source = torch.randint(4, V, (1, S))
    places = torch.arange(S)[:, None] / 10000 ** (torch.arange(0, C, 2) / C)

    def llama(w):
        x = w["target.token.weight"][source[0]] * math.sqrt(C)
        x = x + torch.stack((places.sin(), places.cos()), -1).flatten(1)
        x = stack(w, "", x, "pre", causal=True, normalize=rms_norm, activation=swiglu)
        return linear(w, "output", x)[None]

    compare(model, (source, torch.ones(1, S, dtype=torch.bool)), llama)


@each("norm", ["post", "pre"])
@each("pool", ["first", "mean"])
def test_a_classifier_of_patches_is_a_vision_transformer(norm, pool):
    model = made(
        Shape(5, 3, 10, "patches", "label"),
        kind="classifier",
        norm=norm,
        pool=pool,
        position="learned",
    )
    patches = torch.randn(B, S, 5)

    def vit(w):
        rows = []
        for row in patches:
            x = linear(w, "source", row)
            x = torch.cat((w["first"][None], x)) if pool == "first" else x
            x = encoder(w, x + w["places.position.table.weight"][: len(x)], norm)
            rows.append(linear(w, "output", x[0] if pool == "first" else x.mean(0)))
        return torch.stack(rows)

    compare(model, (patches, torch.ones(B, S, dtype=torch.bool)), vit)


def test_a_classifier_of_padded_words():
    model = made(Shape(V, 3, 10, output="label"), kind="classifier")
    source = torch.randint(4, V, (B, S))

    def bert(w):
        words = w["source.token.weight"] * math.sqrt(C)
        rows = [
            torch.cat((w["first"][None], words[row[:n]]))
            for row, n in zip(source, LENGTHS.tolist(), strict=True)
        ]
        return torch.stack([linear(w, "output", encoder(w, x, "post")[0]) for x in rows])

    compare(model, (source.masked_fill(~REAL, 0), REAL), bert)


@each("kind", ["classifier", "one_token"])
def test_a_classifier_of_a_tables_rows(kind):
    model = made(Shape(3, 4, 5, "features", "label", columns=(0, 3, 0)), kind=kind)
    rows = torch.tensor([[0.3, 2.0, -1.0], [1.2, 0.0, 0.4], [-0.7, 1.0, 0.9]])

    def table(w):
        outputs, (first, last) = [], w["source.weight"]
        for number, category, other in rows:
            x = (
                torch.stack(
                    (number * first, w["source.categories.0.weight"][int(category)], other * last)
                )
                + w["source.bias"]
            )
            x = torch.cat((w["first"][None], x)) if kind == "classifier" else x.sum(0, keepdim=True)
            outputs.append(linear(w, "output", encoder(w, x, "post")[0]))
        return torch.stack(outputs)

    compare(model, (rows, torch.ones(3, 3, dtype=torch.bool)), table)


def test_forecaster_reads_window_and_asks_places_after_it():
    model = made(
        Shape(2, 3, 10, "series", "values"), kind="forecaster", norm="pre", position="learned"
    )
    windows = torch.randn(B, S, 2) * 3 + 2

    def forecast(w):
        forecasts = []
        for row in windows:
            mean, spread = row.mean(0), (row.var(0, correction=0) + 1e-6).sqrt()
            x = torch.cat((linear(w, "source", (row - mean) / spread), w["asked"].expand(3, -1)))
            x = encoder(w, x + w["places.position.table.weight"][: len(x)], "pre")
            forecasts.append(linear(w, "output", x[S:])[:, 0] * spread[0] + mean[0])
        return torch.stack(forecasts)

    compare(model, (windows, torch.ones(B, S, dtype=torch.bool)), forecast)


@each("norm", ["post", "pre"])
@each("source", ["tokens", "patches"])
def test_the_transformer_is_torchs(norm, source):
    # nn.Transformer between our embeddings and output, from weights to the gradient of every weight.
    words, first = source == "tokens", norm == "pre"
    model = made(Shape(V if words else 5, V, 10, source), norm=norm)
    below = nn.TransformerEncoderLayer(C, H, INNER, 0.0, batch_first=True, norm_first=first)
    above = nn.TransformerDecoderLayer(C, H, INNER, 0.0, batch_first=True, norm_first=first)
    last = [nn.LayerNorm(C) if first else None for _ in range(2)]
    peer = nn.Transformer(
        C,
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(below, LAYERS, last[0], enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(above, LAYERS, last[1]),
    )
    read = torch.randint(4, V, (B, S)) if words else torch.randn(B, S, 5)
    target, future = torch.randint(4, V, (B, T)), torch.ones(T, T, dtype=torch.bool).triu(1)
    masks = dict(tgt_mask=future, src_key_padding_mask=~REAL, memory_key_padding_mask=~REAL)

    def torchs(w):
        scaled = w["source.token.weight"][read] * math.sqrt(C) if words else None
        x = linear(w, "source", read) if scaled is None else scaled
        return linear(
            w,
            "output",
            torch.func.functional_call(
                peer, renamed(w), (x, w["target.token.weight"][target] * math.sqrt(C)), masks
            ),
        )

    compare(model, (read, REAL, target), torchs)


SIDES = {
    "encoder": ("encoder.", ("attention", "feed_forward")),
    "decoder": ("", ("causal", "cross", "feed_forward")),
}
TORCHS = {"attention": "self_attn", "causal": "self_attn", "cross": "multihead_attn"}


def renamed(w):
    weights = {}
    for kind, (side, (own, parts)) in itertools.product(("weight", "bias"), SIDES.items()):
        for i, (number, part) in itertools.product(range(LAYERS), enumerate(parts, 1)):
            at, to = f"{own}layers.{i}", f"{side}.layers.{i}"
            weights[f"{to}.norm{number}.{kind}"] = w[f"{at}.around_{part}.norm.{kind}"]
            if part == "feed_forward":
                weights[f"{to}.linear1.{kind}"] = w[f"{at}.{part}.inner.{kind}"]
                weights[f"{to}.linear2.{kind}"] = w[f"{at}.{part}.outer.{kind}"]
            else:
                weights[f"{to}.{TORCHS[part]}.in_proj_{kind}"] = torch.cat(
                    [w[f"{at}.{part}.projection.{n}.{kind}"] for n in ("query", "key", "value")]
                )
                weights[f"{to}.{TORCHS[part]}.out_proj.{kind}"] = w[
                    f"{at}.{part}.projection.output.{kind}"
                ]
        if f"{own}norm.{kind}" in w:
            weights[f"{side}.norm.{kind}"] = w[f"{own}norm.{kind}"]
    return weights


# Recurrent models against their papers' equations around torch's cells, row by row and word by word, with their gradients.


PAIR, TARGET, SIZE = (5, 3), 4, 6
LUONG = {
    f"{feeding}-{cell}-{score}": ModelConfig.recurrent(SIZE, score, cell=cell, feeding=feeding)
    for feeding in ("none", "input")
    for cell in ("gru", "lstm")
    for score in ("dot", "general")
}


CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def cell_of(module, suffix=""):
    weights = [getattr(module, f"{name}_l0{suffix}") for name in CELL]

    def step(x, state):
        if isinstance(module, torch.nn.GRU):
            return torch.gru_cell(x[None], state[None], *weights)[0]
        h, c = torch.lstm_cell(x[None], [part[None] for part in state], *weights)
        return h[0], c[0]

    return step


def hidden(state):
    return state[0] if isinstance(state, tuple) else state


def side_by_side(first, second):
    if isinstance(first, tuple):
        return tuple(torch.cat(pair) for pair in zip(first, second, strict=True))
    return torch.cat((first, second))


def read(model, source):
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


def recurrent_agree(config, reference):
    """All logits of a padded batch and the gradient of every weight, far from where biases are zero and norms are one."""
    torch.manual_seed(0)
    model = build_model(config, Shape(11, 13, 8)).double()
    put(*((weight, torch.randn_like(weight) * 0.5) for weight in model.parameters()))
    mask = torch.arange(max(PAIR)) < torch.tensor(PAIR)[:, None]
    source = torch.randint(4, 11, mask.shape).masked_fill(~mask, 0)
    target = torch.randint(4, 13, (len(PAIR), TARGET))
    torch.set_default_dtype(torch.float64)
    try:
        rows = [
            reference(model, line[:n].tolist(), out.tolist())
            for line, out, n in zip(source, target, PAIR, strict=True)
        ]
    finally:
        torch.set_default_dtype(torch.float32)
    for record in (False, True):
        agree(
            model(source, mask, target, record=record).logits,
            torch.stack(rows),
            list(model.parameters()),
        )


@each("config", LUONG.values())
def test_luongs_decoder_and_input_feeding(config):
    recurrent_agree(config, luong)


@each("score", ["additive", "dot"])
def test_bahdanaus_decoder(score):
    recurrent_agree(ModelConfig.recurrent(SIZE, score, feeding="bahdanau"), bahdanau)


@each("cell", ["gru", "lstm"])
def test_the_hybrid(cell):
    recurrent_agree(
        ModelConfig.recurrent(
            SIZE, "scaled_dot", kind="hybrid", cell=cell, num_heads=2, projection="multi_head"
        ),
        hybrid,
    )


# What short convolutions are for: one layer that must compare a token with its neighbour (MQAR, Arora 2023).


PAIRS, WORDS, ROWS, STEPS, PEAK = 3, 6, 32, 120, 1e-2


def texts(rows, generator):
    """Pairs of a key and its value, then every key again in another order, with its value; the values, and where the
    keys before them are."""
    keys = torch.rand(rows, WORDS, generator=generator).argsort(1)[:, :PAIRS]
    values = torch.randint(WORDS, keys.shape, generator=generator) + WORDS
    order = torch.rand(rows, PAIRS, generator=generator).argsort(1)
    answers = values.gather(1, order)
    pairs = [(keys, values), (keys.gather(1, order), answers)]
    return (
        torch.cat([torch.stack(pair, 2).flatten(1) for pair in pairs], 1)[:, :-1],
        answers,
        torch.arange(2 * PAIRS, 4 * PAIRS - 1, 2),
    )


def recalled(key, projection):
    attention = preset(key).config(32, 2).with_(projection=projection)
    torch.manual_seed(0)
    config = ModelConfig.transformer(
        32, 2, kind="decoder", norm="pre", **{axis: getattr(attention, axis) for axis in AXES}
    )
    shape = Shape(2 * WORDS, 2 * WORDS, 4 * PAIRS, one_vocabulary=True)
    model, data = build_model(config, shape), torch.Generator().manual_seed(0)
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
def test_one_layer_recalls_with_short_convolutions(key):
    mixed = recalled(key, "short_conv")
    alone = recalled(key, Choice.of("multi_head", bias=False))
    assert mixed > 0.8 and alone < 0.6, f"{mixed}, {alone} alone"


# The hierarchical attention network: the equations of its paper written as loops, ragged documents, and refusals.


END, VOCABULARY, WIDTH, CLASSES = 4, 19, 14, 3
DOCUMENTS = Shape(VOCABULARY, CLASSES, 40, output="label", sentence_end=END)
# Lengths of the sentences of each document; the last of the second has no end mark.
RAGGED = ((5, 3, 7), (2, 4), (1,), (3, 1, 2, 6))
OPEN = 1


def config(**changes):
    return ModelConfig.recurrent(WIDTH, **{"score": "additive", "kind": "hierarchical"} | changes)


def documents(seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i, lengths in enumerate(RAGGED):
        lines = [
            torch.randint(END + 1, VOCABULARY, (length,), generator=generator) for length in lengths
        ]
        for line in lines[: -1 if i == OPEN else None]:
            line[-1] = END
        rows.append(lines)
    flat = [torch.cat(lines) for lines in rows]
    source = nn.utils.rnn.pad_sequence(flat, batch_first=True)
    return (
        source,
        torch.arange(source.shape[1]) < torch.tensor([len(row) for row in flat])[:, None],
        rows,
    )


def direction(weights, suffix, xs, cell, size):
    own = [weights[f"{name}_l0{suffix}"] for name in CELL]
    zero, states = xs[0].new_zeros(1, size), []
    state: Any = zero if cell == "gru" else (zero, zero)
    for x in xs:
        state = (torch.gru_cell if cell == "gru" else torch.lstm_cell)(x[None], state, *own)
        states.append(hidden(state)[0])
    return states


def pooled(weights, xs, cell, bidirectional):
    """The vector of a sequence and its weights, for additive attention: Yang 2016, equations 1 to 7."""
    size = WIDTH // 2 if bidirectional else WIDTH
    cells = {
        name.removeprefix("encoder."): w
        for name, w in weights.items()
        if name.startswith("encoder.")
    }
    states = direction(cells, "", xs, cell, size)
    if bidirectional:
        backward = direction(cells, "_reverse", xs[::-1], cell, size)[::-1]
        states = [torch.cat(both) for both in zip(states, backward, strict=True)]
    w, u = weights["attention.score.key"][0], weights["attention.score.vector"][0]
    b = weights["attention.score.query"][0] @ weights["query"]
    scores = [u @ torch.tanh(w @ h + b) for h in states]
    total = sum(math.e**score for score in scores)
    shares = [math.e**score / total for score in scores]
    return sum(share * h for share, h in zip(shares, states, strict=True)), torch.stack(shares)


def within(weights, start):
    return {name.removeprefix(start): w for name, w in weights.items() if name.startswith(start)}


def document(weights, lines, cell, bidirectional):
    """Logits of one document, the weights of each sentence's words, and the sentences' weights."""
    vectors, words = [], []
    for line in lines:
        embedded = [weights["source.token.weight"][token] * math.sqrt(WIDTH) for token in line]
        vector, shares = pooled(within(weights, "words."), embedded, cell, bidirectional)
        vectors.append(vector)
        words.append(shares)
    whole, sentences = pooled(within(weights, "sentences."), vectors, cell, bidirectional)
    return weights["output.weight"] @ whole + weights["output.bias"], words, sentences


def made_network(model_config, seed=1):
    torch.manual_seed(seed)
    return build_model(model_config, DOCUMENTS).double()


@each(("cell", "bidirectional"), [("gru", True), ("gru", False), ("lstm", True)])
def test_it_is_the_paper_forward_and_backward(cell, bidirectional):
    model = made_network(config(cell=cell, bidirectional=bidirectional))
    source, mask, rows = documents()
    output = model(source, mask, record=True)
    weights = dict(model.named_parameters())
    expected = [document(weights, lines, cell, bidirectional) for lines in rows]
    logits = torch.stack([each_logits for each_logits, _, _ in expected])
    words, sentences = (output.maps[kind][0].weights for kind in ("words", "sentences"))
    assert words.shape == (4, 1, 4, source.shape[1]) and sentences.shape == (4, 1, 1, 4)
    for i, (_, by_word, by_sentence) in enumerate(expected):
        torch.testing.assert_close(sentences[i, 0, 0, : len(by_sentence)], by_sentence)
        assert (
            not sentences[i, 0, 0, len(by_sentence) :].any()
            and not words[i, 0, len(by_word) :].any()
        )
        start = 0
        for n, shares in enumerate(by_word):
            row = torch.zeros(source.shape[1], dtype=torch.double)
            row[start : start + len(shares)] = shares.detach()
            torch.testing.assert_close(words[i, 0, n].detach(), row)
            start += len(shares)
    agree(output.logits, logits, list(weights.values()))


def test_by_hand_a_document_of_two_sentences():
    model = made_network(config(score="dot", bidirectional=False)).eval()
    for level in (model.words, model.sentences):
        level.encode = lambda x, lengths: x  # the states are the inputs
        level.query.data.zero_()[0] = 1.0
    table = torch.zeros(VOCABULARY, WIDTH, dtype=torch.double)
    table[7, 0], table[9, 1] = math.log(3.0), 1.0
    model.source.token.weight.data = table / math.sqrt(WIDTH)
    model.output.weight.data.zero_()[0, 0], model.output.bias.data[:] = 1.0, 0.0
    # Word 7 scores log 3 and its end mark 0: weights 3/4 and 1/4, vector (3/4 · log 3, 0). Word 9 and its end mark
    # score 0: weights 1/2, vector (0, 1/2). The sentences score 3/4 · log 3 and 0.
    output = model(
        torch.tensor([[7, END, 9, END]]), torch.ones(1, 4, dtype=torch.bool), record=True
    )
    words, sentences = (output.maps[kind][0].weights[0, 0] for kind in ("words", "sentences"))
    torch.testing.assert_close(
        words, torch.tensor([[0.75, 0.25, 0, 0], [0, 0, 0.5, 0.5]], dtype=torch.double)
    )
    first = 3**0.75 / (3**0.75 + 1)
    torch.testing.assert_close(sentences, torch.tensor([[first, 1 - first]], dtype=torch.double))
    assert output.logits[0, 0].item() == pytest.approx(first * 0.75 * math.log(3))
    torch.testing.assert_close(
        output.source_attention[0][0, 0, 0],
        torch.tensor(
            [0.75 * first, 0.25 * first, 0.5 * (1 - first), 0.5 * (1 - first)], dtype=torch.double
        ),
    )
    assert output.uniform.tolist() == [[[0.25] * 4]]


def test_padding_changes_nothing_whatever_it_holds():
    model, (source, mask, rows) = made_network(config()).eval(), documents()
    logits = model(source, mask).logits
    noise = torch.where(mask, source, torch.randint(1, VOCABULARY, source.shape))
    noise[2, 1:] = END  # marks in padding end no sentence
    assert torch.equal(model(noise, mask).logits, logits)
    wider = (
        torch.cat((source, torch.full((4, 5), END)), 1),
        torch.cat((mask, torch.zeros(4, 5, dtype=torch.bool)), 1),
    )
    torch.testing.assert_close(model(*wider).logits, logits)
    for i, lines in enumerate(rows):
        alone = torch.cat(lines)[None]
        output = model(alone, torch.ones_like(alone, dtype=torch.bool), record=True)
        torch.testing.assert_close(output.logits[0], logits[i])
        assert output.uniform.sum().item() == pytest.approx(1.0)
        spread = output.uniform[0, 0].split([len(line) for line in lines])
        assert [part.sum().item() for part in spread] == pytest.approx(
            [1 / len(lines)] * len(lines)
        )


def test_where_each_token_stands_and_the_tokens_of_its_maps():
    source, mask, rows = documents()
    members = sentences_of(source, mask, END)
    for i, lines in enumerate(rows):
        lengths = [len(line) for line in lines]
        assert members[i, : len(lines)].nonzero().T.tolist() == [
            [n for n, length in enumerate(lengths) for _ in range(length)],
            list(range(sum(lengths))),
        ]
        assert not members[i, len(lines) :].any()
        tokens = ["." if token == END else str(token) for token in torch.cat(lines).tolist()]
        assert [len(span) for span in sentence_spans(tokens)] == lengths
        names, columns = map_tokens(config(), "words", tokens, None)
        assert ((len(names), list(columns)), map_tokens(config(), "sentences", tokens, None)) == (
            (len(lines), tokens),
            (("[class]",), names),
        )


@each("bad", [torch.tensor([[True, False, True]]), torch.zeros(1, 3, dtype=torch.bool)])
def test_a_document_has_words_before_its_padding(bad):
    pytest.raises(ValueError, made_network(config()), torch.tensor([[5, 6, END]]), bad).match(
        "token"
    )


@each(("axis", "key"), ENTRIES)
def test_a_choice_trains_or_is_refused_in_words(axis, key):
    try:
        attention = AttentionConfig(WIDTH, 1, "identity").with_(**{axis: example(axis, key)})
        model_config = ModelConfig("hierarchical", WIDTH, 1, attention)
    except ConfigError as refusal:
        assert key in str(refusal) and "take" in str(refusal)
        return
    source, mask, rows = documents()
    # Of that seed are scores of both signs: softpick gives negative ones no weight.
    model, logits = trains(model_config, DOCUMENTS, (source, mask), seed=6)
    torch.testing.assert_close(model(source, mask).logits, logits, rtol=1e-3, atol=1e-4)
    alone = torch.cat(rows[1])[None]
    torch.testing.assert_close(
        model(alone, torch.ones_like(alone, dtype=torch.bool)).logits[0],
        logits[1],
        rtol=1e-3,
        atol=1e-4,
    )


TEXTS, TOKENS, CHANNELS, N, VOCAB = 3, 5, 9, 7, 11
STREAMED = Shape(VOCAB, VOCAB, 10, one_vocabulary=True)
KINDS = [("attention", 4), ("hyper", 3)]


def perturbed(module):
    torch.manual_seed(0)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.4)
    return module


def decoder(**more):
    config = ModelConfig.transformer(CHANNELS, 3, 3, 10, kind="decoder", position="alibi", **more)
    return perturbed(build_model(config, STREAMED))


def given():
    return torch.randint(4, VOCAB, (TEXTS, TOKENS)), torch.ones(TEXTS, TOKENS, dtype=torch.bool)


def test_attention_over_depth_is_flas():
    ours, outputs = (
        perturbed(DepthAttention(CHANNELS)),
        torch.randn(TEXTS, TOKENS, N, CHANNELS, requires_grad=True),
    )
    norm = ours.weight
    theirs, weights = fla("attnres", "naive_attnres")(
        ours.query, [v.contiguous() for v in outputs.unbind(2)], norm, return_weights=True
    )
    read, own = ours(outputs)
    assert_close(own, weights.movedim(0, -1))
    assert_close(own.sum(-1), torch.ones(TEXTS, TOKENS))
    agree(read, theirs, [outputs, ours.query, norm])


def test_sinkhorn_is_flas():
    logits = torch.randn(TEXTS, TOKENS, 3, 3, requires_grad=True)
    ours = sinkhorn(logits)
    agree(ours, fla("utils/sinkhorn", "naive_sinkhorn")(logits), [logits])
    assert_close(ours.sum(-1), torch.ones(TEXTS, TOKENS, 3))
    assert_close(ours.sum(-2), torch.ones(TEXTS, TOKENS, 3), 1e-4)


def hyper_connection(own: StreamMixing):
    """DeepSeek-V4's, with those weights; its matrix is ours transposed."""
    n = own.sizes[0]
    peer = deepseek.DeepseekV4HyperConnection(
        DeepseekV4Config(hc_mult=n, hidden_size=CHANNELS, hc_eps=0.0, rms_norm_eps=1e-6)
    )
    order = torch.arange(n * n).view(n, n).T.flatten() + 2 * n
    order = torch.cat((torch.arange(2 * n), order))
    return partial(
        torch.func.functional_call,
        peer,
        {"fn": own.map.weight[order], "base": own.bias[order], "scale": own.scale},
    )


def test_the_weights_of_streams_are_deepseeks():
    ours, streams = (
        perturbed(StreamMixing(CHANNELS, 3)),
        torch.randn(TEXTS, TOKENS, 3, CHANNELS, requires_grad=True),
    )
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


def test_what_does_not_fit_is_refused():
    pytest.raises(ConfigError, ModelConfig.transformer, residual="attention").match(
        "take norm = pre"
    )
    pytest.raises(
        ConfigError, ModelConfig.transformer, norm="pre", residual="attention", streams=2
    ).match("residual = hyper")
    pytest.raises(ConfigError, ModelConfig, "recurrent", 8, 1, None, residual="hyper").match(
        "does not read residual"
    )
    assert not {"residual", "streams"} & ModelConfig.transformer().to_json().keys()
    hyper = ModelConfig.transformer(norm="pre", residual="hyper", streams=2)
    assert ModelConfig.from_json(hyper.to_json()) == hyper


@each(("kind", "streams", "more"), [
    ("attention", 4, 7 * 2 * CHANNELS),  # a query and the norm's weight, for six sublayers and the last read
    ("hyper", 3, 6 * (15 * 3 * CHANNELS + 15 + 3)),  # 3 + 3 + 9 weights of 3 streams, their biases, three scales
])  # fmt: skip
def test_the_parameters_beside_the_plain_models(kind, streams, more):
    count = [
        sum(weight.numel() for weight in decoder(norm="pre", residual=one, streams=n).parameters())
        for one, n in (("plain", 4), (kind, streams))
    ]
    assert count[1] - count[0] == more
