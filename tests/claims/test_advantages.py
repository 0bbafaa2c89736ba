"""The rule of the claim on the advantages over recurrent networks."""

from core.claims.base import Pick
from core.claims.entries.why_attention import (
    ACCURACY,
    ADVANTAGES,
    FOUR,
    LENGTHS,
    MASS,
    ONE,
    PARAMETERS,
    RECURRENT,
    STEP_SECONDS as SECONDS,
    step_seconds,
)
from core.claims.experiment import session_of
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig
from tests.cases import instance
from tests.claims.made_up import World, judge, results


def world(
    parameters: float,
    seconds: tuple[float, float, float],
    accuracy: float,
    mass: tuple[float, float],
) -> World:
    """One head has 100 parameters; the seconds are those of one head, four, and cells at the last length."""
    numbers: dict = {
        (ONE, PARAMETERS, None): 100.0,
        (FOUR, PARAMETERS, None): parameters,
        (RECURRENT, PARAMETERS, None): 60.0,
        (ONE, MASS, None): mass[0],
        (FOUR, MASS, None): mass[0],
        (RECURRENT, MASS, None): mass[1],
        (ONE, ACCURACY, None): accuracy,
        (FOUR, ACCURACY, None): accuracy,
        (RECURRENT, ACCURACY, None): 0.5,
    }
    for condition, value in zip((ONE, FOUR, RECURRENT), seconds, strict=True):
        numbers[condition, SECONDS, LENGTHS[-1]] = value
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    good = world(400.0, (1.0, 1.05, 3.0), 0.9, (0.9, 0.2))
    assert judge(ADVANTAGES, good, 0.001) == ("holds", ["holds"] * 6)
    bad = world(100.0, (1.0, 2.0, 0.5), 0.4, (0.2, 0.9))
    assert judge(ADVANTAGES, bad, 0.001) == ("does not hold", ["refuted"] * 6)
    unclear = world(101.0, (1.0, 1.25, 1.1), 0.52, (0.5, 0.5))
    assert judge(ADVANTAGES, unclear, 0.3) == ("cannot be told here", ["cannot be told"] * 6)
    guess = instance(ADVANTAGES.guess, Pick)
    assert guess.answer(results(good)) == 2 and guess.answer(results(bad)) == 0


def test_a_step_takes_time():
    model = ModelConfig.transformer(8, 1, position="sinusoidal")
    assert (
        step_seconds(
            session_of(RunConfig(TaskConfig.of("reverse", length=4), model, batch_size=2), 0)
        )
        > 0
    )
