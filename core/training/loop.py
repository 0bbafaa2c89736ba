"""The training loop: a generator of records. A page plots them, a test takes three."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from core.tasks import Example
from core.training.auxiliary import INDEXER_WEIGHT, indexer_losses
from core.training.config import RunConfig
from core.training.evaluate import (
    Stopped,
    buckets,
    frames,
    measure_free,
    measure_teacher_forced,
    never_stop,
)
from core.training.objectives import objective
from core.training.record import Record
from core.training.session import Session, one_thread, parts_of, prepare

PASS = 0.99
FINAL = 1_000


def train(
    config: RunConfig, session: Session | None = None, stop: Callable[[], bool] = never_stop
) -> Iterator[Record]:
    """Yield a record before the first step, then every `record_every` steps, and a final one over 1,000 held-out items.

    A restored session continues after its step. Ends after `steps`, after `seconds` or `trained` seconds, after two
    records in a row at 99 % that 1,000 items confirm (if `finish_early`), after `patience` records without a smaller
    validation loss, or, without the final record, as soon as `stop()` is true. With `keep_best` the final record
    measures the weights of the smallest validation loss, on held-out items that did not choose them if there are
    enough. FloatingPointError at the next record or stop when the loss or its gradient is not finite. It computes on
    one thread; between records, and at the end, the caller has as many as before.
    """
    records = _records(config, session, stop)
    try:
        while True:
            with one_thread():
                record = next(records, None)
            if record is None:
                return
            yield record
    finally:
        records.close()


def _records(
    config: RunConfig, session: Session | None, stop: Callable[[], bool]
) -> Generator[Record]:
    session = session or prepare(config)
    session.task.batch(
        1, torch.Generator()
    )  # what a task makes once, before the clock of the first step
    now, clock, record, late = session.progress, Clock(session), session.record, False
    try:
        while True:
            if record is None and (late or now.step >= config.steps or _due(session)):
                record = _next_record(session, clock, stop)
                yield record
            if record is not None:
                if late or now.step >= config.steps or 0 < config.patience <= now.waited:
                    break
                if config.finish_early and now.passes >= 2:
                    last = _final(session, clock, record, stop)
                    if last.exact is not None and last.exact >= PASS:  # a record has few items
                        yield last
                        return
                    now.passes = 0
            clock.add(one_step(session, now.step + 1))
            now.step, record = now.step + 1, None
            if stop():
                return
            late = clock.elapsed > config.seconds or now.trained > config.trained
        yield replace(
            _final(session, clock, record, stop),
            capped=now.step < config.steps and clock.elapsed > config.seconds,
        )
    except Stopped:
        return
    finally:
        now.elapsed = clock.elapsed
        clock.collect()


def _due(session: Session) -> bool:
    """Whether this step needs a record; a session restored at one has it already."""
    step = session.progress.step
    return step % session.config.record_every == 0 and (step == 0 or session.interval.count > 0)


def _next_record(session: Session, clock: Clock, stop: Callable[[], bool]) -> Record:
    """The record of this step; counts the passes in a row, and the records without a smaller loss."""
    now, record = session.progress, measure(session, clock, stop)
    if not now.step:
        return record
    loss = record.validation_loss
    better = loss is not None and loss < now.best
    now.best, now.waited = (loss, 0) if better else (now.best, now.waited + 1)  # type: ignore[assignment]
    if better and session.config.keep_best:
        session.note_best()
    if record.exact is not None:
        now.passes = now.passes + 1 if record.exact >= PASS else 0
    return record


def _final(session: Session, clock: Clock, record: Record, stop: Callable[[], bool]) -> Record:
    """The record of the same step over 1,000 held-out items."""
    with session.best_weights() as best:
        last = measure(session, clock, stop, final=True)
    return replace(
        last,
        best=best,
        train_loss=record.train_loss,
        gradient=record.gradient,
        gradients=record.gradients,
        rate=record.rate,
        tokens_per_second=record.tokens_per_second,
        data_share=record.data_share,
    )


@dataclass(frozen=True)
class Step:
    """One update: its loss, its gradient norm before clipping and its indexers' loss (0 without any), on the device;
    tokens, seconds, and those of data."""

    number: int
    loss: Tensor
    gradient: Tensor
    indexer: Tensor
    tokens: int
    seconds: float
    data: float


class Clock:
    """Times training without measuring, and averages the steps between two records."""

    def __init__(self, session: Session) -> None:
        self.progress, self.interval = session.progress, session.interval
        self.started = time.perf_counter() - session.progress.elapsed
        self.steps: list[Step] = []  # not yet fetched from the device

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.progress.trained += step.seconds
        self.interval.add(step.tokens, step.seconds, step.data)

    def collect(self) -> None:
        """Fetch the losses and norms since the last call in one transfer; FloatingPointError if one is not finite."""
        steps, self.steps = self.steps, []
        if not steps:
            return
        started = time.perf_counter()
        values = torch.stack(
            [torch.stack((step.loss, step.gradient, step.indexer)) for step in steps]
        ).tolist()
        waited = time.perf_counter() - started  # seconds the device still worked on the steps
        self.progress.trained += waited
        self.interval.busy += waited
        for step, (loss, gradient, indexer) in zip(steps, values, strict=True):
            if not (math.isfinite(loss) and math.isfinite(gradient)):
                what = "gradient" if math.isfinite(loss) else "loss"
                raise FloatingPointError(
                    f"The {what} is no longer a number at step {step.number}; take a smaller "
                    "learning rate."
                )
            self.interval.loss += loss
            self.interval.gradient += gradient
            self.interval.indexer += indexer

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    def figures(self) -> dict[str, Any]:
        """The fields of a Record on the steps since the last one; empty before the first step."""
        self.collect()
        each = self.interval
        if not each.count:
            return {}
        return {
            "train_loss": each.loss / each.count,
            "gradient": each.gradient / each.count,
            "indexer_loss": each.indexer / each.count if each.indexer else None,
            "tokens_per_second": each.tokens / each.busy,
            "data_share": each.data / each.busy,
        }


def learning_rate(config: RunConfig, step: int) -> float:
    """The rate of a step: linear over `warmup`, then constant, a cosine down to a tenth at the last step, or 1/√step
    (Vaswani 2017, section 5.3, with `learning_rate` as its peak)."""
    rise = min(1.0, step / (config.warmup + 1))
    if config.schedule == "constant":
        return config.learning_rate * rise
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * min(rise, math.sqrt((config.warmup + 1) / step))
    done = min(1.0, step / config.steps)
    return config.learning_rate * rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def one_step(session: Session, step: int) -> Step:
    """One update of the session's model; fetches nothing from its device."""
    started = time.perf_counter()
    config, model = session.config, session.model
    model.train()
    for group in session.optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    batch = session.task.batch(config.batch_size, session.data)
    tokens, batch = batch.tokens, batch.to(session.device)  # counted before they are on the device
    made = time.perf_counter() - started
    with (
        torch.autocast(session.device, torch.bfloat16, enabled=config.precision == "bf16"),
        indexer_losses(model) as auxiliary,
    ):
        logits = model(batch.source, batch.source_mask, batch.target_in).logits
    loss = objective(session.task).loss(logits.float(), batch, config.label_smoothing)
    indexer = torch.stack(auxiliary).float().mean() if auxiliary else torch.zeros_like(loss)
    session.optimizer.zero_grad(set_to_none=True)
    (loss + INDEXER_WEIGHT * indexer if auxiliary else loss).backward()
    gradient = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    session.optimizer.step()
    return Step(
        step,
        loss.detach(),
        gradient.detach(),
        indexer.detach(),
        tokens,
        time.perf_counter() - started,
        made,
    )


def measure(
    session: Session, clock: Clock, stop: Callable[[], bool] = never_stop, final: bool = False
) -> Record:
    """The record of this step; it decodes in every `decode_every`-th record, the last and the final one.

    An untrained model decodes only where every record does.
    """
    config, task, model, step = session.config, session.task, session.model, session.progress.step
    figures, gradients = clock.figures(), {} if final else gradient_norms(session)
    model.eval()
    examples = final_examples(session) if final else session.held_out
    forced = measure_teacher_forced(model, task, examples, session.device, stop)
    due = step % (config.record_every * config.decode_every) == 0 and (
        step > 0 or config.decode_every == 1
    )
    free, form = final or due or step >= config.steps, objective(task)
    decoded = examples if form.scored else examples[: config.watch]
    predictions = measure_free(model, task, decoded, session.device, stop) if free else []
    record = Record(
        step=step,
        loss=forced.loss,
        letters=forced.letters,
        expected=forced.expected,
        even=forced.even,
        unknown=forced.unknown,
        known_loss=forced.known_loss,
        confusion=forced.confusion,
        **(form.score(task, predictions) if free else {}),
        **figures,
        gradients=gradients,
        rate=learning_rate(config, step) if step else None,
        elapsed=clock.elapsed,
        trained=session.progress.trained,
        held_out=len(examples),
        final=final,
        examples=tuple(predictions[: config.watch]),
        buckets=buckets(task, predictions) if free else (),
        maps=frames(model, config.model, task, session.held_out[: config.watch], session.device),
    )
    session.progress.elapsed = record.elapsed
    if not final:
        session.interval.clear()
    return record


def final_examples(session: Session) -> tuple[Example, ...]:
    """1,000 held-out items; not those that chose the best weights, where enough others are left."""
    task, chose = session.task, len(session.held_out) if session.config.keep_best else 0
    others = task.held_out(FINAL + chose)[chose:]
    return others if len(others) >= max(1, chose) else task.held_out(FINAL)


def gradient_norms(session: Session) -> dict[str, float]:
    """The norm of the last step's clipped gradient by part of the model; empty before the first step."""
    gradients = {
        name: [weight.grad for weight in weights if weight.grad is not None]
        for name, weights in parts_of(session.model).items()
    }
    return {
        name: float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(part))))
        for name, part in gradients.items()
        if part
    }
