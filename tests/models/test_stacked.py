"""What every stacked model promises: padding, records, the future, checkpointing, dropout, tied matrices."""

import pickle
from typing import Any

import pytest
import torch

from core.entries import ConfigError
from core.models import ModelConfig, Shape, build_model, map_tokens
from core.models.base import concatenate
from tests.cases import each
from tests.models.stacked import AHEAD, CASES, CLASSES, LENGTHS, ROW, SERIES, TWO, B, S, T, of

every = each("case", CASES.values())
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


@every
def test_a_model_comes_back_from_its_pickle(case):
    model, source, mask, target = case.made()
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(source, mask, target).logits, model(source, mask, target).logits)


@every
def test_padding_changes_nothing(case):
    model, source, mask, target = case.made()
    together = model(source, mask, target).logits
    if (
        case.shape.input == "features"
    ):  # every row has every column; one that is missing may hold anything
        other = torch.where(mask, source, torch.tensor([5.0, -1.0, 2.0, 1e6]))
        torch.testing.assert_close(model(other, mask).logits, together, **CLOSE)
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
    plain, recorded = model(source, mask, target), model(source, mask, target, record=True)
    torch.testing.assert_close(plain.logits, recorded.logits, **CLOSE)
    assert not plain.maps and not plain.source_attention
    names = [str(i) for i in range(source.shape[1])]
    bare = ["w"] * (T - 1) if case.fed else ["0"] * AHEAD if case.shape.output == "values" else None
    kinds = {"transformer": ("self", "causal", "cross"), "decoder": ("causal",)}.get(
        model.config.kind, ("self",)
    )
    assert tuple(recorded.maps) == kinds
    for kind, layers in recorded.maps.items():
        rows, columns = map(len, map_tokens(model.config, kind, names, bare))
        assert len(layers) == model.config.layers
        for steps in layers:
            assert steps.weights.shape == (B, 3, rows, columns)


@every
def test_looks_are_a_share_of_what_each_output_sees(case):
    model, source, mask, target = case.made()
    recorded = model(source, mask, target, record=True)
    if model.config.kind == "one_token":
        assert not recorded.source_attention
        return
    outputs = recorded.logits.shape[1] if case.shape.output != "label" else 1
    for attention in recorded.source_attention:
        assert attention.shape == (B, 3, outputs, source.shape[1])
        if not (
            case.shape.output == "tokens" and target is None
        ):  # a text's padding looks too, and is never asked
            assert attention.masked_select(~mask[:, None, None]).abs().sum() == 0
        assert attention.sum(-1).max() <= 1 + 1e-5 and attention.sum() > 0.1
    if recorded.visible is not None:
        assert recorded.visible.shape == (B, 1) or recorded.visible.shape == (B, outputs)


def test_looks_of_a_decoder_are_its_target_rows_on_its_source():
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


def test_looks_of_a_classifier_are_its_first_row_or_its_mean_row():
    model, source, mask, _ = CASES["classifier-first"].made()
    recorded = model(source, mask, record=True)
    torch.testing.assert_close(
        recorded.source_attention[1][:, :, 0], recorded.maps["self"][1].weights[:, :, 0, 1:]
    )
    model, source, mask, _ = CASES["classifier-mean"].made()
    recorded = model(source, mask, record=True)
    mean_row = recorded.maps["self"][0].weights[1, :, :2].mean(1)
    torch.testing.assert_close(recorded.source_attention[0][1, :, 0], mean_row)


@every
def test_every_weight_is_used_and_the_same_seed_gives_the_same_model(case):
    model, source, mask, target = case.made()
    model(source, mask, target).logits.square().sum().backward()
    assert not [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.isfinite().all()
    ]
    twin = case.made()[0]
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )


@each("name", [name for name, case in CASES.items() if case.config.kind == "decoder"])
def test_a_decoder_sees_no_future(name):
    model, source, mask, target = CASES[name].made()
    before = model(source, mask, target).logits
    if target is None:
        after = model(torch.cat((source[:, :3], 12 - source[:, 3:]), 1), mask).logits
        assert not torch.allclose(after[:, 3:], before[:, 3:])
        torch.testing.assert_close(after[:, :3], before[:, :3])
        return
    later = target.clone()
    later[:, 3:] = 5
    after = model(source, mask, later).logits
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@each("name", [name for name, case in CASES.items() if case.shape.output == "tokens"])
def test_word_by_word_it_says_what_it_says_at_once(name):
    case = CASES[name]
    model, source, mask, target = case.made()
    if (
        target is None
    ):  # a text: its first half is the source, the rest goes on from the last token of that
        source, mask = source[:1], mask[:1]
        forced, memory = (
            model(source, mask, record=True).logits[:, 2:],
            model.encode(source[:, :2], mask[:, :2]),
        )
        tokens = source[:, 2:]
    else:
        source, mask, target = (
            source[1:2].repeat(3, 1, *[1] * (source.dim() - 2)),
            mask[1:2].repeat(3, 1),
            target[:3],
        )
        forced, memory, tokens = (
            model(source, mask, target).logits,
            model.encode(source, mask),
            target,
        )
        torch.testing.assert_close(model.decode(memory, target).logits, forced, **CLOSE)
    state = model.start(memory)
    for t in range(tokens.shape[1]):
        logits, state, maps = model.step(memory, state, tokens[:, t], record=True)
        torch.testing.assert_close(logits, forced[:, t], **CLOSE)
        assert maps


def test_a_decoder_refuses_sources_of_two_lengths_word_by_word():
    model, source, mask, _ = CASES["decoder-two-vocabularies"].made()
    assert model.one_length
    with pytest.raises(ValueError, match="one length"):
        model.encode(source, mask)


@every
def test_checkpointing_computes_the_same_gradients(case):
    gradients = []
    for checkpointing in (False, True):
        model, source, mask, target = case.made(dropout=0.3)
        model.train().checkpointing = checkpointing
        torch.manual_seed(5)
        model(source, mask, target).logits.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@every
def test_checkpointing_keeps_less(case):
    def recorded(checkpointing):
        model, source, mask, target = case.made()
        model.train().checkpointing = checkpointing
        sizes = []

        def pack(saved):
            sizes.append(saved.numel())
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            model(source, mask, target)
        return sum(sizes)

    assert recorded(True) < 0.7 * recorded(False)


@every
def test_dropout_acts_in_training_alone(case):
    model, source, mask, target = case.made(dropout=0.5)
    assert torch.equal(model(source, mask, target).logits, model(source, mask, target).logits)
    model.train()
    assert not torch.equal(model(source, mask, target).logits, model(source, mask, target).logits)


def test_tied_matrices_are_one():
    for kind in ("decoder", "transformer"):
        models: list[Any] = [build_model(of(kind, tied=flag), TWO) for flag in (True, False)]
        tied, free = models
        assert tied.output.weight is tied.target.token.weight
        count = [sum(p.numel() for p in model.parameters()) for model in (tied, free)]
        assert count[1] - count[0] == TWO.target * 12


def test_one_vocabulary_has_one_embedding():
    one = build_model(of("decoder"), Shape(9, 9, 12, one_vocabulary=True))
    two = build_model(of("decoder"), Shape(9, 9, 12))
    assert (
        sum(p.numel() for p in two.parameters()) - sum(p.numel() for p in one.parameters())
        == 9 * 12
    )


def test_a_row_that_is_one_token_gives_its_attention_no_choice():
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
        (of("one_token"), Shape(5, CLASSES, 9, output="label"), "reads features"),
        (of("forecaster"), TWO, "reads series"),
        (of("decoder", position="learned"), Shape(9, 9, 300), "max_len ≥ 600"),
    ],
)
def test_what_a_model_cannot_serve_is_said(config, shape, words):
    with pytest.raises(ConfigError, match=words):
        build_model(config, shape)


@each(
    ("more", "words"),
    [
        ({"kind": "decoder", "pool": "mean"}, "does not read pool"),
        ({"kind": "classifier", "tied": True}, "does not read tied"),
        ({"kind": "classifier", "mask": "causal"}, "take pool = mean"),
        ({"kind": "classifier", "mask": "moba"}, "take pool = mean"),
        ({"kind": "forecaster", "projection": "identity"}, "single head"),
    ],
)
def test_settings_that_mean_nothing_are_refused(more, words):
    with pytest.raises(ConfigError, match=words):
        ModelConfig.transformer(12, 3, **more)


def test_a_row_of_other_columns_is_refused():
    model, source, mask, _ = CASES["classifier-features"].made()
    with pytest.raises(ValueError, match="3 columns; this model reads 4"):
        model(source[:, :3], mask[:, :3])
