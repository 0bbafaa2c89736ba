"""The rule of the claim on induction heads, and where a curve crosses a level."""

import pytest

from core.claims.entries.heads import (
    INDUCTION_CLAIM,
    LOSS,
    ONE_LAYER as ONE,
    SCORE,
    TWO,
    at,
    crossing,
    on_repeated,
)
from core.models import ModelConfig, build_model
from core.tasks import TaskConfig, make_task
from tests.claims.made_up import World, judge


def world(start: float, end: float, fall: float, score: float = 0.1, loss: float = 3.0) -> World:
    """Two layers: the score rises from `start` to `end` of the training, and the loss falls meanwhile; one layer."""
    numbers: dict = {}
    for x in range(0, 101, 2):
        share = min(1.0, max(0.0, (x / 100 - start) / (end - start)))
        numbers |= {
            (TWO, SCORE, x): 0.05 + 0.9 * share,
            (TWO, LOSS, x): 3.0 - fall * share,
            (ONE, SCORE, x): score,
            (ONE, LOSS, x): loss,
        }
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(INDUCTION_CLAIM, world(0.5, 0.6, 2.5), 0.002) == ("holds", ["holds"] * 4)
    assert judge(INDUCTION_CLAIM, world(0.1, 0.9, 0.5, 0.9, 2.5), 0.002) == (
        "does not hold",
        ["refuted"] * 4,
    )
    assert judge(INDUCTION_CLAIM, world(0.4, 0.62, 1.2, 0.6, 2.9), 0.5)[0] == "cannot be told here"


def test_a_crossing_lies_on_the_line_between_two_points():
    curve = {0.0: 0.0, 10.0: 0.2, 20.0: 1.0}
    assert crossing(curve, 0.6) == pytest.approx(15) and crossing(curve, 0.1) == pytest.approx(5)
    assert crossing(curve, 2.0) == 20 and at(curve, 15.0) == pytest.approx(0.6)


def test_even_attention_scores_its_share():
    """Without scores each output attends evenly to all it sees; the words to repeat are 2 to 5 places on."""
    task = make_task(TaskConfig.of("induction", length=8, vocab=16, said=2))
    model = build_model(ModelConfig.transformer(16, 2, kind="decoder"), task.shape).eval()
    for name, weight in model.named_parameters():
        if "query" in name or name.startswith("output"):
            weight.data.zero_()
    loss, score = on_repeated(model, task)
    assert score == pytest.approx((1 / 11 + 1 / 12) / 2) and loss == pytest.approx(
        task.baseline_loss
    )
