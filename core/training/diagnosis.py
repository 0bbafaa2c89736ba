"""Diagnose a run from its records: what goes wrong, and what to try."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from core.models import build_model
from core.models.decoding import greedy
from core.tasks import Task
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import CHUNK, buckets, measure_teacher_forced, objective
from core.training.loop import FINAL, Progress, Session, make_optimizer, one_step
from core.training.record import Prediction, Record

# Estimate a run's duration on this machine by timing a few of its steps and measurements.


BATCHES, TIMES = 8, 3  # timed batches, and repetitions of each, of which the fastest counts
LONGEST = 2.0  # seconds, after which no batch is timed again
DECODED = (
    2,
    12,
)  # tokens of two timed decodes, to separate the cost of a token from that of the source


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, of measuring a held-out item under teacher forcing, and of decoding and scoring one."""

    step: float
    teacher_forced: float
    free_running: float

    def seconds(self, config: RunConfig, held_out: int, final: int) -> float:
        """Seconds of a run without its caps, with the held-out items of a record and of the final one."""
        records = math.ceil(config.steps / config.record_every) + 1
        decodes = math.ceil(records / config.decode_every)
        return (
            config.steps * self.step
            + records * held_out * self.teacher_forced
            + decodes * held_out * self.free_running
            + final * (self.teacher_forced + self.free_running)
        )


def pace(config: RunConfig, task: Task) -> Pace:
    """Time a few steps and measurements of the untrained model, each at its fastest, with torch's current threads.

    Decoding counts up to the longest target of a batch, as a trained model does. torch's generator is left unchanged.
    """
    device = resolve_device(config.device)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config.model, task.shape).to(device)
        session = Session(
            config,
            task,
            model,
            make_optimizer(config, model),
            torch.Generator().manual_seed(0),
            device,
            task.held_out(CHUNK)[:CHUNK],
            Progress(),
        )
        one_step(session, 1)  # the first step is slower
        step = _mean_step(session)
        count, model = len(session.held_out), model.eval()
        forced = (
            _fastest(lambda: measure_teacher_forced(model, task, session.held_out, device), 2)
            / count
        )
        free = 0.0
        if task.form == "pairs" and objective(task).scored:
            right = [
                Prediction(example.source, example.target, example.target)
                for example in session.held_out
            ]
            scoring = _fastest(
                lambda: (objective(task).score(task, right), buckets(task, right)), 2
            )
            free = (_decoding(session) + scoring) / count
    return Pace(step, forced, free)


def estimate(config: RunConfig, task: Task) -> float:
    """Seconds of a run on this machine without its caps."""
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    return pace(config, task).seconds(config, held_out, len(task.held_out(FINAL)))


def in_words(config: RunConfig, seconds: float) -> str:
    """The estimate as sentences, with the cap or the patience that may end the run before."""
    text = f"About {duration(seconds)} for {config.steps:,} steps, measured from a few steps on this machine."
    if seconds > config.max_seconds:
        reached = max(1, int(config.steps * config.max_seconds / seconds))
        text += (
            f" The time limit of {duration(config.max_seconds)} would end it near step {reached:,}: allow more "
            "seconds, or take a smaller model."
        )
    if config.patience:
        text += f" It stops earlier if {config.patience} records in a row bring no smaller validation loss."
    return text


def duration(seconds: float) -> str:
    """Seconds as text: "8 s", "3 min", "1.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


def _mean_step(session: Session) -> float:
    """Mean seconds of a step over batches of different lengths, each at its fastest."""
    started, fastest = time.perf_counter(), [math.inf] * BATCHES
    for _ in range(TIMES):
        for seed, before in enumerate(fastest):
            session.data.manual_seed(seed)
            fastest[seed] = min(before, _fastest(lambda: one_step(session, 2).loss.item(), 1))
        if time.perf_counter() - started > LONGEST:
            break
    return sum(fastest) / BATCHES


def _decoding(session: Session) -> float:
    """Seconds of decoding the held-out items up to their longest target and its end mark."""
    batch = session.task.collate(session.held_out).to(session.device)
    model: Any = session.model
    few, more = (
        _fastest(partial(greedy, model, batch.source, batch.source_mask, most), 2)
        for most in DECODED
    )
    tokens = max(len(example.target) for example in session.held_out) + 1
    return few + max(0.0, more - few) / (DECODED[1] - DECODED[0]) * (tokens - DECODED[0])


def _fastest(run: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


FEWEST = 6  # records before anything is said
RISE = 1.1  # held-out loss over its smallest, with training still falling
RISE_NATS = 0.03
FADED = 1e-3  # of the largest part's gradient
VANISHED = 1e-5  # of all gradients, while there is something to learn
BURST = 30.0  # times the usual norm
SETTLED, LARGE = (
    4,
    10.0,
)  # records before a norm is usual, and a norm that matters where nothing is clipped
STILL = 0.97  # of the loss at the start, or of guessing
MOVING = 0.01  # of the loss, within three records
HIGH_RATE, LOW_RATE = 1e-2, 2e-4
NAMES = {"adamw": "AdamW", "adam": "Adam", "rmsprop": "RMSprop", "sgd": "SGD"}
STARVED = 0.2


@dataclass(frozen=True)
class Finding:
    """One thing that goes wrong: `beside` names the curve that shows it (loss, gradient, parts)."""

    key: str
    beside: str
    text: str
    advice: str


def diagnose(
    records: Sequence[Record], config: RunConfig, baseline: float, failed: str = ""
) -> tuple[Finding, ...]:
    """Everything that goes wrong; `baseline` is the loss of guessing, `failed` the message of a failed run."""
    measured = [record for record in records if record.loss is not None]
    if "no longer a number" in failed:
        return (_diverged(measured, config),)
    if len(measured) < FEWEST:
        return ()
    checks = (
        _overfits(measured, baseline),
        _bursts(measured, config),
        _vanishes(measured, baseline),
        _fades(measured, baseline),
        _stands_still(measured, config, baseline),
        _starves(measured),
    )
    return tuple(finding for finding in checks if finding is not None)


def _diverged(records: Sequence[Record], config: RunConfig) -> Finding:
    last = (
        f"; the last one measured was {records[-1].loss:.3g} at step {records[-1].step:,}"
        if records
        else ""
    )
    return Finding(
        "diverged",
        "loss",
        f"The loss is no longer a number{last}.",
        f"Try a learning rate below {config.learning_rate:g}, a longer warm-up, or stronger gradient "
        "clipping.",
    )


def _overfits(records: Sequence[Record], baseline: float) -> Finding | None:
    """The validation loss rises for three records or more while the training loss falls."""
    best = min(records, key=_loss)
    after = [record for record in records if record.step > best.step and not record.final]
    trained = next(
        (r.train_loss for r in records if r.step >= best.step and r.train_loss is not None), None
    )
    if len(after) < 3 or trained is None or best.step == records[0].step:
        return None
    now, lowest = _median_loss(after[-3:]), _loss(best)
    fitted = statistics.median(record.train_loss or trained for record in after[-3:])
    if now < RISE * lowest + RISE_NATS or fitted >= trained or lowest > STILL * baseline:
        return None
    return Finding(
        "overfitting",
        "loss",
        f"Since step {best.step:,} the validation loss rose from {lowest:.2f} to {now:.2f} while the training loss "
        f"fell from {trained:.2f} to {fitted:.2f}: the model overfits, it memorizes its examples.",
        "Try more data, dropout, weight decay or a smaller model; or stop early.",
    )


def _bursts(records: Sequence[Record], config: RunConfig) -> Finding | None:
    """A gradient norm far above the median before it, and large enough to be clipped."""
    norms = [(record.gradient, record.step) for record in records if record.gradient is not None]
    for i, (norm, step) in enumerate(norms):
        usual = statistics.median(before for before, _ in norms[:i]) if i >= SETTLED else math.inf
        if norm > BURST * usual and norm > min(config.clip, LARGE):
            clipped = f"; it is clipped at {config.clip:g}" if config.clip < norm else ""
            return Finding(
                "exploding",
                "gradient",
                f"The gradient norm rose to {norm:,.3g} near step {step:,}; "
                f"before, the median was {usual:.3g}{clipped}.",
                "Try a smaller learning rate, a longer warm-up, or pre-norm.",
            )
    return None


def _vanishes(records: Sequence[Record], baseline: float) -> Finding | None:
    last = records[-3:]
    norms = [record.gradient for record in last if record.gradient is not None]
    if not norms or max(norms) > VANISHED or not _unlearned(last, baseline):
        return None
    return Finding(
        "vanishing",
        "gradient",
        f"The gradient norm is {max(norms):.2g} while the loss is still "
        f"{last[-1].loss:.2f}: the weights hardly change.",
        "Try pre-norm, fewer layers, or another activation or normalizer.",
    )


def _fades(records: Sequence[Record], baseline: float) -> Finding | None:
    """A part of the model gets less than a thousandth of the largest gradient, three records in a row."""
    gradients = [record.gradients for record in records if record.gradients][-3:]
    if len(gradients) < 3 or not _unlearned(records[-3:], baseline):
        return None
    shares = {
        name: max(each.get(name, 0.0) / (max(each.values()) or 1.0) for each in gradients)
        for name in gradients[-1]
    }
    name, share = min(shares.items(), key=lambda item: item[1])
    if share > FADED:
        return None
    return Finding(
        "fading",
        "parts",
        f"The gradient vanishes on its way back: {name} gets {share:.1g} of the largest "
        "gradient of a part.",
        "Try pre-norm, fewer layers, or a residual connection without a norm on it.",
    )


def _stands_still(records: Sequence[Record], config: RunConfig, baseline: float) -> Finding | None:
    """After the warm-up and a tenth of the run, the loss is that of the start or of guessing, and does not fall."""
    last = records[-1]
    if last.step <= config.warmup + config.steps / 10:
        return None
    now, first, before = (
        _median_loss(records[-3:]),
        _loss(records[0]),
        _median_loss(records[-FEWEST:-3]),
    )
    worse, moves = now > max(first, baseline), now < (1 - MOVING) * before
    if not math.isfinite(now) or now < STILL * min(first, baseline) or (moves and not worse):
        return None
    rate, optimizer = config.learning_rate, config.optimizer
    text = (
        f"After {last.step:,} steps the validation loss is {now:.3g}. It started at {first:.2f}, and guessing "
        f"gives {baseline:.2f}."
    )
    if worse and rate > LOW_RATE or (rate >= HIGH_RATE and optimizer != "sgd"):
        return Finding(
            "rate_high",
            "loss",
            text,
            f"A learning rate of {rate:g} is large for {NAMES[optimizer]}: try "
            "a tenth of it, with a warm-up.",
        )
    if rate <= LOW_RATE or optimizer == "sgd":
        return Finding(
            "rate_dead",
            "loss",
            text,
            f"A learning rate of {rate:g} is small for {NAMES[optimizer]}: try ten times as much.",
        )
    return Finding(
        "still",
        "loss",
        text,
        "Try another learning rate, positions where order matters, or more layers.",
    )


def _starves(records: Sequence[Record]) -> Finding | None:
    shares = [record.data_share for record in records[-3:] if record.data_share is not None]
    if not shares or min(shares) < STARVED:
        return None
    return Finding(
        "starving",
        "loss",
        f"{100 * statistics.median(shares):.0f} % of the training time is spent on making batches.",
        "Try a smaller batch.",
    )


def _unlearned(records: Sequence[Record], baseline: float) -> bool:
    """Whether the loss is above a tenth of guessing."""
    return all(_loss(record) > baseline / 10 for record in records)


def _loss(record: Record) -> float:
    return math.nan if record.loss is None else record.loss


def _median_loss(records: Sequence[Record]) -> float:
    return statistics.median(map(_loss, records))
