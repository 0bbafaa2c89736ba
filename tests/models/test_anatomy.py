"""A model taken apart: the parts add up, and what is counted is what closed forms and other counters say."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from core.attention import PRESETS
from core.models import ModelConfig, Shape, build_model
from core.models.model_summary import summarize
from tests.cases import each
from tests.models.stacked import CASES

every = each("case", CASES.values())


def squared(logits):
    return logits.square().mean()


def taken_apart(case, **changes):
    model, *inputs = case.made(**changes)
    model.train()
    return model, inputs, summarize(model, tuple(inputs), squared)


@every
def test_the_parts_add_up_to_the_model(case):
    model, inputs, whole = taken_apart(case)
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


@every
def test_the_gradient_is_autograds_and_nothing_is_left_on_the_model(case):
    model, inputs, whole = taken_apart(case)
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    grads = torch.autograd.grad(squared(model(*inputs).logits), list(model.parameters()))
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
    assert [child.title for child in layer.children][::2] == [
        "Causal self-attention",
        "Feed-forward",
    ]
    assert layer.flops == (maps - 2 * B * T * C * V + met) / LAYERS


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
