"""The training loop: a generator of records. A page plots them, a test takes three."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from core.tasks import Example
from core.training.config import RunConfig
from core.training.evaluate import Stopped, buckets, frames, measure_free, measure_given, never
from core.training.objectives import objective
from core.training.record import Record
from core.training.session import Session, parts_of, prepare

PASS = 0.99
FINAL = 1_000


def train(
    config: RunConfig, session: Session | None = None, stop: Callable[[], bool] = never
) -> Iterator[Record]:
    """Yield a record before the first step, then every `record_every` steps, and a final one over 1,000 held-out items.

    A session that was restored goes on after its step. Ends after `steps`, after `seconds` or `trained` seconds, after
    two passes in a row at 99 % that 1,000 items confirm (if `finish_early`), after `patience` records without a smaller
    held-out loss, or, without the final record, as soon as `stop()` is true. With `keep_best` the final record measures
    the weights of the smallest held-out loss, on held-out items that did not choose them if there are enough. Raises
    FloatingPointError when the loss is no longer a number.
    """
    session = session or prepare(config)
    now, clock = session.progress, Clock(session)
    try:
        if now.step == 0:
            record = measure(session, clock, stop)
            yield record
        for step in range(now.step + 1, config.steps + 1):
            clock.add(one_step(session, step))
            now.step = step
            if stop():
                return
            late = clock.elapsed > config.seconds or now.trained > config.trained
            if step % config.record_every and step < config.steps and not late:
                continue
            record = measure(session, clock, stop)
            waited, passed = _waited_long(session, record), _passed_twice(session, record)
            yield record  # whoever takes it may keep the session as it now is
            if late or waited:
                break
            if passed and step < config.steps:
                last = _final(session, clock, record, stop)
                if last.exact is not None and last.exact >= PASS:  # the few held-out items of each record may flatter
                    yield last
                    return
                now.passes = 0
        yield _final(session, clock, record, stop)
    except Stopped:
        return
    finally:
        now.elapsed = clock.elapsed


def _passed_twice(session: Session, record: Record) -> bool:
    now = session.progress
    if record.exact is not None:
        now.passes = now.passes + 1 if record.exact >= PASS else 0
    return session.config.finish_early and now.passes >= 2


def _waited_long(session: Session, record: Record) -> bool:
    """Whether the held-out loss has not fallen for `patience` records."""
    now, patience = session.progress, session.config.patience
    better = record.loss is not None and record.loss < now.best
    now.best, now.waited = (record.loss, 0) if better else (now.best, now.waited + 1)  # type: ignore[assignment]
    if better and session.config.keep_best:
        session.note_best()
    return 0 < patience <= now.waited


def _final(session: Session, clock: Clock, record: Record, stop: Callable[[], bool]) -> Record:
    """The record of the same step over many more held-out items."""
    with session.best_weights() as best:
        last = measure(session, clock, stop, final=True)
    return replace(last, best=best, train_loss=record.train_loss, gradient=record.gradient, gradients=record.gradients,
                   rate=record.rate, tokens_per_second=record.tokens_per_second, data_share=record.data_share)


@dataclass(frozen=True)
class Step:
    """One update: its loss, the gradient's norm before clipping, tokens seen, seconds, and those spent on data."""

    loss: float
    gradient: float
    tokens: int
    seconds: float
    data: float


class Clock:
    """Times training apart from measuring, and averages what came between two records."""

    def __init__(self, session: Session) -> None:
        self.progress = session.progress
        self.started = time.perf_counter() - session.progress.elapsed
        self.clear()

    def clear(self) -> None:
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.progress.trained += step.seconds

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    def told(self) -> dict[str, Any]:
        """The figures of a Record; none before the first step."""
        if not self.steps:
            return {}
        busy, count = sum(s.seconds for s in self.steps), len(self.steps)
        return {
            "train_loss": sum(s.loss for s in self.steps) / count,
            "gradient": sum(s.gradient for s in self.steps) / count,
            "tokens_per_second": sum(s.tokens for s in self.steps) / busy,
            "data_share": sum(s.data for s in self.steps) / busy,
        }


def learning_rate(config: RunConfig, step: int) -> float:
    """The rate of a step: a linear rise over `warmup`, then constant, a cosine down to a tenth at the last step, or
    falling as 1/√step (Vaswani 2017, section 5.3, with `learning_rate` as its peak)."""
    rise = min(1.0, step / (config.warmup + 1))
    if config.schedule == "constant":
        return config.learning_rate * rise
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * min(rise, math.sqrt((config.warmup + 1) / step))
    done = min(1.0, step / config.steps)
    return config.learning_rate * rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def one_step(session: Session, step: int) -> Step:
    """One update of the session's model."""
    started = time.perf_counter()
    config, model = session.config, session.model
    model.train()
    for group in session.optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    batch = session.task.batch(config.batch_size, session.data).to(session.device)
    made = time.perf_counter() - started
    with torch.autocast(session.device, torch.bfloat16, enabled=config.precision == "bf16"):
        logits = model(batch.source, batch.source_mask, batch.target_in).logits
    loss = objective(session.task).loss(logits.float(), batch, config.label_smoothing)
    session.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    gradient = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    value = loss.item()
    if not math.isfinite(value):
        raise FloatingPointError(f"The loss is no longer a number at step {step}; take a smaller learning rate.")
    session.optimizer.step()
    return Step(value, float(gradient), batch.tokens, time.perf_counter() - started, made)


def measure(session: Session, clock: Clock, stop: Callable[[], bool] = never, final: bool = False) -> Record:
    """The record of this step; the model runs free on every `decode_every`-th record and on the final one.

    Where it does so on few of them it is slow, so an untrained model, which says nothing, is not waited for.
    """
    config, task, model, step = session.config, session.task, session.model, session.progress.step
    told, gradients = clock.told(), {} if final else gradient_norms(session)
    model.eval()
    examples = final_examples(session) if final else session.held_out
    given = measure_given(model, task, examples, session.device, stop)
    due = step % (config.record_every * config.decode_every) == 0 and (step > 0 or config.decode_every == 1)
    free, asks = final or due or step >= config.steps, objective(task)
    told_of = examples if asks.scored else examples[: config.watch]
    predictions = measure_free(model, task, told_of, session.device, stop) if free else []
    record = Record(
        step=step, loss=given.loss, letters=given.letters, expected=given.expected, even=given.even,
        confusion=given.confusion,
        **(asks.score(task, predictions) if free else {}), **told,
        gradients=gradients, rate=learning_rate(config, step) if step else None,
        elapsed=clock.elapsed, trained=session.progress.trained, held_out=len(examples), final=final,
        examples=tuple(predictions[: config.watch]), buckets=buckets(task, predictions) if free else (),
        maps=frames(model, config.model, task, session.held_out[: config.watch], session.device),
    )
    session.progress.elapsed = record.elapsed
    if not final:
        clock.clear()
    return record


def final_examples(session: Session) -> tuple[Example, ...]:
    """1,000 held-out items; others than those that chose the best weights, where as many are left."""
    task, chose = session.task, len(session.held_out) if session.config.keep_best else 0
    others = task.held_out(FINAL + chose)[chose:]
    return others if len(others) >= max(1, chose) else task.held_out(FINAL)


def gradient_norms(session: Session) -> dict[str, float]:
    """The norm of the last step's gradient (as clipped) in each part of the model; empty before the first step."""
    found = {}
    for name, weights in parts_of(session.model).items():
        grads = [weight.grad for weight in weights if weight.grad is not None]
        if grads:
            found[name] = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))
    return found
