"""Decoding against Hugging Face's generate and its warpers, and against trying out every output there is."""

import itertools
from typing import Any

import pytest
import torch

from core.models import EncoderOutput, ModelConfig, Seq2Seq, Shape, build_model
from core.models.decoding import (
    Prompt,
    Sampling,
    beam,
    force_tokens,
    keep_top_k,
    keep_top_p,
    no_repeat,
    penalty,
    sample,
)
from tests.cases import each

VOCAB, EOS, START = 9, 2, 1


class T5(Seq2Seq):
    """A tiny random T5 behind our interface, without its cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def encode(self, source, source_mask, record=False):
        states = self.model.encoder(source, attention_mask=source_mask).last_hidden_state
        return EncoderOutput(states, source_mask)

    def start(self, memory):
        return torch.zeros(len(memory.states), 0, dtype=torch.long)

    def step(self, memory, state, tokens, record=False):
        state = torch.cat((state, tokens[:, None]), dim=1)
        answer = self.model(
            encoder_outputs=(memory.states,), attention_mask=memory.mask, decoder_input_ids=state
        )
        return answer.logits[:, -1], state, {}


@pytest.fixture(scope="module")
def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCAB,
            d_model=8,
            d_kv=4,
            d_ff=8,
            num_layers=1,
            num_heads=2,
            tie_word_embeddings=False,
            decoder_start_token_id=START,
            eos_token_id=EOS,
            pad_token_id=0,
        )
    ).eval()
    model.lm_head = torch.nn.Linear(8, VOCAB)
    torch.nn.init.normal_(model.lm_head.weight, std=1.5)
    with (
        torch.no_grad()
    ):  # the start mark is never said, or generate would count its first one as said
        model.lm_head.bias.copy_(torch.where(torch.arange(VOCAB) == START, -1e3, 0.0))
    return model


def prompts(n=6):
    generator = torch.Generator().manual_seed(0)
    for length in range(2, 2 + n):
        source = torch.randint(3, VOCAB, (1, length), generator=generator)
        yield Prompt(source, torch.ones_like(source, dtype=torch.bool), first_token=START)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("repeats", [0, 2])
def test_beams_are_those_of_hugging_face(t5, width, repeats):
    """At a penalty of 0, where both rank by log-probability alone; same outputs, same scores to 1e-4."""
    for prompt in prompts():
        theirs = t5.generate(
            prompt.source,
            attention_mask=prompt.mask,
            num_beams=width,
            num_return_sequences=width,
            do_sample=False,
            max_new_tokens=7,
            length_penalty=0.0,
            no_repeat_ngram_size=repeats,
            return_dict_in_generate=True,
            output_scores=True,
        )
        ours = beam(T5(t5).eval(), prompt, width=width, no_repeat=repeats, max_length=7)
        assert [one.tokens for one in ours.hypotheses] == [
            cut(row[1:].tolist()) for row in theirs.sequences
        ]
        if width > 1:
            torch.testing.assert_close(
                torch.tensor([one.score for one in ours.hypotheses]),
                theirs.sequences_scores,
                rtol=1e-4,
                atol=1e-4,
            )


def cut(tokens):
    """Up to the end mark, which generate also fills up with."""
    return tuple(tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens)


LOGITS = torch.randn(5, 23, generator=torch.Generator().manual_seed(4)) * 3


@each("k", [1, 4, 23, 40])
def test_top_k_is_that_of_hugging_face(k):
    from transformers import TopKLogitsWarper

    assert torch.equal(keep_top_k(LOGITS, k), TopKLogitsWarper(k)(None, LOGITS))


@each("p", [0.01, 0.3, 0.7, 0.95, 0.999])
def test_top_p_is_that_of_hugging_face(p):
    from transformers import TopPLogitsWarper

    assert torch.equal(keep_top_p(LOGITS, p), TopPLogitsWarper(p)(None, LOGITS))


def test_the_order_of_the_three_is_that_of_hugging_face():
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    theirs = TopPLogitsWarper(0.8)(
        None, TopKLogitsWarper(6)(None, TemperatureLogitsWarper(1.7)(None, LOGITS))
    )
    torch.testing.assert_close(Sampling(1.7, 6, 0.8).reshape(LOGITS), theirs)


@each("n", [1, 2, 3])
def test_no_repeat_is_that_of_hugging_face(n):
    from transformers import NoRepeatNGramLogitsProcessor

    sequences = torch.randint(0, 3, (5, 12), generator=torch.Generator().manual_seed(n))
    assert torch.equal(
        no_repeat(LOGITS, sequences.tolist(), n), NoRepeatNGramLogitsProcessor(n)(sequences, LOGITS)
    )


def every_output(longest, vocab):
    """All token sequences that end on EOS, or that were cut at the longest."""
    words = [token for token in range(vocab) if token != EOS]
    for length in range(longest):
        for output in itertools.product(words, repeat=length):
            yield (*output, EOS)
    yield from itertools.product(words, repeat=longest)


def tiny(kind, vocab=4):
    torch.manual_seed(7)
    shape = Shape(9, vocab, 12)
    config = {
        "transformer": ModelConfig.transformer(8, 2, position="rope"),
        "recurrent": ModelConfig.recurrent(8, "dot", feeding="input"),
        "hybrid": ModelConfig.recurrent(8, "dot", kind="hybrid", cell="lstm", feeding="bahdanau"),
        "decoder": ModelConfig.transformer(8, 2, kind="decoder", position="alibi"),
    }[kind]
    model: Any = build_model(config, shape).eval()
    torch.nn.init.normal_(model.output.weight, std=1.0)
    return model


@each("alpha", [0.0, 0.6, 2.0])
@each("kind", ["transformer", "recurrent", "hybrid", "decoder"])
def test_a_beam_as_wide_as_all_outputs_finds_the_best_of_them(kind, alpha):
    """Every output of up to 3 tokens is tried by teacher forcing alone: 40 of them."""
    model, prompt = tiny(kind), next(prompts())
    ranked = sorted(
        (
            (
                float(
                    force_tokens(model, prompt, output)
                    .logp.gather(1, torch.tensor(output)[:, None])
                    .sum()
                )
                / penalty(len(output), alpha),
                output,
            )
            for output in every_output(3, 4)
        ),
        reverse=True,
    )
    hypotheses = beam(model, prompt, width=64, length_penalty=alpha, max_length=3).hypotheses
    assert len(hypotheses) == len(ranked) == 40
    for ours, (score, output) in zip(hypotheses, ranked, strict=True):
        assert ours.tokens == output
        assert ours.score == pytest.approx(score, abs=1e-4)


@each("how", [Sampling(), Sampling(1.5, top_k=2), Sampling(0.7, top_p=0.8)])
def test_samples_come_as_often_as_they_are_likely(how):
    """Pearson's statistic over all outputs of up to 3 tokens stays below its 0.999 quantile."""
    model, prompt, draws = tiny("transformer"), next(prompts()), 200
    torch.nn.init.normal_(model.output.weight, std=0.3)
    expected = {}
    for output in every_output(3, 4):
        chances = how.reshape(force_tokens(model, prompt, output).logp).softmax(-1)
        expected[output] = float(chances.gather(1, torch.tensor(output)[:, None]).prod())
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    generator, counts = torch.Generator().manual_seed(0), dict.fromkeys(expected, 0)
    for _ in range(20):
        for one in sample(
            model, prompt, generator, samples=draws, sampling=how, max_length=3
        ).hypotheses:
            counts[one.tokens] += one.samples
    assert not any(counts[output] for output, chance in expected.items() if chance == 0)
    likely = [output for output, chance in expected.items() if chance * 20 * draws >= 5]
    assert len(likely) > 3
    expected_counts = {output: expected[output] * 20 * draws for output in likely}
    statistic = sum(
        (counts[output] - expected_counts[output]) ** 2 / expected_counts[output]
        for output in likely
    )
    freedom = len(likely)
    assert (
        statistic < freedom + 3.09 * (2 * freedom) ** 0.5 + 4
    )  # Wilson and Hilferty's is a little tighter
