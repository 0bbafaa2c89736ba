"""The hierarchical attention network: the equations of its paper written as loops, ragged documents, and refusals."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from core.attention import AttentionConfig
from core.attention.config import example
from core.entries import ConfigError
from core.models import ModelConfig, Shape, build_model, map_tokens, sentence_spans
from core.models.recurrent import Sentences
from tests.cases import each
from tests.models.test_patterns import ENTRIES, trains
from tests.oracles.test_models import CELL, hidden

END, V, C, CLASSES = 4, 19, 14, 3
SHAPE = Shape(V, CLASSES, 40, output="label", sentence_end=END)
# Lengths of the sentences of each document; the last of the second has no end mark.
RAGGED = ((5, 3, 7), (2, 4), (1,), (3, 1, 2, 6))
OPEN = 1


def config(**changes):
    return ModelConfig.recurrent(C, **{"score": "additive", "kind": "hierarchical"} | changes)


def documents(seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i, lengths in enumerate(RAGGED):
        lines = [torch.randint(END + 1, V, (length,), generator=generator) for length in lengths]
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
    size = C // 2 if bidirectional else C
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
        embedded = [weights["source.token.weight"][token] * math.sqrt(C) for token in line]
        vector, shares = pooled(within(weights, "words."), embedded, cell, bidirectional)
        vectors.append(vector)
        words.append(shares)
    whole, sentences = pooled(within(weights, "sentences."), vectors, cell, bidirectional)
    return weights["output.weight"] @ whole + weights["output.bias"], words, sentences


def made(model_config, seed=1):
    torch.manual_seed(seed)
    return build_model(model_config, SHAPE).double()


@each(("cell", "bidirectional"), [("gru", True), ("gru", False), ("lstm", True)])
def test_it_is_the_paper_forward_and_backward(cell, bidirectional):
    model = made(config(cell=cell, bidirectional=bidirectional))
    source, mask, rows = documents()
    output = model(source, mask, record=True)
    weights = dict(model.named_parameters())
    expected = [document(weights, lines, cell, bidirectional) for lines in rows]
    logits = torch.stack([each_logits for each_logits, _, _ in expected])
    torch.testing.assert_close(output.logits, logits)
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
    towards = torch.randn(logits.shape, dtype=torch.double)
    ours, theirs = (
        torch.autograd.grad((out * towards).sum(), list(weights.values()))
        for out in (output.logits, logits)
    )
    for name, a, b in zip(weights, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, msg=partial("{}: {}".format, name))
    assert all(grad.any() for grad in ours), "every weight is used"


def test_by_hand_a_document_of_two_sentences():
    model = made(config(score="dot", bidirectional=False)).eval()
    for level in (model.words, model.sentences):
        level.encode = lambda x, lengths: x  # the states are the inputs
        level.query.data.zero_()[0] = 1.0
    table = torch.zeros(V, C, dtype=torch.double)
    table[7, 0], table[9, 1] = math.log(3.0), 1.0
    model.source.token.weight.data = table / math.sqrt(C)
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
    model, (source, mask, rows) = made(config()).eval(), documents()
    logits = model(source, mask).logits
    noise = torch.where(mask, source, torch.randint(1, V, source.shape))
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
    where = Sentences.of(source, mask, END)
    assert where.counts.tolist() == [len(lines) for lines in rows] and where.longest == 7
    for i, lines in enumerate(rows):
        lengths = [len(line) for line in lines]
        assert (where.number[i][mask[i]].tolist(), where.position[i][mask[i]].tolist()) == (
            [n for n, length in enumerate(lengths) for _ in range(length)],
            [p for length in lengths for p in range(length)],
        )
        tokens = ["." if token == END else str(token) for token in torch.cat(lines).tolist()]
        assert [len(span) for span in sentence_spans(tokens)] == lengths
        names, columns = map_tokens(config(), "words", tokens, None)
        assert ((len(names), list(columns)), map_tokens(config(), "sentences", tokens, None)) == (
            (len(lines), tokens),
            (("[class]",), names),
        )


@each("bad", [torch.tensor([[True, False, True]]), torch.zeros(1, 3, dtype=torch.bool)])
def test_a_document_has_words_before_its_padding(bad):
    with pytest.raises(ValueError, match="token"):
        made(config())(torch.tensor([[5, 6, END]]), bad)


@each(("axis", "key"), ENTRIES)
def test_a_choice_trains_or_is_refused_in_words(axis, key):
    try:
        attention = AttentionConfig(C, 1, "identity").with_(**{axis: example(axis, key)})
        model_config = ModelConfig("hierarchical", C, 1, attention)
    except ConfigError as refusal:
        assert key in str(refusal) and "take" in str(refusal)
        return
    source, mask, rows = documents()
    # Of that seed are scores of both signs: softpick gives negative ones no weight.
    model, logits = trains(model_config, SHAPE, (source, mask), seed=6)
    torch.testing.assert_close(model(source, mask).logits, logits, rtol=1e-3, atol=1e-4)
    alone = torch.cat(rows[1])[None]
    torch.testing.assert_close(
        model(alone, torch.ones_like(alone, dtype=torch.bool)).logits[0],
        logits[1],
        rtol=1e-3,
        atol=1e-4,
    )
