"""What goes wrong is told from a run's own records: by real tiny runs that go wrong, and by what must not be told."""

from dataclasses import replace

from core.tasks import TaskConfig, make_task
from core.training import Record, RunConfig, recommended, train
from core.training.diagnosis import diagnose
from tests.cases import each
from tests.training.small import small_run


def findings_of(config: RunConfig) -> dict[str, str]:
    """Everything that is told at the end of a real run, by its key."""
    records, failed = [], ""
    try:
        for record in train(config):
            records.append(record)
    except FloatingPointError as error:
        failed = str(error)
    findings = diagnose(records, config, make_task(config.task).baseline_loss, failed)
    return {one.key: f"{one.text} {one.advice}" for one in findings}


def falling(count: int = 12, start: float = 3.0) -> list[Record]:
    """Records of a run that learns."""
    return [
        Record(
            10 * i,
            train_loss=start * 0.8**i,
            loss=start * 0.8**i,
            gradient=0.5,
            gradients={"a": 0.3, "b": 0.4},
            data_share=0.02,
        )
        for i in range(count)
    ]


BASE = small_run(steps=200)


def keys(records: list[Record], config: RunConfig = BASE, failed: str = "") -> set[str]:
    return {one.key for one in diagnose(records, config, 3.0, failed)}


def test_a_run_that_learns_hears_nothing():
    busy = {"starving"}  # what a busy machine may do to any run
    assert findings_of(small_run(steps=120, record_every=10, learning_rate=5e-3)).keys() <= busy
    assert all(keys(falling(n)) == set() for n in range(13))


def test_a_dead_learning_rate():
    findings = findings_of(small_run(steps=80, record_every=8, learning_rate=1e-6))
    assert set(findings) == {"rate_dead"} and "1e-06 is small for AdamW" in findings["rate_dead"]


def test_a_learning_rate_that_is_too_large():
    """24 steps, at which the loss of five seeds was 5.6 to 9.3 and guessing costs 2.8; later it falls to guessing."""
    findings = findings_of(
        small_run(steps=24, record_every=3, learning_rate=1.0, schedule="constant")
    )
    assert "rate_high" in findings and "large for AdamW" in findings["rate_high"]


def test_a_loss_that_is_no_number():
    findings = findings_of(
        small_run(
            steps=80,
            record_every=2,
            learning_rate=1.0,
            optimizer="sgd",
            clip=1e9,
            schedule="constant",
        )
    )
    assert "diverged" in findings or "exploding" in findings or "rate_high" in findings
    assert keys(falling(3), failed="The loss is no longer a number at step 31; …") == {"diverged"}


def test_overfitting_on_a_small_table():
    task = make_task(TaskConfig.of("iris"))
    findings = findings_of(recommended(task, "classifier", learning_rate=1e-2))
    assert "overfitting" in findings and "memorizes its examples" in findings["overfitting"]


def test_held_out_loss_that_rises_with_training_loss_is_no_overfitting():
    records = falling(6) + [
        Record(60 + 10 * i, train_loss=2.0 + i, loss=2.0 + i, gradient=0.5) for i in range(4)
    ]
    assert "overfitting" not in keys(records)


def test_a_burst_of_the_gradient():
    records = falling()
    assert keys([*records[:9], replace(records[9], gradient=80.0), *records[10:]]) == {"exploding"}
    assert keys([*records[:9], replace(records[9], gradient=3.0), *records[10:]]) == set()


def test_a_gradient_that_vanishes_or_fades():
    stuck = [replace(r, loss=2.9 - 0.05 * i, gradient=1e-7) for i, r in enumerate(falling())]
    assert "vanishing" in keys(stuck)
    faded = [
        replace(r, loss=2.9 - 0.05 * i, gradients={"first": 1e-6, "last": 0.5})
        for i, r in enumerate(falling())
    ]
    (one,) = diagnose(faded, BASE, 3.0)
    assert one.key == "fading" and "first gets 2e-06" in one.text


def test_a_learned_task_may_have_no_gradient_left():
    done = [
        replace(r, loss=0.01, gradient=1e-7, gradients={"first": 1e-9, "last": 1e-7})
        for r in falling()
    ]
    assert keys([falling()[0], *done[1:]]) == set()


def test_data_that_keeps_training_waiting():
    assert keys([replace(r, data_share=0.5) for r in falling()]) == {"starving"}


@each("count", [0, 1, 5])
def test_nothing_is_said_too_soon(count):
    assert keys([replace(r, gradient=1e9, loss=50.0) for r in falling(count)]) == set()
