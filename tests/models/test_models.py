"""What every model promises, recurrent or not: padding changes nothing, steps equal teacher forcing, seeds repeat."""

import copy
from typing import Any

import pytest
import torch

from core.entries import Choice, ConfigError
from core.models import ModelConfig, Seq2Seq, Shape, build_model
from core.models.config import RECURRENT
from core.models.decoding import greedy
from core.tasks import PAD, TaskConfig, make_task
from tests.cases import each, instance

POSITIONS = {
    "none": "post",
    "sinusoidal": "pre",
    "learned": "post",
    "rope": "pre",
    "alibi": "post",
}  # and the norm
SCORES = ("dot", "scaled_dot", "general", "concat", "additive")
CONFIGS = {
    **{
        f"transformer-{p}-{n}": ModelConfig.transformer(12, 3, 2, norm=n, position=p)
        for p, n in POSITIONS.items()
    },
    **{f"gru-{s}": ModelConfig.recurrent(10, s) for s in (*SCORES, None)},
    "gru-multi-head": ModelConfig.recurrent(10, "scaled_dot", num_heads=5, projection="multi_head"),
    "gru-two-layers": ModelConfig.recurrent(10, "dot", 2, bidirectional=False),
    "lstm": ModelConfig.recurrent(10, "general", cell="lstm"),
    "lstm-two-layers": ModelConfig.recurrent(10, None, 2, cell="lstm"),
    "gru-input": ModelConfig.recurrent(10, "general", feeding="input"),
    "gru-input-local": ModelConfig.recurrent(10, "general", feeding="input", mask="local_p"),
    "lstm-input-two-layers": ModelConfig.recurrent(
        10, "dot", 2, cell="lstm", feeding="input", tied=True
    ),
    "gru-bahdanau": ModelConfig.recurrent(10, "additive", feeding="bahdanau"),
    "lstm-bahdanau-two-layers": ModelConfig.recurrent(
        10, "additive", 2, cell="lstm", bidirectional=False, feeding="bahdanau"
    ),
    "hybrid": ModelConfig.recurrent(
        10, "scaled_dot", kind="hybrid", cell="lstm", num_heads=5, projection="multi_head"
    ),
    "hybrid-input": ModelConfig.recurrent(
        10,
        "scaled_dot",
        kind="hybrid",
        cell="lstm",
        num_heads=5,
        projection="multi_head",
        feeding="input",
        position="rope",
        mask="causal",
    ),
}
SOURCE_VOCAB, TARGET_VOCAB, LENGTHS, T = 13, 17, (7, 2, 1, 5), 6
SHAPE = Shape(SOURCE_VOCAB, TARGET_VOCAB, 20)

every_model = each("config", CONFIGS.values())


def made(config):
    torch.manual_seed(0)
    model = build_model(config, SHAPE).eval()
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    source = torch.randint(4, SOURCE_VOCAB, mask.shape).masked_fill(~mask, 0)
    return model, source, mask, torch.randint(4, TARGET_VOCAB, (len(LENGTHS), T))


@every_model
def test_padding_changes_nothing(config):
    model, source, mask, target = made(config)
    together = model(source, mask, target).logits
    wider = torch.nn.functional.pad(source, (0, 4), value=9), torch.nn.functional.pad(mask, (0, 4))
    torch.testing.assert_close(model(*wider, target).logits, together, rtol=1e-4, atol=1e-5)
    for row, n in enumerate(LENGTHS):
        alone = model(
            source[row : row + 1, :n], mask[row : row + 1, :n], target[row : row + 1]
        ).logits
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)


@every_model
def test_steps_equal_teacher_forcing(config):
    model, source, mask, target = made(config)
    forced = model(source, mask, target, record=True)
    memory = model.encode(source, mask)
    state = model.start(memory)
    for t in range(T):
        logits, state, maps = model.step(memory, state, target[:, t], record=True)
        torch.testing.assert_close(logits, forced.logits[:, t], rtol=1e-4, atol=1e-5)
        for kind in maps:
            for step, whole in zip(maps[kind], forced.maps[kind], strict=True):
                seen = step.weights.shape[-1]
                torch.testing.assert_close(
                    step.weights[:, :, 0], whole.weights[:, :, t, :seen], rtol=1e-4, atol=1e-5
                )


@every_model
def test_recording_keeps_every_map_and_changes_nothing(config):
    model, source, mask, target = made(config)
    plain, recorded = model(source, mask, target), model(source, mask, target, record=True)
    torch.testing.assert_close(plain.logits, recorded.logits, rtol=1e-4, atol=1e-5)
    assert plain.maps == {}
    kinds = {"recurrent": ("cross",), "hybrid": ("self", "cross")}.get(
        config.kind, ("self", "causal", "cross")
    )
    kinds = kinds if config.attention else ()
    assert tuple(recorded.maps) == kinds
    for kind, layers in recorded.maps.items():
        assert len(layers) == (1 if config.kind in RECURRENT else config.layers)
        queries, keys = {"self": (7, 7), "causal": (T, T), "cross": (T, 7)}[kind]
        for steps in layers:
            assert steps.weights.shape == (4, config.num_heads, queries, keys)
            if config.attention.mask.key != "local_p":  # whose Gaussian takes from the sum
                torch.testing.assert_close(
                    steps.weights.sum(-1), torch.ones(4, config.num_heads, queries)
                )
            if kind != "causal":
                assert steps.weights.masked_select(~mask[:, None, None]).abs().sum() == 0


@every_model
def test_the_future_is_not_seen_and_every_weight_is_used(config):
    model, source, mask, target = made(config)
    later = target.clone()
    later[:, 4:] = 5
    torch.testing.assert_close(
        model(source, mask, later).logits[:, :4], model(source, mask, target).logits[:, :4]
    )
    model(source, mask, target).logits.square().sum().backward()
    unused = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.isfinite().all()
    ]
    assert not unused


@every_model
def test_the_same_seed_gives_the_same_model(config):
    first, second = made(config)[0], made(config)[0]
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    second.load_state_dict(first.state_dict())


@each("name", ["transformer-rope-pre", "gru-scaled_dot"])
def test_a_copy_keeps_both_kernels_on_its_own_weights(name):
    model, source, mask, target = made(CONFIGS[name])
    before = model(source, mask, target).logits
    twin = copy.deepcopy(model).double()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    fused, exact = (twin(source, mask, target, record=record).logits for record in (False, True))
    torch.testing.assert_close(fused, exact)
    assert torch.equal(model(source, mask, target).logits, before)


@each("cell", ["gru", "lstm"])
def test_without_attention_only_the_last_state_is_left(cell):
    """Bidirectional states end where a sentence begins, too: nothing else may tell two memories apart."""
    torch.manual_seed(0)
    model: Any = build_model(ModelConfig.recurrent(10, None, cell=cell), SHAPE).eval()
    memory = model.encode(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool))
    other = type(memory)(torch.randn_like(memory.states), memory.mask, memory.last)
    target = torch.tensor([[1, 8, 9]])
    assert torch.equal(model.decode(memory, target).logits, model.decode(other, target).logits)


def test_a_source_without_tokens_and_padding_in_front_are_refused():
    model, source, mask, target = made(CONFIGS["gru-dot"])
    with pytest.raises(ValueError, match="at least one"):
        model(source, mask & (torch.arange(4) != 1)[:, None], target)
    with pytest.raises(ValueError, match="must follow"):
        model(source, mask.flip(1), target)


# Recurrent models and the hybrid learn ten examples by heart, and say in words what they cannot be.


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
