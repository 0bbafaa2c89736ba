"""Watch a training that runs elsewhere: any PyTorch model, in a loop of anybody's, in three lines.

    watcher = watch(model)
    for batch in data:
        ...  # loss.backward(); optimizer.step()
        watcher.step(loss)
    watcher.close()

Loss, gradient norms and attention go into a run's folder, which Runs and Compare runs show while it trains. The run has
no checkpoint: the model stays theirs.

Nothing of theirs is changed. The maps are read in a further forward pass in eval mode and without gradients, after which
generators and training flags are as before. Whatever goes wrong in it ends that part of the watching, with a warning.
"""

import inspect
import io
import math
import random
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from core.entries import quote, refuse_if
from core.files import runs_folder, sentence_of
from core.interpret.trace import Kind
from core.pretrained.module_reader import read_module
from core.runs.machine import record_machine
from core.runs.runs import LONGEST_NAME, Run, new_id
from core.serialization import read
from core.training.evaluate import Record
from core.training.loop import norms_by_part

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from transformers import TrainerCallback

MAX_WEIGHTS = 2**20  # numbers of the maps saved at one step: 2 MB
MAX_FRAMES = 100  # steps with maps; at more every second one goes, and maps are saved half as often
LONGEST_NOTE = 300  # characters
PULSE = 2.0  # seconds: how often a run says its step between two records


@dataclass(frozen=True)
class MapGroup:
    """Maps of one kind and size: their modules, heads and tokens. That of index i is "i:kind" in each frame, (layers,
    heads, rows, columns)."""

    kind: Kind
    layers: tuple[str, ...]
    heads: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class WatchedModel:
    """What run.json says of a watched run: the model's class and parameters, the steps between two records, the maps of
    a frame, a checksum of the inputs that they are of ("" without any), and what is not watched, in sentences.

    `diverged` are the steps between which the loss became NaN or infinite; None where it is finite.
    """

    model: str
    parameters: int
    every: int
    inputs: str = ""
    groups: tuple[MapGroup, ...] = ()
    notes: tuple[str, ...] = ()
    diverged: tuple[int, int] | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        """That of a run; ConfigError where its file does not describe one."""
        return read(run.metadata().get("watched"), cls, "A watched run")


def watch(
    model: nn.Module,
    every: int = 100,
    folder: Path | str | None = None,
    inputs: Tensor | Sequence[Any] | Mapping[str, Any] | None = None,
    heads: Sequence[int] | None = None,
    *,
    tokens: Sequence[str] = (),
    name: str = "",
) -> "Watcher":
    """Begin to watch a training; a record at the first step and at every `every`-th.

    `folder` is that of the runs, by default the lab's own. The maps are of `inputs`, `model(*inputs)` or
    `model(**inputs)`, by default those of the first forward pass from here on; of the batch the first sequence is read.
    `heads` are those of each layer, by default as many as fit into MAX_WEIGHTS. `tokens` name the rows and columns, and
    `name` the run. Of several processes the first one watches. ConfigError for an argument that does not fit.
    """
    refuse_if(
        not isinstance(model, nn.Module),
        f"watch takes the model, a torch.nn.Module, not {type(model).__name__}: watch(model).",
    )
    refuse_if(
        not isinstance(every, int) or every < 1,
        f"every = {quote(every)}; expected the steps between two records, a whole number from 1.",
    )
    refuse_if(
        not isinstance(inputs, Tensor | Sequence | Mapping | None),
        f"inputs = {quote(inputs)}; expected a tensor, or what model(*inputs) or model(**inputs) takes.",
    )
    numbers = isinstance(heads, Sequence) and all(isinstance(one, int) for one in heads)
    refuse_if(
        heads is not None and not (numbers and heads),
        f"heads = {quote(heads)}; expected the numbers of heads, such as [0, 3], or None for all.",
    )
    refuse_if(
        not isinstance(name, str) or len(name) > LONGEST_NAME,
        f"name = {quote(name)}; expected a text of at most {LONGEST_NAME} characters.",
    )
    runs = Path(folder or runs_folder())
    refuse_if(
        Run(runs).exists(), f"folder = {runs} is a run; expected the folder in which runs are made."
    )
    return Watcher(model, every, runs, inputs, heads, tokens, name)


class Watcher:
    """A training that is watched: `step` after each step of the optimizer, then `close`; or a `with` block.

    `run` is its folder.
    """

    def __init__(
        self,
        model: nn.Module,
        every: int,
        folder: Path,
        inputs: Any,
        heads: Sequence[int] | None,
        tokens: Sequence[str],
        name: str,
    ) -> None:
        inner = getattr(model, "_orig_mod", model)  # of a compiled model
        parallel = isinstance(inner, nn.DataParallel | DistributedDataParallel)
        self.model: nn.Module = next(inner.children()) if parallel else model
        self.run, self.steps = Run(folder / new_id()), 0
        self._inputs, self._heads, self._tokens = inputs, heads, tokens
        self._every = self._maps_every = every
        self._losses = list[Any]()
        self._last: Record | None = None
        self._finite = 0  # the last step with a record of a finite loss
        self._wrote = time.perf_counter()  # when the folder last said how far it is
        self._began, self._own = self._wrote, 0.0  # seconds of them that records took
        kind = type(getattr(self.model, "_orig_mod", self.model))
        self._data, self._lock = WatchedModel(kind.__name__, 0, every), self.run.lock()
        self._hook = model.register_forward_pre_hook(_Hook(self._see), with_kwargs=True)
        spread = distributed.is_available() and distributed.is_initialized()
        self._several = spread and distributed.get_world_size() > 1
        self._replica, self._autocast = parallel, _autocast(self._device)
        self._off = {"records"} if spread and distributed.get_rank() else set[str]()
        if inputs is not None or self._off:
            self._hook.remove()
        self._try("records", self._create, name)
        if inputs is not None:
            self.record()

    def _create(self, name: str) -> None:
        self.run.path.mkdir(parents=True)
        self._lock.acquire(timeout=1.0)
        # before there is a run, which would wait for a worker; without the number of this process, by which a server
        # ends a worker that does not stop
        self.run.set_status("running")
        self.run.create(watched=msgspec.to_builtins(self._data), name=name or None)
        record_machine(self.run, self._device)
        self._inputs = _copied(self._inputs)

    @property
    def _device(self) -> str:
        return next((str(weight.device) for weight in self.model.parameters()), "cpu")

    def step(self, loss: Tensor | float | None = None) -> None:
        """A step of the optimizer is done, and its gradients are still there: before `zero_grad`.

        A record has the mean of the losses since the one before, and the norms of this step's gradients.
        """
        self.steps += 1
        if loss is not None and "records" not in self._off:
            self._losses.append(loss.detach().clone() if isinstance(loss, Tensor) else loss)
        if self.steps % self._every == 0 or self.steps == 1:
            self.record()
        elif (now := time.perf_counter()) - self._wrote > PULSE:
            self._wrote = now
            self._try("records", self.run.set_status, "running", f"At step {self.steps:,}.")

    def record(
        self, loss: float | None = None, validation: float | None = None, rate: float | None = None
    ) -> None:
        """Record this step now, with a training loss, a validation loss or a learning rate that the loop knows."""
        now, given = time.perf_counter(), {"train_loss": loss, "loss": validation, "rate": rate}
        self._try("records", self._record, now, given)
        self._own += time.perf_counter() - now

    def _figures(self, given: dict[str, Any]) -> dict[str, float]:
        if self._losses and given["train_loss"] is None:
            given["train_loss"] = fmean(map(float, self._losses))
        return {name: float(value) for name, value in given.items() if value is not None}

    def _record(self, now: float, given: dict[str, Any]) -> None:
        figures = self._try("losses", self._figures, given) or {}
        last, maps = self._last, dict[str, np.ndarray]()
        self._losses = []
        if last is None or last.step != self.steps:  # the first record of this step
            norms = self._try("gradients", self._norms) or {}
            total = math.hypot(*norms.values()) if norms else None
            last = Record(self.steps, gradient=total, gradients=norms)
            if self.steps % self._maps_every == 0 or not self._data.groups:
                maps = self._try("maps", self._maps) or {}
            if self._last is None:  # after a pass, in which lazy layers get theirs
                count = sum(weight.numel() for weight in self.model.parameters())
                self._describe(parameters=count)
        if (train_loss := figures.get("train_loss")) is not None:
            before = self._data.diverged or (self._finite, self.steps)
            self._describe(diverged=None if math.isfinite(train_loss) else before)
            self._finite = self.steps if math.isfinite(train_loss) else self._finite
        odd = next(
            (one for one in (*figures.values(), last.gradient or 0.0) if not math.isfinite(one)),
            0.0,
        )
        if odd and "numbers" not in self._off:
            self._end(
                "numbers",
                f"At step {self.steps:,} the loss or a gradient is {odd}, which no curve shows.",
            )
        more: dict[str, Any] = figures
        self._last = replace(
            last,
            **more,
            elapsed=time.perf_counter() - self._began,
            train_seconds=max(0.0, now - self._began - self._own),
            maps=maps,
        )
        self.run.append(self._last)

    def close(self, state: str = "finished", message: str = "") -> None:
        """End the watching: its last steps are recorded, the model has no hook of it, and the run stays."""
        if self._losses:
            self.record()
        self._hook.remove()
        message = message or f"Watched for {self.steps:,} steps."
        self._try("records", self.run.set_status, state, message[:LONGEST_NOTE])
        self._off.add("records")
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return self.close()
        state = "failed" if isinstance(error, Exception) else "stopped"
        return self.close(state, f"Ended at step {self.steps:,}: {type(error).__name__} {error}")

    def _see(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copy the inputs of the first forward pass, and leave the model."""
        self._hook.remove()
        self._inputs = self._try("maps", _named, self.model, args, kwargs)
        self._autocast = _autocast(self._device)
        # as a Trainer gives the model that a DistributedDataParallel of its own runs
        code = DistributedDataParallel.forward.__code__
        self._replica |= any(frame.f_code is code for frame, _ in walk_stack(None))

    def _norms(self) -> dict[str, float]:
        split = any(isinstance(part, FullyShardedDataParallel) for part in self.model.modules())
        kinds = {
            type(weight.grad) for weight in self.model.parameters()
        }  # another one: of a DTensor
        refuse_if(
            self._several and (split or not kinds <= {Tensor, type(None)}),
            "each process has a part of them",
        )
        return norms_by_part(self.model)

    def _maps(self) -> dict[str, np.ndarray]:
        """The maps of this step by group; the first time run.json says what they are, and what is not read."""
        refuse_if(self._inputs is None, "no forward pass was seen; give watch(model, inputs=…)")
        refuse_if(
            self._several and not self._replica,
            "several processes train it, and only what a DistributedDataParallel runs is whole in each; give that to "
            "watch, or no inputs=",
        )
        cuda = {one.device.index for one in self.model.parameters() if one.device.type == "cuda"}
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with torch.random.fork_rng(devices=sorted(cuda)), self._autocast, _Alone():
                inputs = _copied(self._inputs, self._device)
                reading = read_module(self.model, inputs, heads=self._heads)
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
        trace = reading.trace(self._tokens, self._tokens)
        missing = [f"{module} is not read: {why}" for module, why in reading.unread.items()]
        refuse_if(not trace.maps, "; ".join(missing) or "no attention was seen in it")
        one = sum(each.weights[0].size for each in trace.maps)  # of one head of each layer
        most, stride = max(1, MAX_WEIGHTS // one), -(-one // MAX_WEIGHTS)
        had = sum(len(group.layers) for group in self._data.groups)
        refuse_if(
            len(trace.maps[::stride]) < had,
            "; ".join(missing) or "fewer modules attend than before",
        )
        missing += [
            f"The maps of {call.name} are not what it returned: {call.error:.1g} apart."
            for call in reading.calls
            if not call.agrees
        ]
        if self._tokens and len(self._tokens) not in {
            size for call in reading.calls for size in call.shape[2:]
        }:
            missing.append(
                f"The {len(self._tokens)} tokens= name no map, as none has so many rows or columns."
            )
        if stride > 1 or any(len(call.heads) > most for call in reading.calls):
            missing.append(
                f"Saved are the maps of at most {most} heads of every {stride}. layer, as many as fit; choose heads=, "
                "or give shorter inputs=."
            )
        groups = defaultdict[tuple[Any, ...], dict[str, np.ndarray]](dict)
        for call, each in zip(reading.calls[::stride], trace.maps[::stride], strict=True):
            layers = groups[each.kind, call.heads[:most], each.queries, each.keys]
            path = call.name or self._data.model
            layers[f"{path} ({len(layers) + 1})" if path in layers else path] = each.weights[:most]
        if not self._data.groups:
            saved = io.BytesIO()
            torch.save(self._inputs, saved)
            digest = f"{zlib.crc32(saved.getvalue()):08x}"
            self._describe(inputs=digest, notes=(*self._data.notes, *missing))
        named = [MapGroup(kind, tuple(of), *more) for (kind, *more), of in groups.items()]
        self._describe(groups=tuple(named))
        frames = self.run.frame_steps()
        if len(frames) >= MAX_FRAMES:
            self._maps_every *= 2
            for step in frames[1::2]:
                self.run.frame_path(step).unlink()
        return {
            f"{at}:{group.kind}": np.stack([*of.values()])
            for at, (group, of) in enumerate(zip(named, groups.values(), strict=True))
        }

    def _describe(self, **changes: Any) -> None:
        if (data := replace(self._data, **changes)) != self._data:
            self._data = data
            self.run.update_metadata(watched=msgspec.to_builtins(data))

    def _try(self, part: str, work: Callable[..., Any], *given: Any) -> Any:
        """work(*given). Whatever goes wrong in it ends this part of the watching, and never their training: None."""
        if part in self._off:
            return None
        try:
            return work(*given)
        except Exception as error:
            on = f" from step {self.steps:,} on" if part == "maps" and self._data.groups else ""
            self._end(
                part, f"The {part} of this training are not watched{on}: {sentence_of(error)}"
            )
            return None

    def _end(self, part: str, why: str) -> None:
        self._off.add(part)
        why = why.partition("\n")[0][:LONGEST_NOTE]  # torch lists all its backends below
        with suppress(Exception):  # of a folder that is gone; and warnings may be set to be raised
            self._describe(notes=(*self._data.notes, why))
            if part == "records":
                self.run.set_status("failed", why)
        with suppress(Warning):
            warnings.warn(f"attention-lab: {why}", RuntimeWarning, stacklevel=2)


class _Hook:
    """What is called before a forward pass; no compiled code, and no copy or file of the model, has it."""

    def __init__(self, see: Callable[..., None] | None = None) -> None:
        self.see = see

    def __call__(self, *given: Any) -> None:
        if self.see is not None and not torch.compiler.is_compiling():
            self.see(*given)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


class _Alone(TorchDispatchMode):
    """Refuses a call that waits for other processes, which do not make it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(each is not Tensor and each is not nn.Parameter for each in types):
            return NotImplemented  # its own calls come here, as those of a DTensor
        refuse_if("c10d" in func.namespace, "it would wait for the other processes")
        return func(*args, **(kwargs or {}))


def _autocast(device: str) -> AbstractContextManager[Any]:
    """The autocast that is in effect."""
    kind = torch.device(device).type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy of what a module was called with, by name where anything was."""
    names = inspect.signature(module.forward).parameters
    return _copied({**dict(zip(names, args, strict=False)), **kwargs} if kwargs else args)


def _copied(value: Any, device: str | None = None) -> Any:
    """Inputs of a model without their graph, so that nobody changes them; on that device."""
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=True)
    if isinstance(value, Mapping):
        return {name: _copied(one, device) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(one, device) for one in value)
    return value


def WatchCallback(every: int = 100, **options: Any) -> "TrainerCallback":
    """`watch` for transformers' Trainer: `Trainer(…, callbacks=[WatchCallback()])`, with the options of `watch`.

    The losses and the learning rate are those that it logs (`logging_steps`).
    """
    from transformers import TrainerCallback

    class Watching(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.watcher = watch(more["model"], every, **options)
            self.watcher.steps = state.global_step  # of one that is resumed

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.watcher.step()

        def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            logs = more["logs"]
            given = [logs.get(name) for name in ("loss", "eval_loss", "learning_rate")]
            if given[:2] != [None, None]:
                self.watcher.record(*given)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.watcher.close()

    return Watching()


def LightningWatch(every: int = 100, **options: Any) -> "Callback":
    """`watch` for Lightning: `Trainer(callbacks=[LightningWatch()])`, with the options of `watch`.

    `inputs` are those of the module's own `forward`. A metric `val_loss` is the validation loss.
    """
    from lightning.pytorch import Callback

    class Watching(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            # what a DistributedDataParallel runs, where one does
            self.watcher = watch(trainer.model, every, **options)
            self.watcher.steps = trainer.global_step

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if trainer.global_step > self.watcher.steps:  # not while gradients are accumulated
                loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
                if loss is not None:
                    loss = loss * trainer.accumulate_grad_batches  # by which Lightning divides it
                self.watcher.step(loss)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            loss = trainer.callback_metrics.get("val_loss")
            if loss is not None and not trainer.sanity_checking:
                self.watcher.record(validation=float(loss))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.watcher.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.watcher.__exit__(type(exception), exception, None)

    return Watching()
