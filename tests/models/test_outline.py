"""The outline of a deep model is what the deep model itself is measured to be, but for its weights."""

from dataclasses import replace

import pytest

from core.attention.positions import POSITIONS
from core.models import ModelConfig, build_model
from core.models.config import STACKED
from core.models.model_summary import Part, summarize, with_layers
from core.tasks import TaskConfig, make_task
from core.training.evaluate import objective
from tests.cases import each

TASK = {
    "transformer": "reverse",
    "decoder": "reverse",
    "classifier": "digits",
    "one_token": "iris",
    "forecaster": "series",
}
LOCAL = ModelConfig.transformer(24, 3, kind="decoder", position="alibi").required_attention
PATTERNS = {
    "norm before": {"norm": "pre", "normalization": "rms", "activation": "swiglu"},
    "norm after": {},
}


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


def compare(config: ModelConfig, layers: int) -> None:
    deep, shallow = replace(config, layers=layers), replace(config, layers=len(config.pattern))
    outline = with_layers(measured(shallow), layers, deep.layer_names)
    assert without_weights(outline) == without_weights(measured(deep))
    assert all(part.mean is part.std is part.gradient is None for part in outline.walk())


@pytest.mark.parametrize("kind", STACKED)
@each("blocks", PATTERNS.values())
def test_layers_are_repeated_in_every_stack_of_every_kind(kind, blocks):
    compare(ModelConfig.transformer(24, 3, kind=kind, **blocks), 4)


@pytest.mark.parametrize("position", [entry.key for entry in POSITIONS])
def test_layers_of_every_position_are_repeated(position):
    compare(ModelConfig.transformer(24, 3, kind="decoder", position=position), 3)


@pytest.mark.parametrize("layers", [3, 4, 7])
def test_unlike_layers_come_in_the_order_of_the_pattern_and_with_its_names(layers):
    plain = ModelConfig.transformer(24, 3, kind="decoder", position="none")
    compare(replace(plain, following=(LOCAL, LOCAL)), layers)
