"""The training loop: a generator of records. A page plots them, a test takes three."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from core.attention import Attention
from core.hooks import hooked
from core.models import Model, build_model
from core.serialization import renamed
from core.tasks import Example, Task, make_task
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import (
    Stopped,
    buckets,
    frames,
    measure_free,
    measure_teacher_forced,
    never_stop,
    objective,
)
from core.training.record import Record

# The auxiliary losses of a model's attention layers: what trains parts that the task's loss does not reach.


INDEXER_WEIGHT = 1.0  # of the indexers' mean loss, which alone reaches them, beside the task's


@contextmanager
def indexer_losses(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the loss of each layer's indexer in the forward passes inside the block; empty where there is none."""
    losses: list[Tensor] = []

    def collect(layer: nn.Module, given: object, steps: object) -> None:
        loss = getattr(steps, "indexer_loss", None)
        if loss is not None:
            losses.append(loss)

    with hooked(
        layer.register_forward_hook(collect)
        for layer in model.modules()
        if isinstance(layer, Attention) and layer.indexer is not None
    ):
        yield losses


# PyTorch's optimizers for a run, without torch.compile, which is not used here and slow to import.


Optimizer = torch.optim.Optimizer
WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def _without_compile(kind: Any) -> Any:
    """A subclass with the methods that torch wraps for torch.compile, unwrapped; the numbers are the same.

    The wrappers import torch._dynamo: as much time as the rest of a worker's start, and 70 MB.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    return type(
        kind.__name__, (kind,), methods | {"step": torch.no_grad()(inspect.unwrap(kind.step))}
    )


KINDS = {
    "adamw": _without_compile(torch.optim.AdamW),
    "adam": _without_compile(torch.optim.Adam),
    "rmsprop": _without_compile(torch.optim.RMSprop),
    "sgd": _without_compile(torch.optim.SGD),
}


def make_optimizer(config: RunConfig, model: nn.Module) -> Optimizer:
    """The optimizer of a config; AdamW decouples weight decay from the gradient (Loshchilov & Hutter 2019)."""
    more = {"momentum": 0.9} if config.optimizer == "sgd" else {}
    optimizer: Optimizer = KINDS[config.optimizer](
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, **more
    )
    return optimizer


# The state of a training run, and its conversion to tensors, from which a run continues.


@dataclass
class Progress:
    """Counters of a run; `elapsed` are seconds with measuring, `train_seconds` without."""

    step: int = 0
    passes: int = 0  # records in a row with an exact match of 99 %
    best: float = float("inf")  # the smallest validation loss
    waited: int = 0  # records since
    elapsed: float = 0.0
    train_seconds: float = 0.0


@dataclass
class Interval:
    """Sums over the steps since the last record."""

    loss: float = 0.0
    gradient: float = 0.0
    indexer: float = 0.0
    tokens: int = 0
    busy: float = 0.0  # seconds
    data: float = 0.0  # seconds of them spent on making batches
    count: int = 0

    def add(self, tokens: int, busy: float, data: float) -> None:
        self.tokens += tokens
        self.busy += busy
        self.data += data
        self.count += 1

    def clear(self) -> None:
        vars(self).update(vars(Interval()))


def read_counters(text: Mapping[str, str]) -> tuple[Progress, Interval]:
    """The counters in the text of a checkpoint; KeyError or ValueError where one is missing or is no number."""
    text = renamed(text, "record")
    now = {name: type(usual)(text[name]) for name, usual in vars(Progress()).items()}
    sums = {  # missing in checkpoints of older versions
        name: type(usual)(text.get(f"interval.{name}", usual))
        for name, usual in vars(Interval()).items()
    }
    return Progress(**now), Interval(**sums)


@dataclass(frozen=True)
class Best:
    """The weights at the step of the smallest validation loss."""

    step: int
    weights: dict[str, Tensor]


@dataclass
class Session:
    """A task, a model, its optimizer and the data generator; `record` is that of the step it was restored at."""

    config: RunConfig
    task: Task
    model: Model
    optimizer: Optimizer
    data: torch.Generator
    device: str
    held_out: tuple[Example, ...]
    progress: Progress
    best: Best | None = None
    interval: Interval = field(default_factory=Interval)
    record: Record | None = None

    def note_best(self) -> None:
        """Copy the current weights as those of the smallest validation loss."""
        self.best = Best(self.progress.step, self._copy_weights())

    def _copy_weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    @contextmanager
    def best_weights(self) -> Iterator[int | None]:
        """Use the best weights inside the block; gives their step, or None where those are the last ones."""
        if self.best is None or self.best.step == self.progress.step:
            yield None
            return
        last = self._copy_weights()
        self.model.load_state_dict(self.best.weights)
        try:
            yield self.best.step
        finally:
            self.model.load_state_dict(last)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The state as tensors by name (model.*, optimizer.*, generator.*), and the progress as text."""
        tensors = {
            f"model.{name}": value.detach() for name, value in self.model.state_dict().items()
        }
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{name}": torch.as_tensor(value)
                for name, value in values.items()
                if value is not None
            }
        tensors |= {
            "generator.data": self.data.get_state(),
            "generator.torch": torch.get_rng_state(),
        }
        if self.device == "cuda":
            tensors["generator.cuda"] = torch.cuda.get_rng_state()
        text = {name: repr(value) for name, value in vars(self.progress).items()}
        text |= {f"interval.{name}": repr(value) for name, value in vars(self.interval).items()}
        # Tied weights are one tensor twice, which a safetensors file cannot hold: hence clone().
        return (
            {name: value.cpu().contiguous().clone() for name, value in tensors.items()},
            text | {"optimizer": self.config.optimizer},
        )

    def restore_best(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Take the best weights from a checkpoint."""
        self.best = Best(
            step,
            {name: value.to(self.device) for name, value in _within(tensors, "model.").items()},
        )

    def restore(self, tensors: dict[str, Tensor], text: dict[str, str]) -> None:
        """Restore a state; another optimizer than its own starts anew. ValueError when the weights do not fit."""
        try:
            self.model.load_state_dict(_within(tensors, "model."))
        except RuntimeError as error:
            raise ValueError(misfit(error)) from error
        if text.get("optimizer") == self.config.optimizer:
            self._restore_optimizer(_within(tensors, "optimizer."))
        self.data.set_state(tensors["generator.data"])
        torch.set_rng_state(tensors["generator.torch"])
        if self.device == "cuda" and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"])
        self.progress, self.interval = read_counters(text)

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, part = name.split(".", 1)
            state.setdefault(int(index), {})[part] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread; the caller's number is put back afterwards.

    The last bits of a sum depend on the number of threads, and with them all later numbers of a run.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@one_thread()
def prepare(config: RunConfig) -> Session:
    """Seed torch globally, and build the task, the model and its optimizer on one thread."""
    device = resolve_device(config.device)
    torch.manual_seed(config.seed)
    task = make_task(config.task)
    model = build_model(config.model, task.shape).to(device)
    if config.checkpointing:
        model.checkpointing = True
    data = torch.Generator().manual_seed(config.seed)
    return Session(
        config,
        task,
        model,
        make_optimizer(config, model),
        data,
        device,
        task.held_out(config.held_out),
        Progress(),
    )


def misfit(error: RuntimeError) -> str:
    """A sentence for weights that `load_state_dict` refuses, with the first of the lines in which it says why."""
    first, *reasons = str(error).splitlines()
    return f"The saved weights do not fit this model: {(reasons or [first])[0].strip()[:300]}"


def parts_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters by part of the model, in order: "source", "encoder.layers.0", …, "output"."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        words = name.split(".")[:-1]
        numbered = [i for i, word in enumerate(words) if word.isdecimal()]
        parts.setdefault(
            ".".join(words[: numbered[0] + 1] if numbered else words[:1] or [name]), []
        ).append(weight)
    return parts


def _within(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }


PASS = 0.99
FINAL = 1_000


def train(
    config: RunConfig, session: Session | None = None, stop: Callable[[], bool] = never_stop
) -> Iterator[Record]:
    """Yield a record before the first step, then every `record_every` steps, and a final one over 1,000 held-out items.

    A restored session continues after its step. Ends after `steps`, after `max_seconds` or `max_train_seconds`, after two
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
                    if (
                        last.sequence_accuracy is not None and last.sequence_accuracy >= PASS
                    ):  # a record has few items
                        yield last
                        return
                    now.passes = 0
            clock.add(one_step(session, now.step + 1))
            now.step, record = now.step + 1, None
            if stop():
                return
            late = (
                clock.elapsed > config.max_seconds or now.train_seconds > config.max_train_seconds
            )
        yield replace(
            _final(session, clock, record, stop),
            capped=now.step < config.steps and clock.elapsed > config.max_seconds,
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
    if record.sequence_accuracy is not None:
        now.passes = now.passes + 1 if record.sequence_accuracy >= PASS else 0
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
        self.progress.train_seconds += step.seconds
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
        self.progress.train_seconds += waited
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
    decoded = examples if form.scored else examples[: config.num_examples]
    predictions = measure_free(model, task, decoded, session.device, stop) if free else []
    record = Record(
        step=step,
        loss=forced.loss,
        token_accuracy=forced.token_accuracy,
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
        train_seconds=session.progress.train_seconds,
        held_out=len(examples),
        final=final,
        examples=tuple(predictions[: config.num_examples]),
        buckets=buckets(task, predictions) if free else (),
        maps=frames(
            model, config.model, task, session.held_out[: config.num_examples], session.device
        ),
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
