"""The trees of beam search and sampling: what is in them follows from the model, and bounds are said."""

from typing import Any

import pytest
import torch

from core.models import ModelConfig, Shape, build_model
from core.models.decoding import (
    EOS,
    ROOT,
    Prompt,
    Sampling,
    beam,
    beam_steps,
    force_tokens,
    greedy,
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
    assert len(by_beam.hypotheses) == 4
    assert sum(one.samples for one in by_chance.hypotheses) == 9
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
    assert model.training
    assert first == second != other


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
    assert model.training
    assert greedy(model, source, mask, max_length=5).shape == (3, 5)


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
