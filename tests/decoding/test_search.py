"""Decoding by hand, in words, and against Hugging Face's generate and against trying out every output there is."""

import itertools
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers

from core.models import EncoderOutput, ModelConfig, Seq2Seq, Shape, build_model
from core.models.decoding import (
    EOS,
    ROOT,
    Prompt,
    Sampling,
    beam,
    beam_steps,
    force_tokens,
    greedy,
    keep_top_k,
    keep_top_p,
    no_repeat,
    sample,
    sample_steps,
)
from tests.cases import each

KINDS = {
    "transformer": ModelConfig.transformer(12, 3, 2, position="rope"),
    "input feeding": ModelConfig.recurrent(10, "general", 2, cell="lstm", feeding="input"),
    "no attention": ModelConfig.recurrent(10, None),
    "hybrid": ModelConfig.recurrent(
        12, "scaled_dot", kind="hybrid", num_heads=3, projection="multi_head"
    ),
    "decoder": ModelConfig.transformer(12, 3, 2, kind="decoder", position="learned"),
}
every_kind = each("config", KINDS.values())


def made(config, text=False):
    torch.manual_seed(5)
    model: Any = build_model(config, Shape(11, 11, 30, one_vocabulary=True)).eval()
    torch.nn.init.normal_(model.output.weight, std=1.0)
    source = torch.randint(4, 11, (1, 6))
    return model, Prompt.of_text(source[0].tolist()) if text else Prompt(
        source, torch.ones_like(source).bool()
    )


def searches(model, prompt, **more):
    yield beam(model, prompt, width=4, length_penalty=0.6, **more)
    yield sample(
        model,
        prompt,
        torch.Generator().manual_seed(1),
        samples=9,
        sampling=Sampling(1.3, 8, 0.95),
        **more,
    )


@every_kind
def test_candidates_have_teacher_forced_probabilities(config):
    model, prompt = made(config)
    layers = 1 if config.kind in ("recurrent", "hybrid") else config.layers
    for tree in searches(model, prompt, max_length=5):
        leaves = set(range(len(tree.candidates))) - {one.parent for one in tree.candidates}
        assert len(leaves) > 8
        for leaf in leaves:
            tokens = tree.tokens(leaf)
            followed = force_tokens(model, prompt, tokens)
            sums = followed.logp.gather(1, torch.tensor(tokens)[:, None])[:, 0].cumsum(0)
            assert [tree.candidates[place].total for place in tree.path(leaf)] == pytest.approx(
                sums.tolist(), abs=1e-3
            )
            assert [look.shape for look in followed.source_attention] == [
                (config.num_heads, len(sums), 6)
            ] * (layers if config.attention else 0)


def test_a_text_goes_on_from_its_last_token():
    # Nothing is fed between the text and what follows it: each step is the language model's own next token.
    model, prompt = made(KINDS["decoder"], text=True)
    assert (Prompt.of_text([5, 6]).source.tolist(), Prompt.of_text([5, 6]).first_token) == (
        [[5]],
        6,
    )
    for tree in searches(model, prompt, max_length=5):
        output = tree.hypotheses[0].tokens
        line = torch.cat((prompt.source[0], torch.tensor([prompt.first_token, *output[:-1]])))[None]
        logp = model(line, torch.ones_like(line).bool()).logits[0, 5:].log_softmax(-1).detach()
        assert tree.hypotheses[0].logp == pytest.approx(
            float(logp.gather(1, torch.tensor(output)[:, None]).sum()), abs=1e-3
        )
        (look,) = {each.shape for each in force_tokens(model, prompt, output).source_attention}
        assert look == (3, len(output), 5 + len(output))


@every_kind
def test_beam_of_one_is_greedy_and_wider_one_finds_no_worse(config):
    model, prompt = made(config)
    (one,) = beam(model, prompt, width=1).hypotheses
    assert list(one.tokens) == greedy(model, prompt.source, prompt.mask)[0].tolist()
    (drawn,) = sample(
        model, prompt, torch.Generator(), samples=5, sampling=Sampling(top_k=1)
    ).hypotheses
    assert (drawn.tokens, drawn.samples) == (one.tokens, 5)
    assert beam(model, prompt, width=40).hypotheses[0].score >= one.score - 1e-4
    assert beam(model, prompt, width=1, max_length=1).hypotheses[0].tokens == one.tokens[:1]


@every_kind
def test_what_is_kept_and_dropped_adds_up(config):
    by_beam, by_chance = searches(*made(config))
    for tree in (by_beam, by_chance):
        for place, one in enumerate(tree.candidates):
            assert one.step == len(tree.path(place)) - 1 and (one.step == 0) == (one.parent == ROOT)
            assert one.parent == ROOT or tree.candidates[one.parent].fate == "kept"
            assert (one.fate == "ended") <= (one.token == EOS)
    assert (
        max(Counter(one.step for one in by_beam.candidates if one.fate == "kept").values())
        == len(by_beam.hypotheses)
        == 4
    )
    assert max(Counter(one.step for one in by_beam.candidates).values()) == 8
    assert sum(one.samples for one in by_chance.hypotheses) == 9
    assert all(one.chance > 0 for one in by_chance.candidates)
    assert max(Counter(one.parent for one in by_chance.candidates if not one.samples).values()) == 3
    for place, one in enumerate(by_chance.candidates):
        below = sum(other.samples for other in by_chance.candidates if other.parent == place)
        assert one.samples == below or one.fate != "kept"


def test_no_repeat_lets_nothing_be_said_twice():
    for tree in searches(*made(KINDS["transformer"]), no_repeat=2, max_length=14):
        for one in tree.hypotheses:
            assert max(Counter(pairwise(one.tokens)).values()) == 1


def test_the_same_generator_draws_the_same():
    model, prompt = made(KINDS["transformer"])
    model.train()
    first, second, other = (
        sample(model, prompt, torch.Generator().manual_seed(seed)).hypotheses for seed in (3, 3, 4)
    )
    assert model.training and first == second != other


def test_lengths_are_decoded_in_groups():
    (model, _), lengths = made(KINDS["decoder"]), (6, 2, 4, 2)
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    source = torch.randint(4, 11, mask.shape).masked_fill(~mask, 0)
    assert_alone(model, source, mask, greedy(model, source, mask, max_length=7), lengths, 7)


@each(
    ("words", "do"),
    {
        "width = 0": lambda model, prompt: beam(model, prompt, width=0),
        "width = 65": lambda model, prompt: beam(model, prompt, width=65),
        "length_penalty = -1": lambda model, prompt: beam(model, prompt, length_penalty=-1),
        "length_penalty = 5.1": lambda model, prompt: beam(model, prompt, length_penalty=5.1),
        "samples = 0": lambda model, prompt: sample(model, prompt, torch.Generator(), samples=0),
        "samples = 201": lambda model, prompt: sample(
            model, prompt, torch.Generator(), samples=201
        ),
        "temperature": lambda *_: Sampling(0.0),
        "top_k": lambda *_: Sampling(top_k=-1),
        "top_p": lambda *_: Sampling(top_p=0.0),
        "no_repeat": lambda *_: no_repeat(torch.zeros(1, 3), [[]], -1),
        "max_length = 0": lambda model, prompt: beam(model, prompt, max_length=0),
        "max_length = 4097": lambda model, prompt: beam(model, prompt, max_length=4097),
        "max_length = -1": lambda model, prompt: greedy(model, prompt.source, prompt.mask, -1),
        "both": lambda model, prompt: greedy(model, prompt.source, prompt.mask[:, :5]),
        "two tokens": lambda *_: Prompt.of_text([5]),
        "no token": lambda model, prompt: force_tokens(model, prompt, ()),
    }.items(),
)
def test_what_is_out_of_bounds_is_said(words, do):
    pytest.raises(ValueError, do, *made(KINDS["transformer"])).match(words)


@each("kind", ["beam", "sample"])
def test_a_search_that_is_left_leaves_gradients_on(kind):
    model, prompt = made(KINDS["transformer"])
    steps = (
        beam_steps(model, prompt, width=2, max_length=5)
        if kind == "beam"
        else sample_steps(model, prompt, torch.Generator(), samples=1, max_length=5)
    )
    tree = next(steps)
    assert torch.is_grad_enabled() and not tree.hypotheses
    assert {one.step for one in tree.candidates} == {0}
    assert list(steps)[-1] is tree and tree.hypotheses


# Greedy decoding: batched as alone, ending at EOS, capped, and refusing what does not fit.


MODELS = {
    "transformer": ModelConfig.transformer(12, 3, position="rope"),
    "gru": ModelConfig.recurrent(10, "dot"),
    "none": ModelConfig.recurrent(10, None, cell="lstm"),
}
BOS, GREEDY_EOS, PAD = 1, 2, 0


def greedy_made(config, bias: float = 0.0):
    """A model whose argmax is the same however batched, three sources and their mask; `bias` is that of the end."""
    torch.manual_seed(3)
    model: Any = build_model(config, Shape(13, 11, 40))
    torch.nn.init.normal_(model.output.weight, std=2.0)
    model.output.bias.data[GREEDY_EOS] += bias
    mask = torch.arange(6) < torch.tensor([6, 1, 4])[:, None]
    return model, torch.randint(4, 13, (3, 6)).masked_fill(~mask, PAD), mask


@each("config", MODELS.values())
def test_greedy_is_the_argmax_of_each_prefix(config):
    model, source, mask = greedy_made(config)
    output, together = greedy(model, source, mask), greedy(model, source, mask, max_length=9)
    assert output.shape[1] <= 2 * 6 + 2
    ended, fed = torch.zeros(3, dtype=torch.bool), torch.full((3, 1), BOS)
    for t, tokens in enumerate(output.unbind(1)):
        assert torch.equal(
            tokens, model.eval()(source, mask, fed).logits[:, -1].argmax(-1).masked_fill(ended, PAD)
        )
        ended |= (tokens == GREEDY_EOS) | (t + 1 >= 2 * mask.sum(1) + 2)
        fed = torch.cat((fed, tokens[:, None]), dim=1)
    # A row is decoded as if alone.
    assert_alone(model, source, mask, together, (6, 1, 4), 9)


def assert_alone(model, source, mask, together, lengths, longest):
    for row, n in enumerate(lengths):
        alone = greedy(model, source[row : row + 1, :n], mask[row : row + 1, :n], longest)[0]
        assert torch.equal(alone, together[row, : len(alone)])
        assert (together[row, len(alone) :] == PAD).all()


def test_the_cap_holds_and_training_mode_comes_back():
    model, source, mask = greedy_made(ModelConfig.recurrent(10, "dot", dropout=0.5), bias=-1e4)
    model.train()
    first, second = greedy(model, source, mask), greedy(model, source, mask)
    # Twice its own source and two more, without dropout while decoding.
    assert first.shape == (3, 14) and (first != PAD).sum(1).tolist() == [14, 4, 10]
    assert torch.equal(first, second) and model.training
    # The cap alone, not twice the source.
    for longest in (5, 30):
        long = greedy(model, source, mask, max_length=longest)
        assert long.shape == (3, longest) and (long != PAD).all()
    model, source, mask = greedy_made(MODELS["gru"], bias=1e4)  # all rows that end stop at once
    assert greedy(model.eval(), source, mask).tolist() == [[GREEDY_EOS]] * 3 and not model.training
    assert {one.step for one in beam(model, Prompt(source[:1], mask[:1]), width=1).candidates} == {
        0
    }, "nothing better can follow"


# Decoding against Hugging Face's generate and its warpers, and against trying out every output there is.


VOCAB, T5_EOS, START = 9, 2, 1


class T5(Seq2Seq):
    """A tiny random T5 behind our interface, without its cache."""

    def __init__(self, model):
        torch.nn.Module.__init__(self)
        self.model = model

    def encode(self, source, source_mask, record=False):
        return EncoderOutput(
            self.model.encoder(source, attention_mask=source_mask).last_hidden_state, source_mask
        )

    def start(self, memory):
        return torch.zeros(len(memory.states), 0, dtype=torch.long)

    def step(self, memory, state, tokens, record=False):
        state = torch.cat((state, tokens[:, None]), dim=1)
        return (
            self.model(
                encoder_outputs=(memory.states,),
                attention_mask=memory.mask,
                decoder_input_ids=state,
            ).logits[:, -1],
            state,
            {},
        )


@pytest.fixture(scope="module")
def t5():
    torch.manual_seed(1)
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCAB,
            d_model=8,
            d_kv=4,
            d_ff=8,
            num_layers=1,
            num_heads=2,
            tie_word_embeddings=False,
            decoder_start_token_id=START,
            eos_token_id=T5_EOS,
            pad_token_id=0,
        )
    ).eval()
    model.lm_head = torch.nn.Linear(8, VOCAB)
    torch.nn.init.normal_(model.lm_head.weight, std=1.5)
    # the start mark is never said, or generate would count its first one as said
    with torch.no_grad():
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
    # At a penalty of 0, where both rank by log-probability alone; same outputs, same scores to 1e-4.
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
        ours = beam(T5(t5).eval(), prompt, width=width, no_repeat=repeats, max_length=7).hypotheses
        assert [one.tokens for one in ours] == [cut(row[1:].tolist()) for row in theirs.sequences]
        if width > 1:
            assert [one.score for one in ours] == pytest.approx(
                theirs.sequences_scores.tolist(), rel=1e-4, abs=1e-4
            )


def cut(tokens):
    return tuple(tokens[: tokens.index(T5_EOS) + 1] if T5_EOS in tokens else tokens)


LOGITS = torch.randn(5, 23, generator=torch.Generator().manual_seed(4)) * 3
SEQUENCES = torch.randint(0, 3, (5, 12), generator=torch.Generator().manual_seed(1))


@each(
    ("name", "argument", "ours"),
    [("TopKLogitsWarper", k, lambda k=k: keep_top_k(LOGITS, k)) for k in (1, 4, 23, 40)]
    + [
        ("TopPLogitsWarper", p, lambda p=p: keep_top_p(LOGITS, p))
        for p in (0.01, 0.3, 0.7, 0.95, 0.999)
    ]
    + [
        ("NoRepeatNGramLogitsProcessor", n, lambda n=n: no_repeat(LOGITS, SEQUENCES.tolist(), n))
        for n in (1, 2, 3)
    ],
)
def test_what_is_filtered_is_what_hugging_face_filters(name, argument, ours):
    assert torch.equal(ours(), getattr(transformers, name)(argument)(SEQUENCES, LOGITS))


def test_the_order_of_the_three_is_that_of_hugging_face():
    theirs = LOGITS
    for name, argument in (("Temperature", 1.7), ("TopK", 6), ("TopP", 0.8)):
        theirs = getattr(transformers, f"{name}LogitsWarper")(argument)(None, theirs)
    torch.testing.assert_close(Sampling(1.7, 6, 0.8).reshape(LOGITS), theirs)
    whole, even = torch.tensor([[0.0, -40.0]]), torch.zeros(1, 4)
    assert torch.equal(Sampling().reshape(whole), whole), "the chance before the last rounds to 1"
    assert keep_top_p(even, 0.5)[0].tolist() == [0, 0, -torch.inf, -torch.inf]


def every_output(longest, vocab):
    words = [token for token in range(vocab) if token != T5_EOS]
    for length in range(longest):
        for output in itertools.product(words, repeat=length):
            yield (*output, T5_EOS)
    yield from itertools.product(words, repeat=longest)


TINY = {
    "transformer": ModelConfig.transformer(8, 2, position="rope"),
    "recurrent": ModelConfig.recurrent(8, "dot", feeding="input"),
    "hybrid": ModelConfig.recurrent(8, "dot", kind="hybrid", cell="lstm", feeding="bahdanau"),
    "decoder": ModelConfig.transformer(8, 2, kind="decoder", position="alibi"),
}


def tiny(kind):
    torch.manual_seed(7)
    model: Any = build_model(TINY[kind], Shape(9, 4, 12)).eval()
    torch.nn.init.normal_(model.output.weight, std=1.0)
    return model, next(prompts())


def own(logp, output) -> torch.Tensor:
    return logp.gather(1, torch.tensor(output)[:, None])[:, 0]


@each("kind", TINY)
def test_beam_as_wide_as_all_outputs_finds_best_of_them(kind):
    # Every output of up to 3 tokens is tried by teacher forcing alone: 40 of them.
    model, prompt = tiny(kind)
    logp = {
        output: float(own(force_tokens(model, prompt, output).logp, output).sum())
        for output in every_output(3, 4)
    }
    for alpha in (0.0, 0.6, 5.0):
        scores = {
            output: value / ((5 + len(output)) / 6) ** alpha for output, value in logp.items()
        }
        hypotheses = beam(model, prompt, width=64, length_penalty=alpha, max_length=3).hypotheses
        best = sorted(scores, key=lambda output: (scores[output], output), reverse=True)
        assert [one.tokens for one in hypotheses] == best and len(best) == 40
        assert [one.score for one in hypotheses] == pytest.approx(
            [scores[output] for output in best], abs=1e-4
        )


@each("how", [Sampling(), Sampling(1.5, top_k=2), Sampling(0.7, top_p=0.8)])
def test_samples_come_as_often_as_they_are_likely(how):
    # Pearson's statistic over all outputs of up to 3 tokens stays below its 0.999 quantile.
    (model, prompt), draws, expected = tiny("transformer"), 4000, {}
    torch.nn.init.normal_(model.output.weight, std=0.3)
    for output in every_output(3, 4):
        expected[output] = draws * float(
            own(how.reshape(force_tokens(model, prompt, output).logp).softmax(-1), output).prod()
        )
    assert sum(expected.values()) == pytest.approx(draws, rel=1e-5)
    generator, counts = torch.Generator().manual_seed(0), Counter[tuple[int, ...]]()
    for _ in range(draws // 200):
        counts.update(
            {
                one.tokens: one.samples
                for one in sample(
                    model, prompt, generator, samples=200, sampling=how, max_length=3
                ).hypotheses
            }
        )
    assert not any(counts[output] for output, count in expected.items() if count == 0)
    likely = {output: count for output, count in expected.items() if count >= 5}
    freedom = len(likely)
    statistic = sum((counts[output] - count) ** 2 / count for output, count in likely.items())
    # Wilson and Hilferty's is a little tighter.
    assert freedom > 3 and statistic < freedom + 3.09 * (2 * freedom) ** 0.5 + 4
