"""Decoding by hand, in words, and against Hugging Face's generate and against trying out every output there is."""

import itertools
from typing import Any

import pytest
import torch

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
    penalty,
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
def test_every_candidate_has_the_probability_that_teacher_forcing_gives_it(config):
    model, prompt = made(config)
    for tree in searches(model, prompt, max_length=6):
        leaves = [
            place
            for place in range(len(tree.candidates))
            if not any(one.parent == place for one in tree.candidates)
        ]
        assert len(leaves) > 8
        for leaf in leaves:
            followed = force_tokens(model, prompt, tree.tokens(leaf))
            sums = followed.logp.gather(1, torch.tensor(tree.tokens(leaf))[:, None])[:, 0].cumsum(0)
            for place, total in zip(tree.path(leaf), sums.tolist(), strict=True):
                assert tree.candidates[place].total == pytest.approx(total, abs=1e-3)
            layers = (
                0
                if config.attention is None
                else 1
                if config.kind in ("recurrent", "hybrid")
                else config.layers
            )
            assert [look.shape for look in followed.source_attention] == [
                (config.num_heads, len(sums), 6)
            ] * layers


def test_a_text_goes_on_from_its_last_token():
    """Nothing is fed between the text and what follows it: each step is the language model's own next token."""
    model, prompt = made(KINDS["decoder"], text=True)
    for tree in searches(model, prompt, max_length=5):
        output = tree.hypotheses[0].tokens
        line = torch.cat((prompt.source[0], torch.tensor([prompt.first_token, *output[:-1]])))[None]
        logp = model(line, torch.ones_like(line).bool()).logits[0, 5:].log_softmax(-1).detach()
        expected = float(logp.gather(1, torch.tensor(output)[:, None]).sum())
        assert tree.hypotheses[0].logp == pytest.approx(expected, abs=1e-3)
        assert force_tokens(model, prompt, output).source_attention[0].shape == (
            3,
            len(output),
            5 + len(output),
        )


@every_kind
def test_a_beam_of_one_is_greedy_and_a_wider_one_finds_no_worse(config):
    model, prompt = made(config)
    one = beam(model, prompt, width=1).hypotheses
    assert len(one) == 1
    assert list(one[0].tokens) == greedy(model, prompt.source, prompt.mask)[0].tolist()
    drawn = sample(
        model, prompt, torch.Generator(), samples=5, sampling=Sampling(top_k=1)
    ).hypotheses
    assert [(each.tokens, each.samples) for each in drawn] == [(one[0].tokens, 5)]
    assert beam(model, prompt, width=40).hypotheses[0].score >= one[0].score - 1e-4


@every_kind
def test_what_is_kept_and_dropped_adds_up(config):
    model, prompt = made(config)
    by_beam, by_chance = searches(model, prompt)
    for tree in (by_beam, by_chance):
        assert [one.parent for one in tree.candidates if one.step == 0] == [ROOT] * sum(
            one.step == 0 for one in tree.candidates
        )
        for place, one in enumerate(tree.candidates):
            assert one.step == len(tree.path(place)) - 1
            assert one.parent == ROOT or tree.candidates[one.parent].fate == "kept"
            assert (one.fate == "ended") <= (one.token == EOS)
    assert (
        max(
            sum(one.step == step and one.fate == "kept" for one in by_beam.candidates)
            for step in range(14)
        )
        == 4
    )
    assert len(by_beam.hypotheses) == 4 and sum(one.samples for one in by_chance.hypotheses) == 9
    for place, one in enumerate(by_chance.candidates):
        below = sum(other.samples for other in by_chance.candidates if other.parent == place)
        assert one.samples == (below if one.fate == "kept" else one.samples)


def test_no_repeat_lets_nothing_be_said_twice():
    model, prompt = made(KINDS["transformer"])
    for tree in searches(model, prompt, no_repeat=2, max_length=14):
        for one in tree.hypotheses:
            pairs = list(zip(one.tokens, one.tokens[1:], strict=False))
            assert len(pairs) == len(set(pairs))


def test_the_same_generator_draws_the_same_and_training_mode_comes_back():
    model, prompt = made(KINDS["transformer"])
    model.train()
    first, second, other = (
        sample(model, prompt, torch.Generator().manual_seed(seed)).hypotheses for seed in (3, 3, 4)
    )
    assert model.training and first == second != other


def test_lengths_are_decoded_in_groups_by_a_model_that_reads_one_at_a_time():
    model, _ = made(KINDS["decoder"])
    mask = torch.arange(6) < torch.tensor([6, 2, 4, 2])[:, None]
    source = torch.randint(4, 11, mask.shape).masked_fill(~mask, 0)
    together = greedy(model, source, mask, max_length=7)
    for row, length in enumerate((6, 2, 4, 2)):
        alone = greedy(
            model, source[row : row + 1, :length], mask[row : row + 1, :length], max_length=7
        )[0]
        assert torch.equal(alone, together[row, : len(alone)])
        assert (together[row, len(alone) :] == 0).all()


def test_what_is_out_of_bounds_is_said():
    model, prompt = made(KINDS["transformer"])
    for words, arguments in (
        ("width = 0", lambda: beam(model, prompt, width=0)),
        ("length_penalty", lambda: beam(model, prompt, length_penalty=-1)),
        ("samples = 0", lambda: sample(model, prompt, torch.Generator(), samples=0)),
        ("temperature", lambda: Sampling(0.0)),
        ("top_k", lambda: Sampling(top_k=-1)),
        ("top_p", lambda: Sampling(top_p=0.0)),
        ("no_repeat", lambda: no_repeat(torch.zeros(1, 3), [[]], -1)),
        ("max_length", lambda: beam(model, prompt, max_length=0)),
        ("two tokens", lambda: Prompt.of_text([5])),
        ("no token", lambda: force_tokens(model, prompt, ())),
    ):
        with pytest.raises(ValueError, match=words):
            arguments()


@each("kind", ["beam", "sample"])
def test_a_search_that_is_left_between_two_steps_leaves_gradients_on(kind):
    model, prompt = made(KINDS["transformer"])
    common: dict[str, Any] = {"no_repeat": 0, "max_length": 5, "eos": EOS}
    steps = (
        beam_steps(model, prompt, width=2, length_penalty=0.0, **common)
        if kind == "beam"
        else sample_steps(
            model,
            prompt,
            torch.Generator().manual_seed(0),
            samples=3,
            sampling=Sampling(),
            **common,
        )
    )
    tree = next(steps)
    assert torch.is_grad_enabled() and not tree.hypotheses
    assert max(one.step for one in tree.candidates) == 0
    assert list(steps)[-1] is tree and tree.hypotheses


# Greedy decoding: batched as alone, ending at EOS, capped, and refusing what does not fit.


MODELS = {
    "transformer": ModelConfig.transformer(12, 3, position="rope"),
    "gru": ModelConfig.recurrent(10, "dot"),
    "none": ModelConfig.recurrent(10, None, cell="lstm"),
}
BOS, GREEDY_EOS, PAD = 1, 2, 0


def greedy_made(config):
    torch.manual_seed(3)
    model: Any = build_model(config, Shape(13, 11, 40))
    torch.nn.init.normal_(
        model.output.weight, std=2.0
    )  # decided enough for argmax to be the same however batched
    mask = torch.arange(6) < torch.tensor([6, 1, 4])[:, None]
    return model, torch.randint(4, 13, (3, 6)).masked_fill(~mask, PAD), mask


@each("config", MODELS.values())
def test_greedy_is_the_argmax_of_each_prefix(config):
    model, source, mask = greedy_made(config)
    output = greedy(model, source, mask)
    assert output.shape[1] <= 2 * 6 + 2
    ended = torch.zeros(3, dtype=torch.bool)
    fed = torch.full((3, 1), BOS)
    for t in range(output.shape[1]):
        best = model.eval()(source, mask, fed).logits[:, -1].argmax(-1)
        assert torch.equal(output[:, t], best.masked_fill(ended, PAD))
        ended |= (output[:, t] == GREEDY_EOS) | (t + 1 >= 2 * mask.sum(1) + 2)
        fed = torch.cat((fed, output[:, t : t + 1]), dim=1)


@each("config", MODELS.values())
def test_a_row_is_decoded_as_if_alone(config):
    model, source, mask = greedy_made(config)
    together = greedy(model, source, mask, max_length=9)
    for row, n in enumerate((6, 1, 4)):
        alone = greedy(model, source[row : row + 1, :n], mask[row : row + 1, :n], max_length=9)[0]
        assert torch.equal(alone, together[row, : len(alone)])
        assert (together[row, len(alone) :] == PAD).all()


def test_all_rows_that_end_stop_at_once():
    model, source, mask = greedy_made(MODELS["gru"])
    torch.nn.init.zeros_(model.output.weight)
    with torch.no_grad():
        model.output.bias.copy_(torch.eye(11)[GREEDY_EOS])
    assert greedy(model, source, mask).tolist() == [[GREEDY_EOS]] * 3


def test_the_cap_holds_and_training_mode_comes_back():
    model, source, mask = greedy_made(ModelConfig.recurrent(10, "dot", dropout=0.5))
    with torch.no_grad():
        model.output.bias[GREEDY_EOS] = -1e4
    model.train()
    first, second = greedy(model, source, mask), greedy(model, source, mask)
    assert first.shape == (3, 14)
    assert (first != PAD).sum(1).tolist() == [14, 4, 10], "twice its own source and two more"
    assert torch.equal(first, second), "no dropout while decoding"
    assert model.training and greedy(model, source, mask, max_length=5).shape == (3, 5)


def test_sizes_that_do_not_fit_are_said():
    model, source, mask = greedy_made(MODELS["gru"])
    with pytest.raises(ValueError, match="both"):
        greedy(model, source, mask[:, :5])
    with pytest.raises(ValueError, match="max_length = 0"):
        greedy(model, source, mask, max_length=0)


def test_a_target_much_longer_than_its_source_is_not_cut():
    model, source, mask = greedy_made(MODELS["gru"])
    with torch.no_grad():
        model.output.bias[GREEDY_EOS] = -1e4  # it never ends
    long = greedy(model, source, mask, max_length=30)
    assert long.shape == (3, 30) and (long != PAD).all(), "the cap alone, not twice the source"


# Decoding against Hugging Face's generate and its warpers, and against trying out every output there is.


VOCAB, T5_EOS, START = 9, 2, 1


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
            eos_token_id=T5_EOS,
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
    return tuple(tokens[: tokens.index(T5_EOS) + 1] if T5_EOS in tokens else tokens)


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
    words = [token for token in range(vocab) if token != T5_EOS]
    for length in range(longest):
        for output in itertools.product(words, repeat=length):
            yield (*output, T5_EOS)
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
        assert ours.tokens == output and ours.score == pytest.approx(score, abs=1e-4)


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
