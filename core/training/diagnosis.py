"""Diagnose a run from its records: what goes wrong, and what to try."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from timeit import repeat, timeit
from typing import Any

import torch

from core.entries import Cost
from core.memory import TooMuch, admitted
from core.models import build_model, count_parameters
from core.models.decoding import greedy
from core.tasks import Task, task_of
from core.threads import num_threads
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import (
    CHUNK,
    Prediction,
    Record,
    buckets,
    measure_teacher_forced,
    objective,
)
from core.training.loop import FINAL, Session, make_optimizer, one_step
from core.training.sweeps import SweepConfig

BATCHES, TIMES = 8, 3  # timed batches, and repetitions of each, of which the fastest counts
LONGEST = 2.0  # seconds, after which no batch is timed again
# tokens of two timed decodes, to separate the cost of a token from that of the source
DECODED = (2, 12)


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


@num_threads(1)  # as a run has: on a busy machine a step on two took ten times as long
def pace(config: RunConfig, task: Task) -> Pace:
    """Time a few steps and measurements of the untrained model, each at its fastest, on one thread as a run.

    Decoding counts up to the longest target of a batch, as a trained model does. torch's generator is left unchanged.
    TooMuch where the model is too large to be timed beside other work.
    """
    device = resolve_device(config.device)
    price = admitted(step_cost(config, task), "Timing this model", "Take a smaller model.")
    with price, torch.random.fork_rng(devices=[]):
        model = build_model(config.model, task.shape).to(device)
        optimizer, data = make_optimizer(config, model), torch.Generator()
        examples = task.held_out(CHUNK)[:CHUNK]
        session = Session(config, task, model, optimizer, data, device, examples)
        one_step(session, config.steps)  # the first step is slower
        started, fastest = time.perf_counter(), [math.inf] * BATCHES
        for _ in range(TIMES):
            for seed, before in enumerate(fastest):  # batches of different lengths
                if math.isfinite(fastest[0]) and time.perf_counter() - started > LONGEST:
                    break
                session.data.manual_seed(seed)
                fastest[seed] = min(
                    before, timeit(lambda: one_step(session, config.steps).loss.item(), number=1)
                )
        fastest = [seconds for seconds in fastest if math.isfinite(seconds)]
        count, free = len(examples), 0.0
        model.eval()
        forced = _faster(lambda: measure_teacher_forced(model, task, examples, device))
        if task.form == "pairs":
            right = [Prediction(one.source, one.target, one.target) for one in examples]
            scoring = _faster(lambda: (objective(task).score(task, right), buckets(task, right)))
            batch = task.collate(examples).to(device)
            decoder: Any = model
            decode = partial(greedy, decoder, batch.source, batch.source_mask)
            few, more = (_faster(partial(decode, most)) for most in DECODED)
            tokens = max(len(one.target) for one in examples) + 1  # with the end mark
            each = max(0.0, more - few) / (DECODED[1] - DECODED[0])
            free = (few + each * (tokens - DECODED[0]) + scoring) / count
    return Pace(statistics.mean(fastest), forced / count, free)


def step_cost(config: RunConfig, task: Task) -> Cost:
    """About what a training step takes: weights, their gradient and two moments, and what is kept for the gradient."""
    model, shape = config.model, task.shape
    weights, tokens = count_parameters(model, shape), config.batch_size * shape.longest
    width = 8 * model.d_model + 2 * model.d_ff
    activations = max(
        (
            8 * one.score_heads * (one.qk_dim + shape.longest)
            for one in (each.sizes for each in model.attentions)
        ),
        default=0,
    )
    return Cost(
        6.0 * weights * tokens, 16 * weights + 4 * tokens * model.layers * (width + activations)
    )


FRESH = 60  # seconds after which steps are timed again for a page


def time_needed(config: RunConfig) -> str:
    """A sentence that estimates the run's duration; "" for the lab's own tasks.

    Their recipes were measured.
    """
    if "data" not in dict(config.task.params):
        return ""
    try:
        return in_words(config, estimate(config))
    except TooMuch as error:
        return f"How long it takes is not measured. {error}"


def estimate(config: RunConfig) -> float:
    """Seconds of a run on this machine without its caps."""
    timed = _pace(
        RunConfig(
            config.task,
            config.model,
            batch_size=config.batch_size,
            optimizer=config.optimizer,
            device=config.device,
            precision=config.precision,
            checkpointing=config.checkpointing,
        ),
        int(time.monotonic() // FRESH),
    )
    task = task_of(config.task)
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    return timed.seconds(config, held_out, len(task.held_out(FINAL)))


def sweep_seconds(config: SweepConfig, workers: int = 1, timed: int = 64) -> float:
    """About how long a sweep takes here, a few runs at a time, if none ends early. Equal seconds are of training alone.

    The first `timed` combinations are timed; the others count as their mean.
    """
    runs = [config.run(index, config.seeds[0]) for index in range(len(config.combinations))]
    each = map(estimate, runs[:timed]) if config.equal == "steps" else [config.seconds]
    return statistics.mean(each) * len(config.cells) / workers


@lru_cache(maxsize=64)
def _pace(config: RunConfig, minute: int) -> Pace:
    return pace(config, task_of(config.task))


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


def _faster(run: Callable[[], object]) -> float:
    return min(repeat(run, repeat=2, number=1))


MIN_RECORDS = 6  # records before anything is said
RISE = 1.1  # held-out loss over its smallest, with training still falling
RISE_NATS = 0.03
FADED = 1e-3  # of the largest part's gradient
VANISHED = 1e-5  # of all gradients, while there is something to learn
BURST = 30.0  # times the usual norm
SETTLED = 4  # records before a norm is usual
LARGE = 10.0  # a norm that matters where nothing is clipped
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
        last = measured[-1] if measured else None
        where = f"; the last one measured was {last.loss:.3g} at step {last.step:,}" if last else ""
        advice = (
            f"Try a learning rate below {config.learning_rate:g}, a longer warm-up, or stronger gradient "
            "clipping."
        )
        return (Finding("diverged", "loss", f"The loss is no longer a number{where}.", advice),)
    if len(measured) < MIN_RECORDS:
        return ()
    given = measured, config, baseline
    findings = [*_overfits(*given), *_bursts(*given), *_fades(*given), *_stands_still(*given)]
    shares = [record.data_share for record in measured[-3:] if record.data_share is not None]
    if shares and min(shares) >= STARVED:
        share = f"{100 * statistics.median(shares):.0f} %"
        text = f"{share} of the training time is spent on making batches."
        findings.append(Finding("starving", "loss", text, "Try a smaller batch."))
    return tuple(findings)


def _overfits(records: Sequence[Record], config: RunConfig, baseline: float) -> Iterator[Finding]:
    """The validation loss rises for three records or more while the training loss falls."""
    best = min(records, key=_loss)
    after = [record for record in records if record.step > best.step and not record.final][-3:]
    trained = next(
        (r.train_loss for r in records if r.step >= best.step and r.train_loss is not None), None
    )
    if len(after) < 3 or trained is None or best.step == records[0].step:
        return
    now, lowest = _median_loss(after), _loss(best)
    fitted = statistics.median(record.train_loss or trained for record in after)
    if now >= RISE * lowest + RISE_NATS and fitted < trained and lowest <= STILL * baseline:
        yield Finding(
            "overfitting",
            "loss",
            f"Since step {best.step:,} the validation loss rose from {lowest:.2f} to {now:.2f} while the training "
            f"loss fell from {trained:.2f} to {fitted:.2f}: the model overfits, it memorizes its examples.",
            "Try more data, dropout, weight decay or a smaller model; or stop early.",
        )


def _bursts(records: Sequence[Record], config: RunConfig, baseline: float) -> Iterator[Finding]:
    """A gradient norm far above the median before it, and large enough to be clipped."""
    norms = [(record.gradient, record.step) for record in records if record.gradient is not None]
    for i, (norm, step) in enumerate(norms[SETTLED:], SETTLED):
        usual = statistics.median(before for before, _ in norms[:i])
        if norm > BURST * usual and norm > min(config.clip, LARGE):
            clipped = f"; it is clipped at {config.clip:g}" if config.clip < norm else ""
            yield Finding(
                "exploding",
                "gradient",
                f"The gradient norm rose to {norm:,.3g} near step {step:,}; "
                f"before, the median was {usual:.3g}{clipped}.",
                "Try a smaller learning rate, a longer warm-up, or pre-norm.",
            )
            return


def _fades(records: Sequence[Record], config: RunConfig, baseline: float) -> Iterator[Finding]:
    """Of a loss above a tenth of guessing, all gradients are next to nothing, or those of a part of the model less than
    a thousandth of the largest, three records in a row."""
    last = records[-3:]
    if any(_loss(record) <= baseline / 10 for record in last):
        return
    norms = [record.gradient for record in last if record.gradient is not None]
    if norms and max(norms) <= VANISHED:
        yield Finding(
            "vanishing",
            "gradient",
            f"The gradient norm is {max(norms):.2g} while the loss is still "
            f"{last[-1].loss:.2f}: the weights hardly change.",
            "Try pre-norm, fewer layers, or another activation or normalizer.",
        )
    gradients = [record.gradients for record in records if record.gradients][-3:]
    if len(gradients) < 3:
        return
    shares = {
        name: max(each.get(name, 0.0) / (max(each.values()) or math.inf) for each in gradients)
        for name in gradients[-1]
    }
    name, share = min(shares.items(), key=lambda item: item[1])
    if share <= FADED:
        yield Finding(
            "fading",
            "parts",
            f"The gradient vanishes on its way back: {name} gets {share:.1g} of the largest "
            "gradient of a part.",
            "Try pre-norm, fewer layers, or a residual connection without a norm on it.",
        )


def _stands_still(
    records: Sequence[Record], config: RunConfig, baseline: float
) -> Iterator[Finding]:
    """After the warm-up and a tenth of the run, the loss is that of the start or of guessing, and does not fall."""
    step, now, first = records[-1].step, _median_loss(records[-3:]), _loss(records[0])
    worse = now > max(first, baseline)
    moves = now < (1 - MOVING) * _median_loss(records[-MIN_RECORDS:-3])
    stands = math.isfinite(now) and now >= STILL * min(first, baseline) and (worse or not moves)
    if step <= config.warmup + config.steps / 10 or not stands:
        return
    rate, optimizer = config.learning_rate, config.optimizer
    key, advice = (
        "still",
        "Try another learning rate, positions where order matters, or more layers.",
    )
    rated = f"A learning rate of {rate:g} is {{}} for {NAMES[optimizer]}: try {{}}.".format
    if worse and rate > LOW_RATE or (rate >= HIGH_RATE and optimizer != "sgd"):
        key, advice = "rate_high", rated("large", "a tenth of it, with a warm-up")
    elif rate <= LOW_RATE or optimizer == "sgd":
        key, advice = "rate_dead", rated("small", "ten times as much")
    yield Finding(
        key,
        "loss",
        f"After {step:,} steps the validation loss is {now:.3g}. It started at {first:.2f}, and guessing "
        f"gives {baseline:.2f}.",
        advice,
    )


def _loss(record: Record) -> float:
    return math.nan if record.loss is None else record.loss


def _median_loss(records: Sequence[Record]) -> float:
    return statistics.median(map(_loss, records))
