"""The training loop: a generator of records. A page plots them, a test takes three."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from core.models import build_model
from core.tasks import PAD, Example, Task, make_task
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import Stopped, buckets, cross_maps, measure_free, measure_given, never, score
from core.training.record import Record

PASS = 0.99
FINAL = 1_000


@dataclass
class Session:
    """Everything a run changes as it learns."""

    config: RunConfig
    task: Task
    model: nn.Module
    optimizer: torch.optim.Optimizer
    data: torch.Generator
    device: str
    held_out: tuple[Example, ...]


def prepare(config: RunConfig) -> Session:
    """Seed torch and build the task, the model and its optimizer; seeding is process-wide, so do this in a worker."""
    device = resolve_device(config.device)
    torch.manual_seed(config.seed)
    task = make_task(config.task)
    longest = max(task.max_source, task.max_target) + 1  # the end mark
    model = build_model(config.model, len(task.source_vocab), len(task.target_vocab), longest).to(device)
    data = torch.Generator().manual_seed(config.seed)
    return Session(config, task, model, _optimizer(config, model), data, device, task.held_out(config.held_out))


def train(
    config: RunConfig, session: Session | None = None, stop: Callable[[], bool] = never
) -> Iterator[Record]:
    """Yield a record before the first step, then every `record_every` steps, and a final one over 1,000 held-out items.

    Ends after `steps`, after `seconds`, after two passes in a row at 99 % that 1,000 items confirm (if `finish_early`),
    or, without the final record, as soon as `stop()` is true. Raises FloatingPointError when the loss is no longer a
    number.
    """
    session = session or prepare(config)
    clock = Clock()
    passes = 0
    try:
        yield _measure(session, clock, 0, stop)
        for step in range(1, config.steps + 1):
            clock.add(*_step(session, step))
            if stop():
                return
            late = clock.elapsed > config.seconds
            if step % config.record_every and step < config.steps and not late:
                continue
            record = _measure(session, clock, step, stop)
            if record.exact is not None:
                passes = passes + 1 if record.exact >= PASS else 0
            yield record
            if late:
                break
            if config.finish_early and passes >= 2 and step < config.steps:
                last = _final(session, clock, record, stop)
                if last.exact is not None and last.exact >= PASS:  # the few held-out items of each record may flatter
                    yield last
                    return
                passes = 0
        yield _final(session, clock, record, stop)
    except Stopped:
        return


def _final(session: Session, clock: Clock, record: Record, stop: Callable[[], bool]) -> Record:
    """The record of the same step over many more held-out items."""
    last = _measure(session, clock, record.step, stop, final=True)
    return replace(last, train_loss=record.train_loss, gradient=record.gradient,
                   tokens_per_second=record.tokens_per_second)


class Clock:
    """Times training apart from measuring, and averages what came between two records."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.clear()

    def clear(self) -> None:
        self.losses: list[float] = []
        self.gradients: list[float] = []
        self.tokens = 0
        self.busy = 0.0

    def add(self, loss: float, gradient: float, tokens: int, seconds: float) -> None:
        self.losses.append(loss)
        self.gradients.append(gradient)
        self.tokens += tokens
        self.busy += seconds

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started


def learning_rate(config: RunConfig, step: int) -> float:
    """The rate of a step: a linear rise over `warmup`, then constant, or a cosine down to a tenth at the last step."""
    rise = min(1.0, step / (config.warmup + 1))
    if config.schedule == "constant":
        return config.learning_rate * rise
    done = min(1.0, step / config.steps)
    return config.learning_rate * rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def _optimizer(config: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return kinds[config.optimizer](model.parameters(), lr=config.learning_rate)


def _step(session: Session, step: int) -> tuple[float, float, int, float]:
    """One update: its loss (nats a token), the gradient's norm before clipping, tokens seen, seconds."""
    started = time.perf_counter()
    config, model = session.config, session.model
    model.train()
    for group in session.optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    batch = session.task.batch(config.batch_size, session.data).to(session.device)
    logits = model(batch.source, batch.source_mask, batch.target_in).logits  # (B, T, V)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
    session.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    gradient = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    value = loss.item()
    if not math.isfinite(value):
        raise FloatingPointError(f"The loss is no longer a number at step {step}; take a smaller learning rate.")
    session.optimizer.step()
    return value, float(gradient), batch.tokens, time.perf_counter() - started


def _measure(session: Session, clock: Clock, step: int, stop: Callable[[], bool], final: bool = False) -> Record:
    """The record of this step; it decodes freely on every `decode_every`-th record and on the final one."""
    config, task, model = session.config, session.task, session.model
    model.eval()
    examples = task.held_out(FINAL) if final else session.held_out
    given = measure_given(model, task, examples, session.device, stop)
    free = final or step % (config.record_every * config.decode_every) == 0 or step >= config.steps
    predictions = measure_free(model, task, examples, session.device, stop) if free else []
    record = Record(
        step=step,
        train_loss=_mean(clock.losses),
        loss=given.loss,
        letters=given.letters,
        **(score(task, predictions) if free else {}),
        expected=given.expected,
        even=given.even,
        gradient=_mean(clock.gradients),
        tokens_per_second=clock.tokens / clock.busy if clock.busy else None,
        elapsed=clock.elapsed,
        held_out=len(predictions),
        final=final,
        examples=tuple(predictions[: config.watch]),
        buckets=buckets(task, predictions) if final else (),
        maps=cross_maps(model, task, session.held_out[: config.watch], session.device),
    )
    if not final:
        clock.clear()
    return record


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
