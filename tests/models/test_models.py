"""What every model promises: padding, records, steps, the future, checkpointing, dropout, tied matrices, refusals."""

import copy
import json
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from core.attention import AXES, PRESETS, AttentionConfig
from core.attention.config import needs
from core.attention.positions import POSITIONS
from core.entries import Choice, ConfigError
from core.models import RECURRENT, STACKED, ModelConfig, Shape, build_model, map_tokens
from core.models.base import concatenate
from core.models.decoding import select_rows
from core.models.model_summary import Part, summarize, with_layers
from core.models.transformer import EncoderLayer
from core.tasks import TaskConfig, make_task
from core.training.evaluate import objective
from tests.attention.drawing import plain
from tests.cases import each

LENGTHS, T, AHEAD, CLASSES, WORDS, SENTENCE = (7, 2, 1, 5), 6, 4, 3, 13, 17
S, B = max(LENGTHS), len(LENGTHS)


@dataclass(frozen=True)
class Case:
    config: ModelConfig
    shape: Shape
    fed: bool = False  # whether it is given a target

    def made(self, **changes):
        """The model in eval mode, a padded source, its mask and the target (None where there is none)."""
        torch.manual_seed(0)
        model = build_model(
            ModelConfig.from_json(self.config.to_json() | changes), self.shape
        ).eval()
        mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
        if self.shape.input == "tokens":
            source = torch.randint(4, WORDS, mask.shape).masked_fill(~mask, 0)
        elif self.shape.input == "features":
            source = torch.stack(
                [
                    torch.randint(count, (B,)) if count else torch.randn(B)
                    for count in self.shape.columns
                ],
                1,
            )
            mask = torch.rand(source.shape) < 0.7
            mask[:, 1] = True
            source = source.masked_fill(~mask, float("nan"))  # missing
        else:
            source = torch.randn(B, S, self.shape.source)
        return model, source, mask, torch.randint(4, SENTENCE, (B, T)) if self.fed else None


def of(kind, **more):
    return ModelConfig.transformer(12, 3, 2, kind=kind, **more)


def cells(**more):
    options: dict[str, Any] = {"d_model": 14, "score": "additive", "kind": "hierarchical"} | more
    return ModelConfig.recurrent(**options)


ONE, TWO = Shape(SENTENCE, SENTENCE, 12, one_vocabulary=True), Shape(WORDS, SENTENCE, 12)
LABEL = Shape(WORDS, CLASSES, 12, output="label")
PATCHES = Shape(5, CLASSES, 12, "patches", "label")
ROW = Shape(4, CLASSES, 12, "features", "label", columns=(0, 0, 3, 0))
SERIES = Shape(2, AHEAD, 12, "series", "values")
MODERN = {"norm": "pre", "normalization": "rms", "activation": "swiglu"}
CASES = {
    "decoder-one-vocabulary": Case(of("decoder", position="learned"), ONE, True),
    "decoder-two-vocabularies": Case(of("decoder", position="rope", **MODERN), TWO, True),
    "decoder-tied": Case(of("decoder", tied=True, position="alibi", norm="pre"), TWO, True),
    "decoder-patches": Case(
        of("decoder", position="learned"), Shape(5, SENTENCE, 12, "patches"), True
    ),
    "decoder-text": Case(
        of("decoder", tied=True, position="sinusoidal", norm="pre", activation="gelu"), ONE
    ),
    "classifier-first": Case(of("classifier", position="learned", **MODERN), LABEL),
    "classifier-mean": Case(of("classifier", position="rope", pool="mean"), LABEL),
    "classifier-patches": Case(
        of("classifier", position="learned", norm="pre", activation="gelu", mask="local_p"), PATCHES
    ),
    "classifier-features": Case(of("classifier", mask=Choice.of("local", window=1)), ROW),
    "classifier-features-mean": Case(of("classifier", pool="mean", norm="pre"), ROW),
    "one-token": Case(of("one_token", norm="pre", position=Choice.of("learned", max_len=1)), ROW),
    "forecaster": Case(of("forecaster", position="sinusoidal", norm="pre"), SERIES),
    "forecaster-causal": Case(of("forecaster", position="rope", mask="causal"), SERIES),
    "transformer-modern": Case(of("transformer", tied=True, position="rope", **MODERN), TWO, True),
    "decoder-over-depth": Case(
        of("decoder", tied=True, position="rope", residual="attention", **MODERN), TWO, True
    ),
    "decoder-streams": Case(
        of("decoder", position="rope", residual="hyper", streams=3, norm="pre"), ONE, True
    ),
    "transformer-over-depth": Case(
        of("transformer", position="rope", residual="attention", norm="pre"), TWO, True
    ),
    "transformer-streams": Case(
        of("transformer", position="rope", residual="hyper", **MODERN), TWO, True
    ),
    "classifier-over-depth": Case(
        of("classifier", position="learned", residual="attention", **MODERN), LABEL
    ),
    "forecaster-streams": Case(
        of("forecaster", position="sinusoidal", norm="pre", residual="hyper", streams=2), SERIES
    ),
    "transformer-patches": Case(
        of("transformer", position=Choice.of("learned", max_len=12)),
        Shape(5, SENTENCE, 12, "patches"),
        True,
    ),
}


# and the norm
NORMS = {"none": "post", "sinusoidal": "pre", "learned": "post", "rope": "pre", "alibi": "post"}
CONFIGS = {
    **{
        f"transformer-{p}-{n}": ModelConfig.transformer(12, 3, 2, norm=n, position=p)
        for p, n in NORMS.items()
    },
    **{
        f"gru-{s}": ModelConfig.recurrent(10, s)
        for s in ("dot", "scaled_dot", "general", "concat", "additive", None)
    },
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
HYBRID_CHOICES: list[dict[str, Any]] = [  # what one sequence can have
    {"position": "sinusoidal"},
    {"position": "alibi"},
    {"mask": "causal"},
    {"mask": Choice.of("and", Choice("local"), Choice("padding"))},
    {"normalizer": "sparsemax"},
]
CONFIGS |= {
    f"hybrid, {more}": ModelConfig.recurrent(10, "scaled_dot", kind="hybrid", **more)
    for more in HYBRID_CHOICES
}
RECURRENT_CASES = {name: Case(config, TWO, True) for name, config in CONFIGS.items()}
EVERY_CASE = CASES | RECURRENT_CASES


every = each("case", EVERY_CASE.values())
every_stack = each("case", CASES.values())
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


@every
def test_padding_changes_nothing(case):
    model, source, mask, target = case.made()
    together = model(source, mask, target).logits
    # every row has every column; one that is missing may hold anything
    if case.shape.input == "features":
        torch.testing.assert_close(
            model(torch.where(mask, source, torch.tensor([5.0, -1.0, 2.0, 1e6])), mask).logits,
            together,
            **CLOSE,
        )
        return
    more = (0, 4) if source.dim() == 2 else (0, 0, 0, 4)
    wider = torch.nn.functional.pad(source, more, value=9), torch.nn.functional.pad(mask, (0, 4))
    text = case.shape.output == "tokens" and target is None
    wide = model(*wider, target).logits
    torch.testing.assert_close(wide[:, :S] if text else wide, together, **CLOSE)
    for row, n in enumerate(LENGTHS):
        alone = model(
            source[row : row + 1, :n],
            mask[row : row + 1, :n],
            None if target is None else target[row : row + 1],
        ).logits[0]
        torch.testing.assert_close(alone, together[row, :n] if text else together[row], **CLOSE)


@every
def test_recording_changes_nothing_and_keeps_every_map(case):
    model, source, mask, target = case.made()
    config = model.config
    plain, recorded = model(source, mask, target), model(source, mask, target, record=True)
    torch.testing.assert_close(plain.logits, recorded.logits, **CLOSE)
    assert not plain.maps and not plain.source_attention
    names = [str(i) for i in range(source.shape[1])]
    bare = ["w"] * (T - 1) if case.fed else ["0"] * AHEAD if case.shape.output == "values" else None
    kinds = {
        "transformer": ("self", "causal", "cross"),
        "decoder": ("causal",),
        "recurrent": ("cross",) if config.attention else (),
        "hybrid": ("self", "cross"),
    }.get(config.kind, ("self",))
    assert tuple(recorded.maps) == kinds
    for kind, layers in recorded.maps.items():
        rows, columns = map(len, map_tokens(config, kind, names, bare))
        assert len(layers) == (1 if config.kind in RECURRENT else config.layers)
        for steps in layers:
            assert steps.weights.shape == (B, config.num_heads, rows, columns)
            if kind == "cross":
                assert not steps.weights.masked_select(~mask[:, None, None]).any()
            # whose Gaussian takes from the sum
            if kind == "cross" and config.attention.mask.key != "local_p":
                torch.testing.assert_close(
                    steps.weights.sum(-1), torch.ones(B, config.num_heads, rows)
                )
    if config.kind == "one_token" or config.attention is None:
        assert not recorded.source_attention
        return
    outputs = recorded.logits.shape[1] if case.shape.output != "label" else 1
    for attention in recorded.source_attention:
        assert attention.shape == (B, config.num_heads, outputs, source.shape[1])
        # a text's padding looks too, and is never asked
        if not (case.shape.output == "tokens" and target is None):
            assert attention.masked_select(~mask[:, None, None]).abs().sum() == 0
        assert attention.sum(-1).max() <= 1 + 1e-5 and attention.sum() > 0.1
    if recorded.visible is not None:
        assert recorded.visible.shape == (B, 1) or recorded.visible.shape == (B, outputs)


def test_looks_of_decoder_are_its_target_rows_on_its_source():
    model, source, mask, target = CASES["decoder-two-vocabularies"].made()
    recorded = model(source, mask, target, record=True)
    for row, n in enumerate(LENGTHS):
        for attention, steps in zip(
            recorded.source_attention, recorded.maps["causal"], strict=True
        ):
            torch.testing.assert_close(
                attention[row, :, :, :n], steps.weights[row, :, n : n + T, :n]
            )
        assert recorded.visible[row].tolist() == [n + 1 + t for t in range(T)]


def test_looks_of_a_classifier_are_a_row():
    model, source, mask, _ = CASES["classifier-first"].made()
    recorded = model(source, mask, record=True)
    torch.testing.assert_close(
        recorded.source_attention[1][:, :, 0], recorded.maps["self"][1].weights[:, :, 0, 1:]
    )
    model, source, mask, _ = CASES["classifier-mean"].made()
    recorded = model(source, mask, record=True)
    torch.testing.assert_close(
        recorded.source_attention[0][1, :, 0], recorded.maps["self"][0].weights[1, :, :2].mean(1)
    )


@every
def test_every_weight_is_used(case):
    model, source, mask, target = case.made()
    logits = model(source, mask, target).logits
    assert torch.equal(pickle.loads(pickle.dumps(model))(source, mask, target).logits, logits)
    logits.square().sum().backward()
    assert not [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.isfinite().all()
    ]
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.parameters(), case.made()[0].parameters(), strict=True)
    )


@each("case", [case for case in EVERY_CASE.values() if case.shape.output == "tokens"])
def test_the_future_is_not_seen(case):
    model, source, mask, target = case.made()
    before = model(source, mask, target).logits
    if target is None:
        source = torch.cat((source[:, :3], 12 - source[:, 3:]), 1)
    else:
        target = torch.cat((target[:, :3], torch.full_like(target[:, 3:], 5)), 1)
    after = model(source, mask, target).logits
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@each("case", [case for case in EVERY_CASE.values() if case.shape.output == "tokens"])
def test_word_by_word_it_says_what_it_says_at_once(case):
    model, source, mask, target = case.made()
    start = 0
    if target is None:  # a text: its first half is the source, the rest goes on from its last token
        start, source, mask, tokens = 2, source[:1], mask[:1], source[:1, 2:]
    elif model.config.kind == "decoder":
        source, mask, tokens = (
            source[1:2].expand(B, *source.shape[1:]),
            mask[1:2].expand(B, -1),
            target,
        )
    else:
        tokens = target
    forced = model(source, mask, target, record=True)
    memory = model.encode(source[:, : start or None], mask[:, : start or None])
    if target is not None:
        torch.testing.assert_close(model.decode(memory, target).logits, forced.logits, **CLOSE)
    state = model.start(memory)
    for t, token in enumerate(tokens.unbind(1)):
        logits, state, maps = model.step(memory, state, token, record=True)
        torch.testing.assert_close(logits, forced.logits[:, start + t], **CLOSE)
        assert maps or model.config.attention is None
        for kind in maps if start == 0 and model.config.kind != "decoder" else ():
            for step, whole in zip(maps[kind], forced.maps[kind], strict=True):
                torch.testing.assert_close(
                    step.weights[:, :, 0], whole.weights[:, :, t, : step.weights.shape[-1]], **CLOSE
                )


def test_a_decoder_refuses_sources_of_two_lengths():
    model, source, mask, _ = CASES["decoder-two-vocabularies"].made()
    assert model.one_length
    pytest.raises(ValueError, model.encode, source, mask).match("one length")


@every_stack
def test_checkpointing_computes_the_same_gradients(case):
    gradients, kept = [], []
    for checkpointing in (False, True):
        model, source, mask, target = case.made(dropout=0.3)
        model.train().checkpointing = checkpointing
        sizes: list[int] = []

        def pack(saved, sizes=sizes):
            sizes.append(saved.numel())
            return saved

        torch.manual_seed(5)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            logits = model(source, mask, target).logits
        kept.append(sum(sizes))
        gradients.append(torch.autograd.grad(logits.square().sum(), list(model.parameters())))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert kept[1] < 0.7 * kept[0]


@every_stack
def test_dropout_acts_in_training_alone(case):
    model, source, mask, target = case.made(dropout=0.5)
    assert torch.equal(model(source, mask, target).logits, model(source, mask, target).logits)
    model.train()
    assert not torch.equal(model(source, mask, target).logits, model(source, mask, target).logits)


@each(
    ("config", "more", "fewer"),
    [
        (of("decoder"), {"tied": True}, SENTENCE * 12),
        (of("transformer"), {"tied": True}, SENTENCE * 12),
        (of("decoder"), {"output_bias": False}, SENTENCE),
        (of("transformer"), {"output_bias": False}, SENTENCE),
        (CONFIGS["gru-dot"], {"tied": True}, SENTENCE * 10),
    ],
)
def test_tied_matrices_are_one_and_a_bias_can_be_left_out(config, more, fewer):
    whole, less = (
        dict(build_model(ModelConfig.from_json(config.to_json() | changes), TWO).named_parameters())
        for changes in (dict[str, Any](), more)
    )
    assert sum(p.numel() for p in whole.values()) - sum(p.numel() for p in less.values()) == fewer
    assert not {"output.weight" if "tied" in more else "output.bias"} & less.keys()


@each(
    ("config", "std"),
    [
        (ModelConfig.transformer(16, 2, 3, 64, kind="decoder", tied=True), 0.05),
        (ModelConfig.transformer(128, 2, 3, 64, tied=True), 2 / 128),
        (ModelConfig.recurrent(64, tied=True), 1 / 8),
    ],
)
def test_a_tied_matrix_begins_small(config, std):
    # What a layer's feed-forward adds is 1/√(2 · 3) of PyTorch's ±1/√64.
    model: Any = build_model(config, Shape(900, 900, 9))
    assert model.output.weight.std().item() == pytest.approx(std, rel=0.03)
    for layer in getattr(model, "layers", ()):
        most = layer.feed_forward.outer.weight.abs().max().item()
        assert most == pytest.approx(1 / 8 / 6**0.5, rel=0.03)


def test_one_vocabulary_has_one_embedding():
    one, two = (
        build_model(of("decoder"), Shape(9, 9, 12, one_vocabulary=flag)) for flag in (True, False)
    )
    counts = [sum(p.numel() for p in model.parameters()) for model in (one, two)]
    assert counts[1] - counts[0] == 9 * 12


def test_a_row_of_one_token_leaves_no_choice():
    model, source, mask, _ = CASES["one-token"].made()
    before = model(source, mask, record=True)
    assert all(torch.equal(steps.weights, torch.ones(B, 3, 1, 1)) for steps in before.maps["self"])
    with torch.no_grad():
        for layer in model.encoder.layers:
            for linear in (layer.attention.projection.query, layer.attention.projection.key):
                linear.weight.normal_()
    torch.testing.assert_close(model(source, mask).logits, before.logits)


def test_a_forecast_follows_the_units_of_its_series():
    model, source, mask, _ = CASES["forecaster"].made()
    mask = torch.ones_like(mask)
    torch.testing.assert_close(
        model(30 * source + 7, mask).logits,
        30 * model(source, mask).logits + 7,
        rtol=1e-3,
        atol=1e-3,
    )


def test_two_sequences_in_one_line_have_no_hole():
    first, second = torch.arange(1.0, 7).reshape(2, 3, 1), torch.arange(11.0, 15).reshape(2, 2, 1)
    line, places = concatenate(
        first, torch.tensor([[True, False, False], [True, True, True]]), second
    )
    assert line[0, :3, 0].tolist() == [1, 11, 12] and line[1, :, 0].tolist() == [4, 5, 6, 13, 14]
    assert places.tolist() == [[1, 2], [3, 4]]


@each(
    ("config", "shape", "words"),
    [
        (of("transformer"), ROW, "reads tokens or patches, and this task has features"),
        (of("decoder"), SERIES, "kind = decoder reads tokens or patches"),
        (of("classifier"), TWO, "answers with label, and this task has tokens"),
        (of("one_token"), LABEL, "reads features"),
        (of("forecaster"), TWO, "reads series"),
        (of("decoder", position="learned"), Shape(9, 9, 300), "max_len ≥ 600"),
        (of("classifier", position=Choice.of("learned", max_len=12)), LABEL, "max_len ≥ 13"),
        (of("forecaster", position=Choice.of("learned", max_len=15)), SERIES, "max_len ≥ 16"),
        (CONFIGS["gru-dot"], Shape(9, 11, 8, "patches"), "kind = recurrent reads tokens"),
        (
            CONFIGS["gru-dot"],
            LABEL,
            "kind = recurrent answers with tokens, and this task has label",
        ),
        (CONFIGS["hybrid"], LABEL, "kind = hybrid answers with tokens"),
        (
            ModelConfig.recurrent(
                10, "scaled_dot", kind="hybrid", position=Choice.of("learned", max_len=7)
            ),
            TWO,
            "max_len = 7, but the task reaches 12",
        ),
        (cells(), LABEL, "no token that ends a sentence"),
        (cells(), TWO, "answers with label"),
        (cells(), PATCHES, "reads tokens"),
    ],
)
def test_what_a_model_cannot_serve_is_said(config, shape, words):
    pytest.raises(ConfigError, build_model, config, shape).match(words)


@each(
    ("words", "make", "more"),
    [
        ("does not read pool", of, {"kind": "decoder", "pool": "mean"}),
        ("does not read tied", of, {"kind": "classifier", "tied": True}),
        ("does not read output_bias", of, {"kind": "classifier", "output_bias": False}),
        ("take pool = mean", of, {"kind": "classifier", "mask": "causal"}),
        ("take pool = mean", of, {"kind": "classifier", "mask": "moba"}),
        (
            "take pool = mean",
            of,
            {"kind": "classifier", "mask": Choice.of("and", Choice("local"), Choice("moba"))},
        ),
        ("single head", of, {"kind": "forecaster", "projection": "identity"}),
        (
            "feeding = bahdanau feeds the output of an attention .* take feeding = none",
            ModelConfig.recurrent,
            {"score": None, "feeding": "bahdanau"},
        ),
        ("does not read feeding", cells, {"feeding": "input"}),
        ("does not read tied", cells, {"tied": True}),
        ("single head; take num_heads = 1", cells, {"num_heads": 2}),
        ("take mask = none, padding", cells, {"mask": "local_m"}),
        ("has no position", cells, {"mask": "causal"}),
        ("take position = none", cells, {"position": "rope"}),
        (
            "kernel = linear cannot take",
            cells,
            {"score": "scaled_dot", "kernel": "linear", "projection": "multi_head"},
        ),
        ("needs an attention", cells, {"score": None}),
        ("d_model = '64'", ModelConfig.recurrent, {"d_model": "64"}),
        ("num_heads = 5 does not divide", ModelConfig.transformer, {"num_heads": 5, "d_model": 24}),
    ],
)
def test_settings_that_mean_nothing_are_refused(words, make, more):
    pytest.raises(ConfigError, make, **more).match(words)


@each("name", ["transformer-rope-pre", "gru-scaled_dot"])
def test_a_copy_keeps_both_kernels_on_its_own_weights(name):
    model, source, mask, target = EVERY_CASE[name].made()
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
    # Bidirectional states end where a sentence begins, too: nothing else may tell two memories apart.
    torch.manual_seed(0)
    model: Any = build_model(ModelConfig.recurrent(10, None, cell=cell), TWO).eval()
    memory = model.encode(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool))
    other = type(memory)(torch.randn_like(memory.states), memory.mask, memory.last)
    target = torch.tensor([[1, 8, 9]])
    assert torch.equal(model.decode(memory, target).logits, model.decode(other, target).logits)


@each(
    ("name", "words", "spoil"),
    [
        ("classifier-features", "3 columns; this model reads 4", lambda x, m: (x[:, :3], m[:, :3])),
        ("gru-dot", "at least one", lambda x, m: (x, m & (torch.arange(B) != 1)[:, None])),
        ("gru-dot", "must follow", lambda x, m: (x, m.flip(1))),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(name, words, spoil):
    model, source, mask, target = EVERY_CASE[name].made()
    with pytest.raises(ValueError, match=words):
        model(*spoil(source, mask), target)


@each("name", [name for name in CONFIGS if name.startswith("hybrid, ")])
def test_each_choice_changes_what_the_hybrid_says(name):
    model, source, mask, target = RECURRENT_CASES[name].made()
    plain = Case(ModelConfig.recurrent(10, "scaled_dot", kind="hybrid"), TWO, True).made()[0]
    assert (
        model(source, mask, target).logits - plain(source, mask, target).logits
    ).abs().max() > 1e-4


# ModelConfig and the tree of a model's parts; the Transformer against itself: masks, counts, and decoding step by step.


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
RECURRENT_JSON = ModelConfig.recurrent(24).to_json()


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
        (RECURRENT_JSON | {"cell": "rnn"}, "expected one of gru, lstm"),
        (RECURRENT_JSON | {"bidirectional": 1}, "expected true or false"),
        (
            RECURRENT_JSON | {"attention": RECURRENT_JSON["attention"] | {"position": "rope"}},
            "position = rope does not go with it",
        ),
        (
            RECURRENT_JSON | {"attention": RECURRENT_JSON["attention"] | {"mask": "causal"}},
            "mask = causal has no meaning",
        ),
        (
            RECURRENT_JSON
            | {"d_model": 9, "attention": AttentionConfig(9, 1, "identity", "dot").to_json()},
            "even d_model",
        ),
        ([], "an object of its fields"),
    ],
)
def test_what_cannot_be_is_said(data, words):
    pytest.raises(ConfigError, ModelConfig.from_json, data).match(words)


# A model taken apart: the parts add up, and what is counted is what closed forms and other counters say.


def squared(logits):
    return logits.square().mean()


def taken_apart(case, **changes):
    model, *inputs = case.made(**changes)
    model.train()
    return model, inputs, summarize(model, tuple(inputs), squared)


@each("case", CASES.values())
def test_parts_add_up_to_model_and_nothing_is_left_on_it(case):
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


def test_flops_are_those_of_the_closed_form():
    torch.manual_seed(0)
    B, T, C, INNER, V, LAYERS = 3, 11, 24, 40, 13, 2
    model = build_model(
        ModelConfig.transformer(C, 3, LAYERS, INNER, kind="decoder"),
        Shape(V, V, 12, one_vocabulary=True),
    )
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
    assert layer.bytes == whole.layers()[1].bytes > layer.children[0].bytes > 0


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


def test_tied_matrix_is_counted_once_where_it_is_looked_up():
    _, _, whole = taken_apart(CASES["decoder-tied"])
    parts = {part.path: part for part in whole.walk()}
    assert parts["target"].parameters == 17 * 12 and parts["output"].parameters == 17


def test_parts_stand_in_the_order_in_which_they_run():
    for norm, first in (("pre", "Add and norm"), ("post", "Self-attention")):
        model = build_model(ModelConfig.transformer(12, 3, 2, norm=norm), Shape(9, 9, 9))
        source, mask = torch.randint(4, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
        whole = summarize(model, (source, mask, source), squared)
        assert whole.layers()[0].children[0].title == first
        assert [part.path for part in whole.layers()] == [
            "encoder.layers.0",
            "encoder.layers.1",
            "layers.0",
            "layers.1",
        ]


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
LOCAL = ModelConfig.transformer(24, 3, kind="decoder", position="alibi").attention


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

C, HEADS = 21, 3


@each("norm", ["post", "pre"])
def test_without_feed_forward_a_layer_is_its_attention(norm):
    layer = EncoderLayer(ModelConfig.transformer(C, HEADS, d_ff=0, norm=norm))
    x, around = torch.randn(5, 11, C), layer.around_attention
    attended = layer.attention(around.norm(x) if norm == "pre" else x).merged
    expected = x + attended if norm == "pre" else around.norm(x + attended)
    assert torch.allclose(layer(x)[0], expected, atol=1e-5)
    assert {name.partition(".")[0] for name, _ in layer.named_parameters()} == {
        "attention",
        "around_attention",
    }


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
        model: Any = build_model(
            KINDS[kind]({axis: plain(axis, key)} | needs(axis, key)), Shape(11, 13, 17)
        ).eval()
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


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
@pytest.mark.parametrize("layers", [1, 2])
def test_states_are_dropped_between_layers_alone(kind, layers):
    config = replace(ModelConfig.recurrent(10, "dot", layers), kind=kind, dropout=0.25)
    model: Any = build_model(config, TWO)
    assert model.encoder.dropout == (0.25 if layers == 2 else 0.0)
