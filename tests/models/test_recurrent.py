"""Recurrent models and the hybrid learn ten examples by heart, and say in words what they cannot be."""

from typing import Any

import pytest
import torch

from core.decoding import greedy
from core.entries import Choice, ConfigError
from core.models import ModelConfig, Seq2Seq, Shape, build_model
from core.tasks import PAD, TaskConfig, make_task
from tests.cases import each, instance

HYBRID: dict[str, Any] = dict(kind="hybrid", cell="lstm", num_heads=2, projection="multi_head")
MODELS = {
    "none": ModelConfig.recurrent(24, "dot"),
    "no attention": ModelConfig.recurrent(24, None),
    "input": ModelConfig.recurrent(24, "general", feeding="input"),
    "bahdanau": ModelConfig.recurrent(24, "additive", feeding="bahdanau"),
    "tied": ModelConfig.recurrent(24, "dot", cell="lstm", tied=True),
    "hybrid": ModelConfig.recurrent(24, "scaled_dot", **HYBRID),
    "hybrid, fed": ModelConfig.recurrent(24, "scaled_dot", **HYBRID, feeding="bahdanau"),
}


@each("config", MODELS.values())
def test_ten_examples_are_learned_by_heart(config):
    torch.manual_seed(0)
    task = make_task(TaskConfig.of("reverse", length=5, vocab=10))
    examples = task.held_out(10)
    batch, model = task.collate(examples), build_model(config, task.shape)
    optimizer, loss = torch.optim.AdamW(model.parameters(), lr=2e-2), torch.tensor(9.0)
    for _ in range(1000):
        logits = model(batch.source, batch.source_mask, batch.target_in).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss < 0.005:
            break
    assert loss < 0.005  # of 60 tokens none can then have less than half of the probability
    output = greedy(instance(model, Seq2Seq), batch.source, batch.source_mask).tolist()
    assert [tuple(task.target_vocab.decode(row)) for row in output] == [
        example.target for example in examples
    ]


def test_tied_weights_are_one_matrix():
    model: Any = build_model(MODELS["tied"], Shape(9, 11, 8))
    assert model.output.weight is model.target.weight
    assert "output.weight" not in dict(model.named_parameters())


def test_nothing_can_be_fed_where_nothing_is_found():
    with pytest.raises(
        ConfigError,
        match="feeding = bahdanau feeds the output of an attention .* take feeding = none",
    ):
        ModelConfig.recurrent(24, None, feeding="bahdanau")


@each("config", [MODELS["none"], MODELS["hybrid"]])
@each("more", [dict(input="patches"), dict(output="label")])
def test_a_shape_without_words_is_refused(config, more):
    with pytest.raises(ConfigError, match="reads tokens and writes tokens.*take kind = "):
        build_model(config, Shape(9, 11, 8, **more))


def test_a_table_of_positions_that_is_too_short_is_refused():
    short = ModelConfig.recurrent(
        24, "scaled_dot", **HYBRID, position=Choice.of("learned", max_len=7)
    )
    with pytest.raises(ConfigError, match="max_len = 7, but the task reaches 8"):
        build_model(short, Shape(9, 11, 8))


@each(
    "more",
    [
        dict(position="sinusoidal"),
        dict(position="alibi"),
        dict(mask="causal"),
        dict(mask=Choice.of("local", window=1)),
        dict(normalizer="sparsemax"),
    ],
)
def test_the_hybrids_self_attention_takes_what_one_sequence_can_have(more):
    """It changes what the encoder says, and padding still changes nothing."""
    plain: dict[str, Any] = dict(HYBRID, d_model=24, score="scaled_dot")
    models = []
    for config in (ModelConfig.recurrent(**plain), ModelConfig.recurrent(**plain, **more)):
        torch.manual_seed(0)
        models.append(build_model(config, Shape(9, 11, 8)).eval())
    source, target = torch.tensor([[5, 6, 7, 4, 8]]), torch.tensor([[1, 5, 6]])
    mask = torch.ones_like(source, dtype=torch.bool)
    before, after = (model(source, mask, target).logits for model in models)
    assert (before - after).abs().max() > 1e-4
    wider = torch.nn.functional.pad(source, (0, 3)), torch.nn.functional.pad(mask, (0, 3))
    torch.testing.assert_close(models[1](*wider, target).logits, after, rtol=1e-4, atol=1e-5)
