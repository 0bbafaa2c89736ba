"""ModelConfig and the tree of a model's parts; the Transformer against itself: masks, counts, and decoding step by step."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from core.attention import AXES, PRESETS, AttentionConfig
from core.attention.config import needs
from core.attention.positions import POSITIONS
from core.entries import Choice, ConfigError
from core.models import ModelConfig, Shape, build_model
from core.models.config import STACKED
from core.models.decoding import select_rows
from core.models.model_summary import Part, summarize, with_layers
from core.models.transformer import EncoderLayer
from core.tasks import TaskConfig, make_task
from core.training.evaluate import objective
from tests.attention.drawing import plain
from tests.cases import each
from tests.models.test_models import CASES, MODERN


@each(
    "config",
    [
        ModelConfig.transformer(
            24, 3, 2, 40, norm="pre", activation="gelu", dropout=0.1, position="rope"
        ),
        ModelConfig.recurrent(10, "additive", 2, cell="lstm", bidirectional=False),
        ModelConfig.recurrent(8, None),
        ModelConfig.recurrent(
            14, "general", 2, kind="hierarchical", cell="lstm", normalizer="sparsemax"
        ),
    ],
)
def test_json_and_back(config):
    assert (ModelConfig.from_json(json.loads(json.dumps(config.to_json()))), hash(config)) == (
        config,
        hash(ModelConfig.from_json(config.to_json())),
    )


BASE = ModelConfig.transformer(24, 3).to_json()
RECURRENT = ModelConfig.recurrent(24).to_json()


@each(
    ("data", "words"),
    [
        (BASE | {"kind": "mlp"}, "expected one of classifier, decoder"),
        (BASE | {"layers": 0}, "layers = 0; expected a whole number from 1"),
        (BASE | {"layers": True}, "layers = True"),
        (BASE | {"d_model": "24"}, "d_model = '24'"),
        (BASE | {"d_model": 48}, "give both the same"),
        (BASE | {"dropout": 1.0}, "dropout = 1.0"),
        (BASE | {"dropout": float("nan")}, "dropout = nan"),
        (BASE | {"attention": None}, "kind = transformer needs an attention"),
        (BASE | {"norm": "middle"}, "expected one of post, pre"),
        (BASE | {"heads": 3}, "has no heads"),
        ({"kind": "recurrent"}, "needs attention"),
        (RECURRENT | {"cell": "rnn"}, "expected one of gru, lstm"),
        (RECURRENT | {"bidirectional": 1}, "expected true or false"),
        (
            RECURRENT | {"attention": RECURRENT["attention"] | {"position": "rope"}},
            "position = rope does not go with it",
        ),
        (
            RECURRENT | {"attention": RECURRENT["attention"] | {"mask": "causal"}},
            "mask = causal has no meaning",
        ),
        (
            RECURRENT
            | {"d_model": 9, "attention": AttentionConfig(9, 1, "identity", "dot").to_json()},
            "even d_model",
        ),
        ([], "an object of its fields"),
    ],
)
def test_what_cannot_be_is_said(data, words):
    with pytest.raises(ConfigError, match=words):
        ModelConfig.from_json(data)


# A model taken apart: the parts add up, and what is counted is what closed forms and other counters say.


def squared(logits):
    return logits.square().mean()


def taken_apart(case, **changes):
    model, *inputs = case.made(**changes)
    model.train()
    return model, inputs, summarize(model, tuple(inputs), squared)


@each("case", CASES.values())
def test_the_parts_add_up_to_the_model_and_nothing_is_left_on_it(case):
    model, inputs, whole = taken_apart(case)
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert whole.parameters == sum(weight.numel() for weight in model.parameters())
    for part in whole.walk():
        if part.children:
            for what in ("parameters", "flops", "bytes"):
                assert getattr(part, what) == sum(
                    getattr(child, what) for child in part.children
                ), (part.path, what)
            gradients = [child.gradient for child in part.children if child.gradient is not None]
            assert part.gradient == pytest.approx(sum(g * g for g in gradients) ** 0.5)
    logits = model(*inputs).logits
    assert whole.shape == tuple(logits.shape) and whole.mean == pytest.approx(
        logits.mean().item(), abs=1e-5
    )
    assert whole.std == pytest.approx(logits.std(correction=0).item(), rel=1e-4)
    grads = torch.autograd.grad(squared(logits), list(model.parameters()))
    norm = torch.linalg.vector_norm(torch.stack([grad.norm() for grad in grads])).item()
    assert whole.gradient == pytest.approx(norm, rel=1e-4)


def test_flops_are_those_of_the_closed_form_and_of_torchs_counter():
    torch.manual_seed(0)
    B, T, C, INNER, V, LAYERS = 3, 11, 24, 40, 13, 2
    config = ModelConfig.transformer(C, 3, LAYERS, INNER, kind="decoder")
    model = build_model(config, Shape(V, V, 12, one_vocabulary=True))
    source, mask = torch.randint(4, V, (B, T)), torch.ones(B, T, dtype=torch.bool)
    whole = summarize(model, (source, mask, None), squared)
    maps = 2 * B * T * (LAYERS * (4 * C * C + 2 * C * INNER) + C * V)
    met = 2 * LAYERS * (2 * B * T * T * C)  # q · k and weights · v, masked cells too
    assert whole.flops == maps + met
    counter = FlopCounterMode(display=False)
    with counter:
        model(source, mask, record=True)  # the exact kernel, whose products torch counts
    assert whole.flops == counter.get_total_flops()
    layer = whole.layers()[0]
    assert ([child.title for child in layer.children][::2], layer.flops) == (
        [
            "Causal self-attention",
            "Feed-forward",
        ],
        (maps - 2 * B * T * C * V + met) / LAYERS,
    )


def test_bytes_are_what_autograd_keeps():
    model, inputs, whole = taken_apart(CASES["transformer-modern"])
    own, saved = {weight.untyped_storage().data_ptr() for weight in model.parameters()}, {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(*inputs).logits
    assert logits.requires_grad
    assert whole.bytes == sum(
        t.untyped_storage().nbytes() for place, t in saved.items() if place not in own
    )


def test_a_tied_matrix_is_counted_once_where_it_is_looked_up():
    _, _, whole = taken_apart(CASES["decoder-tied"])
    parts = {part.path: part for part in whole.walk()}
    assert parts["target"].parameters == 17 * 12 and parts["output"].parameters == 17


def test_parts_stand_in_the_order_in_which_they_run():
    for norm, first in (("pre", "Add and norm"), ("post", "Self-attention")):
        model = build_model(ModelConfig.transformer(12, 3, 2, norm=norm), Shape(9, 9, 9))
        source, mask = torch.randint(4, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
        whole = summarize(model, (source, mask, source), squared)
        assert whole.layers()[0].children[0].title == first
        paths = [part.path for part in whole.layers()]
        assert paths == ["encoder.layers.0", "encoder.layers.1", "layers.0", "layers.1"]


@each("item", [item for item in PRESETS if item.config(24, 1).projection.key != "identity"])
def test_any_mechanism_is_taken_apart(item):
    attention = item.config(24, 2)
    model = build_model(
        ModelConfig("decoder", 24, 2, attention, d_ff=16), Shape(9, 9, 9, one_vocabulary=True)
    )
    source, mask = torch.randint(4, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    whole = summarize(
        model,
        (source, mask, source),
        lambda out: F.cross_entropy(out.flatten(0, 1), source.flatten()),
    )
    assert whole.parameters == sum(weight.numel() for weight in model.parameters())
    assert whole.flops and whole.bytes and whole.gradient


# The outline of a deep model is what the deep model itself is measured to be, but for its weights.


TASK = {
    "transformer": "reverse",
    "decoder": "reverse",
    "classifier": "digits",
    "one_token": "iris",
    "forecaster": "series",
}
LOCAL = ModelConfig.transformer(24, 3, kind="decoder", position="alibi").required_attention


def measured(config: ModelConfig) -> Part:
    task = make_task(TaskConfig.of(TASK[config.kind]))
    batch, goal = task.collate(task.held_out(2)[:2]), objective(task)
    return summarize(
        build_model(config, task.shape),
        (batch.source, batch.source_mask, batch.target_in),
        lambda logits: goal.loss(logits, batch),
    )


def without_weights(part: Part) -> Part:
    return replace(
        part,
        mean=None,
        std=None,
        gradient=None,
        bytes=0,
        children=tuple(map(without_weights, part.children)),
    )


PLAIN = ModelConfig.transformer(24, 3, kind="decoder", position="none")


@each(
    ("layers", "config"),
    [
        *(
            (4, ModelConfig.transformer(24, 3, kind=kind, **blocks))
            for kind in STACKED
            for blocks in (MODERN, dict[str, Any]())
        ),
        *(
            (3, ModelConfig.transformer(24, 3, kind="decoder", position=entry.key))
            for entry in POSITIONS
        ),
        *((layers, replace(PLAIN, following=(LOCAL, LOCAL))) for layers in (3, 4, 7)),
    ],
)
def test_layers_are_repeated_in_the_order_of_the_pattern(layers, config):
    deep, shallow = replace(config, layers=layers), replace(config, layers=len(config.pattern))
    outline = with_layers(measured(shallow), layers, deep.layer_names)
    assert without_weights(outline) == without_weights(measured(deep))
    assert all(part.mean is part.std is part.gradient is None for part in outline.walk())


# The Transformer against itself: without feed-forward, masks that ask for padding, and decoding step by step.

C, HEADS, D_FF, B, T, S = 21, 3, 13, 5, 7, 11


@each("norm", ["post", "pre"])
def test_without_feed_forward_a_layer_is_its_attention_and_nothing_after_it(norm):
    layer = EncoderLayer(ModelConfig.transformer(C, HEADS, d_ff=0, norm=norm))
    x = torch.randn(B, S, C)
    around = layer.around_attention
    attended = layer.attention(around.norm(x) if norm == "pre" else x).merged
    expected = x + attended if norm == "pre" else around.norm(x + attended)
    assert torch.allclose(layer(x)[0], expected, atol=1e-5)
    assert {name.partition(".")[0] for name, _ in layer.named_parameters()} == {
        "attention",
        "around_attention",
    }


def test_padding_mask_and_compositions_can_be_asked_for():
    torch.manual_seed(0)
    source, real = torch.randint(4, 9, (2, 5)), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    for mask in ("padding", Choice.of("and", Choice("padding"), Choice.of("local", window=1))):
        model = build_model(ModelConfig.transformer(8, 2, mask=mask), Shape(9, 9, 8)).eval()
        for keep in (real, torch.ones_like(real)):
            out = model(source, keep, source[:, :3], record=True)
            assert out.logits.shape == (2, 3, 9)
            assert out.logits.isfinite().all()
    far = out.maps["self"][0].weights[0, 0, 0, 2:]
    assert torch.equal(far, torch.zeros_like(far))


# Stepwise decoding computes the source's keys and values once, with the logits of the whole target at once.


ONCE_C, H, ONCE_S = 24, 3, 7
KINDS = {
    "transformer": lambda choices: ModelConfig.transformer(ONCE_C, H, 2, **choices),
    "recurrent": lambda choices: ModelConfig.recurrent(
        ONCE_C, num_heads=H, **{"projection": "multi_head"} | choices
    ),
    "bahdanau": lambda choices: ModelConfig.recurrent(
        ONCE_C,
        num_heads=H,
        feeding="bahdanau",
        **{"projection": "multi_head"} | choices,
    ),
    "hybrid": lambda choices: ModelConfig.recurrent(
        ONCE_C, kind="hybrid", num_heads=H, **{"projection": "multi_head"} | choices
    ),
}


def build(kind, axis, key):
    """An untrained model of that kind with that choice, and the tokens of each context that its cross-attention
    projects from now on."""
    try:
        config = KINDS[kind]({axis: plain(axis, key)} | needs(axis, key))
        model: Any = build_model(config, Shape(11, 13, 17)).eval()
    except ConfigError:
        pytest.skip("does not go with this model")
    layers, lengths = (
        [layer.cross for layer in model.layers] if kind == "transformer" else [model.attention],
        [],
    )
    for layer in layers:
        layer.projection.register_forward_pre_hook(
            lambda module, given: lengths.append(given[1].shape[1])
        )
    return model, lengths, len(layers)


@each("kind", KINDS)
@each(
    ("axis", "key"),
    [(axis, item.key) for axis in ("projection", "score", "kernel") for item in AXES[axis]],
)
@torch.no_grad()
def test_the_source_is_projected_once(kind, axis, key):
    model, lengths, layers = build(kind, axis, key)
    source, mask = (
        torch.randint(4, 11, (2, ONCE_S)),
        torch.arange(ONCE_S) < torch.tensor([[ONCE_S], [5]]),
    )
    tokens, rows, logits = torch.randint(4, 13, (2, 5)), torch.tensor([1, 0]), []
    memory = model.encode(source, mask)
    whole = model.decode(memory, tokens).logits
    lengths.clear()
    state = model.start(memory)
    for number, token in enumerate(tokens.unbind(1)):
        if number == 2:
            memory, state = select_rows(memory, rows), select_rows(state, rows)
        one, state, _ = model.step(memory, state, token if number < 2 else token[rows])
        logits.append(one if number < 2 else one[rows])
    torch.testing.assert_close(torch.stack(logits, 1), whole, rtol=1e-4, atol=1e-4)
    assert [length for length in lengths if length] == [ONCE_S] * layers
