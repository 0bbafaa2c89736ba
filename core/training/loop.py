"""The training loop: a generator of records. A page plots them, a test takes three."""

import inspect
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from core.attention import Attention
from core.entries import refuse_type
from core.models import Model, build_model, hooked
from core.serialization import renamed
from core.tasks import Example, Task, make_task
from core.threads import num_threads
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import (
    Record,
    Stopped,
    buckets,
    frames,
    measure_free,
    measure_teacher_forced,
    never_stop,
    objective,
)

INDEXER_WEIGHT = 1.0  # of the indexers' mean loss, which alone reaches them, beside the task's


@contextmanager
def indexer_losses(model: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the loss of each layer's indexer in the forward passes inside the block; empty where there is none."""
    losses: list[torch.Tensor] = []

    def collect(layer: torch.nn.Module, given: object, steps: object) -> None:
        loss = getattr(steps, "indexer_loss", None)
        if loss is not None:
            losses.append(loss)

    with hooked(
        layer.register_forward_hook(collect)
        for layer in model.modules()
        if isinstance(layer, Attention) and layer.indexer is not None
    ):
        yield losses


WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def _without_compile(kind: Any) -> Any:
    """A subclass with the methods that torch wraps for torch.compile, unwrapped; the numbers are the same.

    The wrappers import torch._dynamo: as much time as the rest of a worker's start, and 70 MB.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    return type(
        kind.__name__, (kind,), methods | {"step": torch.no_grad()(inspect.unwrap(kind.step))}
    )


KINDS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": _without_compile(torch.optim.AdamW),
    "adam": _without_compile(torch.optim.Adam),
    "rmsprop": _without_compile(torch.optim.RMSprop),
    "sgd": _without_compile(torch.optim.SGD),
}


def make_optimizer(config: RunConfig, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a config; AdamW decouples weight decay from the gradient (Loshchilov & Hutter 2019)."""
    more: dict[str, Any] = {"momentum": 0.9} if config.optimizer == "sgd" else {}
    if config.optimizer in ("adamw", "adam"):
        more = {"betas": (config.beta1, config.beta2)}
    weights: Any = model.parameters()
    if config.decayed == "matrices":
        every = [*weights]
        weights = [
            {"params": [each for each in every if each.dim() > 1]},
            {"params": [each for each in every if each.dim() < 2], "weight_decay": 0.0},
        ]
    return KINDS[config.optimizer](
        weights, lr=config.learning_rate, weight_decay=config.weight_decay, **more
    )


@torch.no_grad()
def start_as_gpt2(model: torch.nn.Module) -> None:
    """N(0, 0.02²) for matrices and embeddings, and biases of 0; what N sublayers add to the residual stream begins
    1/√N as large (Radford 2019, section 2.3). What begins as a constant, such as a gate at 0, stays."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding) and module.weight.std() > 0:
            torch.nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, torch.nn.Linear) and module.bias is not None:
                torch.nn.init.zeros_(module.bias)
    ends = ("projection.output.weight", "feed_forward.outer.weight")
    adding = [weight for name, weight in model.named_parameters() if name.endswith(ends)]
    for weight in adding:
        weight.mul_(len(adding) ** -0.5)


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
    """Sums over the steps since the last record, as far as they were fetched from the device; or one update: its loss,
    its gradient norm before clipping and its indexers' loss (0 without any), all three still on the device."""

    loss: Any = 0.0
    gradient: Any = 0.0
    indexer: Any = 0.0
    tokens: int = 0
    busy: float = 0.0  # seconds
    data: float = 0.0  # seconds of them spent on making batches
    count: int = 0


def read_counters(text: Mapping[str, str]) -> tuple[Progress, Interval, dict[str, float]]:
    """The counters and gradient norms in the text of a checkpoint; KeyError or ValueError where one is missing or is no
    number."""
    text = renamed(text, "record")
    now = {name: type(usual)(text[name]) for name, usual in vars(Progress()).items()}
    sums = {  # missing in checkpoints of older versions
        name: type(usual)(text.get(f"interval.{name}", usual))
        for name, usual in vars(Interval()).items()
    }
    part = "gradient."
    norms = {name.removeprefix(part): float(text[name]) for name in text if name.startswith(part)}
    return Progress(**now), Interval(**sums), norms


class Best(NamedTuple):
    """The step of the smallest validation loss, and its weights as `model.*`."""

    step: int
    tensors: Mapping[str, torch.Tensor]


@dataclass
class Session:
    """A task, a model, its optimizer and the data generator; `record` is that of the step it was restored at.

    `start` are the weights before the first step, by name. `gradients` are the norms of that step by part of the model.
    `steps` are those that were not yet fetched from the device, `started` is when the clock of the run stood at 0.
    """

    config: RunConfig
    task: Task
    model: Model
    optimizer: torch.optim.Optimizer
    data: torch.Generator
    device: str
    held_out: tuple[Example, ...]
    start: Mapping[str, torch.Tensor] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    best: Best | None = None
    interval: Interval = field(default_factory=Interval)
    record: Record | None = None
    gradients: dict[str, float] = field(default_factory=dict)
    steps: list[Interval] = field(default_factory=list)
    started: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds of the run, with measuring."""
        return time.perf_counter() - self.started

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the weights, as `model.*`."""
        return {
            f"model.{name}": value.detach().clone()
            for name, value in self.model.state_dict().items()
        }

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """The state as tensors by name (model.*, optimizer.*, generator.*), and the progress as text."""
        tensors = self.weights()
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
        if self.interval.count:  # the record of this step may be due, and no gradient is restored
            text |= {f"gradient.{part}": repr(of) for part, of in gradient_norms(self).items()}
        # Tied weights are one tensor twice, which a safetensors file cannot hold: hence clone().
        return (
            {name: value.cpu().contiguous().clone() for name, value in tensors.items()},
            text | {"optimizer": self.config.optimizer},
        )

    def restore(self, tensors: Mapping[str, torch.Tensor], text: Mapping[str, str]) -> None:
        """Restore a state; another optimizer than its own starts anew. ValueError when the weights do not fit."""
        load_weights(self.model, tensors)
        if text.get("optimizer") == self.config.optimizer:
            state: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
            for name in (name for name in tensors if name.startswith("optimizer.")):
                _, index, part = name.split(".", 2)
                state[int(index)][part] = tensors[name]
            self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": dict(state)})
        self.data.set_state(tensors["generator.data"])
        torch.set_rng_state(tensors["generator.torch"])
        if self.device == "cuda" and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"])
        self.progress, self.interval, self.gradients = read_counters(text)

    def collect(self) -> None:
        """Fetch the losses and norms since the last call in one transfer; FloatingPointError if one is not finite."""
        steps, self.steps = self.steps, []
        if not steps:
            return
        started, sums = time.perf_counter(), self.interval
        values = torch.stack(
            [torch.stack((step.loss, step.gradient, step.indexer)) for step in steps]
        ).tolist()
        waited = time.perf_counter() - started  # seconds the device still worked on the steps
        self.progress.train_seconds += waited
        sums.busy += waited
        first = self.progress.step - len(steps) + 1
        for number, (step, (loss, gradient, indexer)) in enumerate(
            zip(steps, values, strict=True), first
        ):
            if not (math.isfinite(loss) and math.isfinite(gradient)):
                what = "gradient" if math.isfinite(loss) else "loss"
                raise FloatingPointError(
                    f"The {what} is no longer a number at step {number}; take a smaller "
                    "learning rate."
                )
            fetched = replace(step, loss=loss, gradient=gradient, indexer=indexer)
            for name, value in vars(fetched).items():
                setattr(sums, name, getattr(sums, name) + value)


def load_weights(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Take the weights, `model.*` among the tensors of a checkpoint; ValueError where they do not fit."""
    weights = {
        name.removeprefix("model."): value
        for name, value in tensors.items()
        if name.startswith("model.")
    }
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # whose first line has no reason, and each further one has one
        first, *reasons = str(error).splitlines()
        raise ValueError(
            f"The saved weights do not fit this model: {(reasons or [first])[0].strip()[:300]}"
        ) from error


@num_threads(1)
def prepare(config: RunConfig) -> Session:
    """Seed torch globally, and build the task, the model and its optimizer on one thread."""
    device = resolve_device(config.device)
    torch.manual_seed(config.seed)
    task = make_task(config.task)
    model = build_model(config.model, task.shape).to(device)
    if config.initialization == "gpt2":
        start_as_gpt2(model)
    if config.checkpointing:
        model.checkpointing = True
    return Session(
        config,
        task,
        model,
        make_optimizer(config, model),
        torch.Generator().manual_seed(config.seed),
        device,
        task.held_out(config.held_out),
        start={name: weight.detach().clone() for name, weight in model.named_parameters()},
    )


def parts_of(model: torch.nn.Module) -> dict[str, list[torch.nn.Parameter]]:
    """The parameters by part of the model, in order: "source", "encoder.layers.0", …, "output"."""
    parts: dict[str, list[torch.nn.Parameter]] = defaultdict(list)
    for name, weight in model.named_parameters():
        numbered = re.match(r"(\w+\.)*?\d+(?=\.)", name)
        parts[numbered[0] if numbered else name.partition(".")[0]].append(weight)
    return dict(parts)


MATRICES = {  # the name of a part by a step of its path; the first that fits
    "query": "W_q",
    "key": "W_k",
    "value": "W_v",
    "projection": "W_o",
    "norm": "norms",
    "feed_forward": "feed-forward",
    "source": "embedding",
    "target": "embedding",
    "places": "positions",
    "output": "output layer",
}


@torch.no_grad()
def weight_changes(session: Session) -> dict[str, float]:
    """How far each part of the model is from its start: the norm of the change over that at the start.

    Parts are the four matrices of attention, of all layers together, and whatever else the model has.
    """
    start = session.start
    weights = {name: one for name, one in session.model.named_parameters() if name in start}
    norms = [
        torch._foreach_norm([weight - start[name] for name, weight in weights.items()]),
        torch._foreach_norm([start[name] for name in weights]),
    ]
    squares = torch.stack([torch.stack(one) for one in norms]).square().T.tolist()
    parts = defaultdict[str, list[list[float]]](list)
    for name, both in zip(weights, squares, strict=True):
        path = name.split(".")
        parts[next((part for key, part in MATRICES.items() if key in path), "other parts")].append(
            both
        )
    sums = {part: [sum(column) for column in zip(*parts[part], strict=True)] for part in parts}
    order = [*dict.fromkeys(MATRICES.values()), "other parts"]
    return {
        part: math.sqrt(sums[part][0] / sums[part][1])
        for part in sorted(sums, key=order.index)
        if sums[part][1]
    }


PASS = 0.99
FINAL = 1_000
OF_STEPS = ("train_loss", "gradient", "gradients", "rate", "tokens_per_second", "data_share")


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
    refuse_type(
        config, RunConfig, "train(RunConfig(TaskConfig.of('reverse'), ModelConfig.transformer()))"
    )
    records = _records(config, session, stop)
    try:
        while True:
            with num_threads(1):
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
    # What a task makes once, before the clock of the first step.
    session.task.batch(config.batch_size, torch.Generator())
    now, record, late = session.progress, session.record, False
    session.started = time.perf_counter() - now.elapsed
    try:
        while True:
            # a session that was restored at a record has it already
            due = now.step % config.record_every == 0 and (
                not now.step or session.steps or session.interval.count
            )
            if record is None and (late or now.step >= config.steps or due):
                record = measure(session, stop)
                if now.step:
                    loss, passes = record.validation_loss, record.sequence_accuracy
                    now.waited += 1
                    if loss is not None and loss < now.best:
                        now.best, now.waited = loss, 0
                        if config.keep_best:
                            session.best = Best(now.step, session.weights())
                    if passes is not None:
                        now.passes = now.passes + 1 if passes >= PASS else 0
                yield record
            if record is not None:
                if late or now.step >= config.steps or 0 < config.patience <= now.waited:
                    break
                if config.finish_early and now.passes >= 2:
                    last = _final(session, record, stop)
                    # a record has few items
                    if last.sequence_accuracy is not None and last.sequence_accuracy >= PASS:
                        yield last
                        return
                    now.passes = 0
            session.steps.append(step := one_step(session, now.step + 1))
            now.train_seconds += step.busy
            now.step, record = now.step + 1, None
            if stop():
                return
            late = (
                session.elapsed > config.max_seconds or now.train_seconds > config.max_train_seconds
            )
        yield replace(
            _final(session, record, stop),
            capped=now.step < config.steps and session.elapsed > config.max_seconds,
        )
    except Stopped:
        return
    finally:
        now.elapsed = session.elapsed
        session.collect()


def _final(session: Session, record: Record, stop: Callable[[], bool]) -> Record:
    """The record of the same step over 1,000 held-out items, of the best weights where there are such."""
    best, last_weights = session.best, session.weights()
    if best is not None:
        load_weights(session.model, best.tensors)
    try:
        last = measure(session, stop, final=True)
    finally:
        load_weights(session.model, last_weights)
    return replace(
        last,
        best=None if best is None or best.step == record.step else best.step,
        **{name: getattr(record, name) for name in OF_STEPS},
    )


def learning_rate(config: RunConfig, step: int) -> float:
    """The rate of a step: linear over `warmup`, then constant, a cosine down to `min_rate` of it at the last step,
    or 1/√step (Vaswani 2017, section 5.3, with `learning_rate` as its peak)."""
    rise = min(1.0, step / (config.warmup + 1))
    done, lowest = min(1.0, step / config.steps), config.min_rate
    fall = {
        "constant": 1.0,
        "inverse_sqrt": min(1.0, math.sqrt((config.warmup + 1) / step)),
        "cosine": lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * done)),
    }
    return config.learning_rate * rise * fall[config.schedule]


def one_step(session: Session, step: int) -> Interval:
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
    gradient = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    session.optimizer.step()
    busy = time.perf_counter() - started
    return Interval(loss.detach(), gradient.detach(), indexer.detach(), tokens, busy, made, 1)


def measure(session: Session, stop: Callable[[], bool] = never_stop, final: bool = False) -> Record:
    """The record of this step; it decodes in every `decode_every`-th record, the last and the final one.

    An untrained model decodes only where every record does.
    """
    config, task, model, step = session.config, session.task, session.model, session.progress.step
    session.collect()
    sums, figures, form = session.interval, dict[str, Any](), objective(task)
    if sums.count:
        figures = {
            "train_loss": sums.loss / sums.count,
            "gradient": sums.gradient / sums.count,
            "indexer_loss": sums.indexer / sums.count if sums.indexer else None,
            "tokens_per_second": sums.tokens / sums.busy,
            "data_share": sums.data / sums.busy,
        }
    gradients = {} if final else gradient_norms(session)
    model.eval()
    examples = final_examples(session) if final else session.held_out
    figures |= measure_teacher_forced(model, task, examples, session.device, stop)
    due = step % (config.record_every * config.decode_every) == 0 and (
        step > 0 or config.decode_every == 1
    )
    if final or due or step >= config.steps:
        predictions = measure_free(
            model,
            task,
            examples if form.scored else examples[: config.num_examples],
            session.device,
            stop,
        )
        figures |= form.score(task, predictions)
        figures |= {
            "examples": tuple(predictions[: config.num_examples]),
            "buckets": buckets(task, predictions),
        }
    record = Record(
        step=step,
        **figures,
        gradients=gradients,
        changes=weight_changes(session),
        rate=learning_rate(config, step) if step else None,
        elapsed=session.elapsed,
        train_seconds=session.progress.train_seconds,
        held_out=len(examples),
        final=final,
        maps=frames(
            model, config.model, task, session.held_out[: config.num_examples], session.device
        ),
    )
    session.progress.elapsed = record.elapsed
    if not final:
        session.interval = Interval()
    return record


def final_examples(session: Session) -> tuple[Example, ...]:
    """1,000 held-out items; not those that chose the best weights, where enough others are left."""
    task, chose = session.task, len(session.held_out) if session.config.keep_best else 0
    others = task.held_out(FINAL + chose)[chose:]
    return others if len(others) >= chose else task.held_out(FINAL)


def gradient_norms(session: Session) -> dict[str, float]:
    """The norm of the last step's clipped gradient by part of the model; empty before the first step.

    Those of the checkpoint where a session was restored and has made no step.
    """
    return norms_by_part(session.model) or session.gradients


def norms_by_part(model: torch.nn.Module) -> dict[str, float]:
    """The norm of the gradient that each part of a model has; without the parts that have none."""
    gradients = {
        name: [
            one.coalesce().values() if one.is_sparse else one
            for weight in weights
            if (one := weight.grad) is not None
        ]
        for name, weights in parts_of(model).items()
    }
    norms = {name: torch._foreach_norm(part) for name, part in gradients.items() if part}
    return {  # a part may lie on several devices
        name: float(torch.linalg.vector_norm(torch.stack([one.to(part[0].device) for one in part])))
        for name, part in norms.items()
    }
