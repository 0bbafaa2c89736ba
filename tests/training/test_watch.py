"""Watching a training of one's own: what a run's folder then holds, and that nothing of theirs is changed."""

import io
import math
import os
import random
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard

from core.entries import ConfigError
from core.runs.archive import write_tensorboard
from core.runs.runs import Run, create_run, list_runs
from core.training import watch as module
from core.training.watch import LightningWatch, WatchCallback, WatchedModel, Watcher, watch
from dashboard.server import queue
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[2]


class Block(nn.Module):
    """A layer as people write it, with what watching might disturb: dropout, a running mean, numbers from elsewhere."""

    def __init__(self, heads: int = 2, size: int = 8) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norm, self.drop = nn.BatchNorm1d(size), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).mT.mT.transpose(1, 2)
            for one in self.qkv(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        noise = random.random() + float(np.random.rand()) + torch.rand(())  # noqa: NPY002
        return self.norm((x + self.drop(self.out(mixed)) + 1e-3 * noise).mT).mT


class Model(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, 12)
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(ids)))


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


def loop(
    steps: int = 6,
    begin: Callable[[nn.Module], Watcher] | None = None,
    model: nn.Module | None = None,
) -> tuple[Any, list[float], Any]:
    """A training of a few steps, watched or not: the model, the losses and the watcher, which is still open."""
    seed()
    model = model or Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses, watcher = [], begin(model) if begin else None
    for _ in range(steps):
        ids = torch.randint(12, (3, 5))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if watcher is not None:
            watcher.step(loss)
        losses.append(loss.item())
    return model, losses, watcher


@pytest.mark.parametrize("inputs", [None, torch.arange(5)[None]], ids=["first batch", "inputs"])
def test_training_is_the_same_to_the_bit(tmp_path, inputs):
    plain, losses, _ = loop()
    states = torch.get_rng_state(), random.getstate(), np.random.rand()  # noqa: NPY002
    watched, same, watcher = loop(begin=lambda model: watch(model, 2, tmp_path, inputs))
    assert same == losses
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.rand()) == states[1:]  # noqa: NPY002
    for (name, one), (_, other) in zip(
        plain.state_dict().items(), watched.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert all(part.training for part in watched.modules())
    watcher.close()
    assert watcher.run.frame_steps() == ([0, 2, 4, 6] if inputs is not None else [1, 2, 4, 6])


def test_no_hook_is_left(tmp_path):
    model = Model()
    for begin in (
        lambda: watch(model, 1, tmp_path),
        lambda: watch(model, 1, tmp_path, torch.ones(1, 3).long()),
    ):
        with begin():  # of a loop that ends before its first step
            pass
        model(torch.ones(1, 3).long())
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


def test_a_copy_of_the_model_is_not_watched(tmp_path):
    model, ids = Model(), torch.arange(5)[None]
    with watch(model, 1, tmp_path) as watcher:
        averaged, file = torch.optim.swa_utils.AveragedModel(model), io.BytesIO()
        torch.save(model, file)
        for copied in (averaged, torch.load(io.BytesIO(file.getvalue()), weights_only=False)):
            copied(ids + 1)
        model(ids)
        watcher.step(1.0)
        averaged(ids + 1)
    assert torch.equal(watcher._inputs[0], ids)


def test_lazy_layers_are_counted_after_a_pass(tmp_path):
    model = nn.Sequential(nn.LazyLinear(8), nn.TransformerEncoderLayer(8, 2, 8))
    with watch(model, 1, tmp_path) as watcher:
        model(torch.rand(4, 2, 3))
        watcher.step(1.0)
    data = WatchedModel.of(watcher.run)
    assert data.parameters == sum(one.numel() for one in model.parameters()) and not data.notes


def test_records_are_what_the_loop_had(tmp_path):
    model, losses, watcher = loop(7, lambda model: watch(model, 3, tmp_path, name="mine"))
    watcher.close()
    run = list_runs(tmp_path)[0]
    assert run.path == watcher.run.path and run.name == "mine" and run.job == "watched"
    records = run.records()
    assert [record.step for record in records] == [1, 3, 6, 7]
    for record, part in zip(
        records, (losses[:1], losses[1:3], losses[3:6], losses[6:]), strict=True
    ):
        assert record.train_loss == pytest.approx(np.mean(part), rel=1e-4)
    norm = nn.utils.get_total_norm([one.grad for one in model.parameters()])
    assert records[-1].gradient == pytest.approx(float(norm), rel=1e-4)
    parts = [one.grad for one in model.blocks[0].parameters()]
    assert records[-1].gradients["blocks.0"] == pytest.approx(
        float(nn.utils.get_total_norm(parts)), rel=1e-4
    )
    assert run.status().state == "finished" and not run.alive()
    data = WatchedModel.of(run)
    assert (data.model, data.every) == ("Model", 3)
    assert data.parameters == sum(one.numel() for one in model.parameters())


def test_sparse_gradients_are_measured(tmp_path):
    model = nn.Sequential(nn.Embedding(12, 8, sparse=True), nn.Linear(8, 8))
    model(torch.tensor([1, 1, 2])).square().sum().backward()
    with pytest.warns(RuntimeWarning), watch(model, 1, tmp_path) as watcher:  # it has no attention
        watcher.step()
    norm = next(model.parameters()).grad.to_dense().norm()
    assert watcher.run.records()[0].gradients["0"] == pytest.approx(float(norm), rel=1e-4)


def test_maps_are_the_models_own(tmp_path):
    ids = torch.tensor([[3, 1, 4, 1]])
    names = ["a", "b", "c", "d"]
    model, _, watcher = loop(4, lambda model: watch(model, 4, tmp_path, {"ids": ids}, tokens=names))
    watcher.close()
    group = WatchedModel.of(watcher.run).groups[0]
    assert group == module.MapGroup(
        "causal", ("blocks.0", "blocks.1"), (0, 1), tuple(names), tuple(names)
    )
    q, k, _ = model.blocks[0].qkv(model.embed(ids)).unflatten(-1, (3, 2, 4)).unbind(2)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / 2
    expected = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf).softmax(-1)
    saved = watcher.run.frame(4)["0:causal"]
    assert saved.shape == (2, 2, 4, 4)
    assert saved[0] == pytest.approx(expected[0].detach().numpy(), abs=1e-3)  # saved as float16


def test_maps_of_other_sizes_are_groups_of_their_own(tmp_path):
    model = nn.Sequential(nn.Embedding(12, 8), Block(2), Block(4), Block(4))
    with watch(model, 1, tmp_path, torch.arange(5)[None]) as watcher:
        pass
    groups = WatchedModel.of(watcher.run).groups
    assert [(group.layers, len(group.heads)) for group in groups] == [(("1",), 2), (("2", "3"), 4)]
    assert {key: maps.shape for key, maps in watcher.run.frame(0).items()} == {
        "0:causal": (1, 2, 5, 5),
        "1:causal": (2, 4, 5, 5),
    }


def test_chosen_heads_and_as_many_as_fit(tmp_path, monkeypatch):
    ids = torch.arange(5)[None]
    with watch(Model(), 1, tmp_path, ids, heads=[1]) as watcher:
        pass
    assert WatchedModel.of(watcher.run).groups[0].heads == (1,)
    monkeypatch.setattr(module, "MAX_WEIGHTS", 2 * 5 * 5)
    with watch(Model(4), 1, tmp_path, ids) as watcher:
        pass
    data = WatchedModel.of(watcher.run)
    assert data.groups[0].layers == ("blocks.0", "blocks.2") and data.groups[0].heads == (0,)
    assert "1 head" in data.notes[0] and "heads=" in data.notes[0]


def test_frames_stay_few(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FRAMES", 4)
    _, _, watcher = loop(20, lambda model: watch(model, 1, tmp_path))
    watcher.close()
    assert watcher.run.frame_steps() == [1, 8, 16]
    assert len(watcher.run.records()) == 20


def lock(patch: pytest.MonkeyPatch, path: Path) -> None:
    path.chmod(0o500)
    patch.setattr(Run, "create", raising)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch, Path], object]] = {
    "reading": lambda patch, path: patch.setattr(module, "read_module", raising),
    "folder": lock,
    "disk": lambda patch, path: patch.setattr(Run, "append", raising),
    "gradients": lambda patch, path: patch.setattr(module, "norms_by_part", raising),
}


def raising(*args: object, **more: object) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("action", ["default", "error"])  # of warnings
def test_error_of_ours_never_stops_theirs(tmp_path, monkeypatch, fault, action):
    _, losses, _ = loop()
    FAULTS[fault](monkeypatch, tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(action)
        _, same, watcher = loop(begin=lambda model: watch(model, 2, tmp_path))
        watcher.close()
    tmp_path.chmod(0o700)
    assert same == losses
    assert len(told) == (action == "default")  # once
    if fault in ("reading", "gradients"):  # the rest goes on
        assert [record.step for record in watcher.run.records()] == [1, 2, 4, 6]
        assert "disk" in WatchedModel.of(watcher.run).notes[0]
    elif fault != "folder":
        assert watcher.run.status().state == "failed"


def test_deleted_folder_ends_the_watching_alone(tmp_path):
    def begin(model: nn.Module) -> Watcher:
        watcher = watch(model, 2, tmp_path)
        for path in sorted(watcher.run.path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        watcher.run.path.rmdir()
        return watcher

    with pytest.warns(RuntimeWarning, match="deleted"):
        _, losses, watcher = loop(begin=begin)
    watcher.close()
    assert len(losses) == 6 and not watcher.run.path.exists()


@pytest.mark.parametrize("layer", [nn.Linear(8, 12), nn.RNN(8, 8)], ids=["linear", "recurrent"])
def test_what_has_no_maps_says_so(tmp_path, layer):
    model, why = nn.Sequential(nn.Embedding(12, 8), layer), "maps of this training are not watched"
    with pytest.warns(RuntimeWarning, match=why), watch(model, 1, tmp_path) as watcher:
        model(torch.ones(1, 3).long())
        watcher.step(1.0)
    assert why in WatchedModel.of(watcher.run).notes[0]
    assert watcher.run.records()[0].train_loss == 1.0


def test_what_cannot_be_watched_is_refused(tmp_path):
    Run(tmp_path).create()  # a run, not the folder of runs
    nothing: Any = 3
    with pytest.raises(ConfigError, match=r"takes the model, a torch\.nn\.Module, not int"):
        watch(nothing)
    given: dict[str, Any]
    for given in (
        {"every": 0}, {"every": 2.5}, {"heads": []}, {"heads": "all"}, {"heads": 1}, {"inputs": 3},
        {"name": 80 * "long "}, {"folder": tmp_path},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{next(iter(given))} = "):
            watch(Model(), **given)


def test_end_of_a_block_tells_the_error(tmp_path):
    with pytest.raises(ZeroDivisionError), watch(Model(), folder=tmp_path) as watcher:
        watcher.step(1 / 0)
    status = watcher.run.status()
    assert status.state == "failed" and "ZeroDivisionError" in status.message
    with pytest.raises(KeyboardInterrupt), watch(Model(), folder=tmp_path) as watcher:
        raise KeyboardInterrupt
    assert watcher.run.status().state == "stopped"


def test_validation_joins_the_record_of_its_step(tmp_path):
    _, _, watcher = loop(2, lambda model: watch(model, 2, tmp_path))
    validation: Any = torch.tensor(2.5)
    watcher.record(validation=validation, rate=0.1)
    watcher.close()
    last = watcher.run.records()[-1]
    assert (last.step, last.loss, last.rate) == (2, 2.5, 0.1)
    assert last.train_loss is not None and last.gradient is not None
    assert write_tensorboard(watcher.run, tmp_path / "events").exists()


KILLED = """
import sys, time, torch
from core.training.watch import watch
layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.ones(1, 5, 8)
watcher = watch(layer, 2, inputs=(x, x, x))
for _ in range(4):
    watcher.step(layer(x, x, x)[0].sum())
print(watcher.run.id, flush=True)
time.sleep(600)
"""


def test_killed_process_leaves_a_readable_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8") as process:
        run = Run(tmp_path / process.stdout.readline().strip())
        try:
            queue.tick()
            assert run.alive() and run.status().state == "running"
        finally:
            process.kill()
    assert [record.step for record in run.records()] == [0, 1, 2, 4]
    assert run.frame_steps() == [0, 2, 4] and run.frame(4)
    queue.tick()
    status = run.status()
    assert status.state == "stopped"
    assert "without closing its watcher" in status.message and "step 4" in status.message


def test_server_leaves_a_live_one_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda *args: pytest.fail("it was ended"))
    monkeypatch.setattr(queue, "STOP_SECONDS", -1.0)
    with watch(Model()) as watcher:
        watcher.run.request_stop()
        queue.tick()
        assert queue.queue() == ([], [])
        waiting, given = create_run(small_run()), list[Run]()
        monkeypatch.setattr(queue, "max_workers", lambda: 1)
        monkeypatch.setattr(queue, "_give", given.append)
        queue.tick()
        assert given == [waiting]  # it takes no worker
        assert watcher.run.status().state == "running" and watcher.run.status().pid is None


def spread(rank: int, folder: Path) -> dict[str, Any]:
    """A training by two processes, unwatched and watched in several ways; what each then has."""
    distributed.init_process_group(
        "gloo", init_method=(folder / "meeting").as_uri(), rank=rank, world_size=2, timeout=timedelta(0, 60)
    )  # fmt: skip
    result = {}
    for way in ("unwatched", "given", "within", "waits", "split"):
        seed()
        inner = Model()
        if way == "waits":  # for the other process, in each forward pass
            inner.register_forward_hook(lambda *_: distributed.all_reduce(torch.ones(1)))
        if way == "split":
            model: nn.Module = fully_shard(inner, mesh=init_device_mesh("cpu", (2,)))
        else:
            model = nn.parallel.DistributedDataParallel(inner)

        def begin(model: nn.Module, way: str = way, inner: nn.Module = inner) -> Any:
            torch.manual_seed(rank)  # other batches in each
            of = inner if way == "within" else model  # as transformers' Trainer has it
            return None if way == "unwatched" else watch(of, 2, folder / "runs", name=way)

        _, losses, watcher = loop(3, begin, model)
        if watcher is not None:
            watcher.close()
            assert not any(part._forward_pre_hooks for part in inner.modules()) or way == "split"
        result[way] = inner, losses, watcher
    distributed.destroy_process_group()
    return result


def test_two_processes_are_watched_by_the_first(tmp_path):
    code = f"from pathlib import Path; from tests.training.test_watch import spread; spread(1, Path({str(tmp_path)!r}))"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as other:
            try:
                result = spread(0, tmp_path)
            finally:
                other.kill() if sys.exc_info()[0] else other.wait()
    assert other.returncode == 0
    runs = {run.name: run for run in list_runs(tmp_path / "runs")}
    assert [*runs] == ["given", "within", "waits", "split"]  # one each
    plain, losses, _ = result["unwatched"]
    for way in ("given", "within", "waits"):
        model, same, watcher = result[way]
        assert same == losses and watcher.run == runs[way]
        for one, other_one in zip(plain.parameters(), model.parameters(), strict=True):
            assert torch.equal(one, other_one)
        norm = nn.utils.get_total_norm([one.grad for one in model.parameters()])
        assert runs[way].records()[-1].gradient == pytest.approx(float(norm), rel=1e-4)
        assert runs[way].frame_steps() == ([] if way == "waits" else [1, 2])
    notes = {way: " ".join(WatchedModel.of(run).notes) for way, run in runs.items()}
    assert not notes["given"] and not notes["within"]
    assert "wait for the other processes" in notes["waits"]
    assert "each process has a part" in notes["split"] and "several processes" in notes["split"]
    assert [record.gradient for record in runs["split"].records()] == [None] * 3
    assert sum("attention-lab" in str(each.message) for each in told) == 3


class HalfOnly(Model):
    """A model whose attention takes bfloat16 alone, as fast kernels do."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        q, k, v = cast(Any, self.blocks[0]).qkv(x).chunk(3, -1)
        assert q.dtype == torch.bfloat16
        return self.head(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])


def test_maps_are_read_in_the_autocast_of_the_training(tmp_path):
    ids, model = torch.arange(5)[None], HalfOnly()
    with watch(model, 1, tmp_path) as seen:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(ids).float().square().mean()
        seen.step(loss)
    with torch.autocast("cpu", torch.bfloat16):
        given = watch(model, 1, tmp_path, ids)
    given.step(loss)
    assert seen.run.frame_steps() == [1] and given.run.frame_steps() == [0, 1]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler, once a process
def test_compiled_model_is_watched(tmp_path):
    model: Any = torch.compile(Model(), backend="eager")
    with watch(model, 1, tmp_path) as watcher:
        model(ids=torch.arange(5)[None])
        watcher.step(1.0)
    data = WatchedModel.of(watcher.run)
    assert data.model == "Model" and data.groups[0].layers == ("blocks.0", "blocks.1")
    assert not model._forward_pre_hooks


def test_what_is_not_used_is_told(tmp_path):
    model, ids = Model(), torch.arange(5)[None]
    with watch(model, 1, tmp_path, ids, tokens=["a", "b"]) as watcher:
        with pytest.warns(RuntimeWarning, match="losses of this training are not watched"):
            watcher.step(torch.ones(2))
        with pytest.warns(RuntimeWarning, match="At step 2 .* is inf"):
            next(model.parameters()).grad = torch.full((12, 8), torch.inf)
            watcher.step()
    assert "2 tokens= name no map" in WatchedModel.of(watcher.run).notes[0]
    assert [record.step for record in watcher.run.records()] == [0, 1, 2]  # the rest goes on


def test_trainer_is_watched(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=12, n_positions=8, n_embd=8, n_layer=2, n_head=2))
    rows = [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]} for _ in range(16)]
    args = TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=2, max_steps=6, logging_steps=2, eval_steps=3,
        eval_strategy="steps", report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    Trainer(
        model, args, train_dataset=rows, eval_dataset=rows[:4],
        callbacks=[WatchCallback(3, folder=tmp_path / "runs", name="tuned")],
    ).train()  # fmt: skip
    run = list_runs(tmp_path / "runs")[0]
    last = {record.step: record for record in run.records()}
    assert sorted(last) == [1, 2, 3, 4, 6] and run.status().state == "finished"
    assert [step for step, one in last.items() if one.train_loss is not None] == [2, 4, 6]
    assert [step for step, one in last.items() if one.loss is not None] == [3, 6]
    assert last[6].gradient and last[6].rate is not None
    assert run.frame_steps() == [1, 3, 6]
    assert run.frame(3)["0:causal"].shape == (2, 2, 4, 4)


def test_lightning_is_watched(tmp_path, monkeypatch):
    callback: Any = LightningWatchOf(monkeypatch)(2, folder=tmp_path)
    model, ids = Model(), torch.arange(5)[None]
    trainer: Any = types.SimpleNamespace(
        model=model,
        global_step=0,
        sanity_checking=False,
        accumulate_grad_batches=2,
        callback_metrics={"val_loss": torch.tensor(1.5)},
    )
    losses = list[float]()
    callback.on_train_start(trainer, model)
    for batch in range(8):  # two of which make a step
        loss = model(ids).square().mean()
        loss.backward()
        losses.append(loss.item())
        trainer.global_step = (batch + 1) // 2
        callback.on_train_batch_end(trainer, model, {"loss": loss.detach() / 2}, ids, batch)
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, model, None, ids, 8)  # of a step that gave no loss
    callback.on_validation_end(trainer, model)
    callback.on_train_end(trainer, model)
    run = list_runs(tmp_path)[0]
    assert [record.step for record in run.records()] == [1, 2, 4, 5]
    assert run.records()[0].train_loss == pytest.approx(losses[1], rel=1e-4)
    assert run.records()[-1].loss == 1.5 and run.frame_steps() == [1, 2, 4]
    with suppress(ZeroDivisionError):
        callback.on_train_start(trainer, model)
        callback.on_exception(trainer, model, ZeroDivisionError("x"))
    assert list_runs(tmp_path)[-1].status().state == "failed"


def LightningWatchOf(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`LightningWatch`, with a stand-in for a Lightning that is not installed."""
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        package, inside = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
        vars(inside)["Callback"] = object
        monkeypatch.setitem(sys.modules, "lightning", package)
        monkeypatch.setitem(sys.modules, "lightning.pytorch", inside)
    return LightningWatch


def test_the_document_is_true(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    text = (ROOT / "docs" / "watch-your-training.md").read_text(encoding="utf-8")
    loop_of_three_lines, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(loop_of_three_lines, "docs", "exec"), {})
    run = list_runs()[0]
    assert [record.step for record in run.records()] == [1, 100, 200, 300] == run.frame_steps()


def test_a_slow_loop_says_its_step_between_records(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PULSE", 0.0)
    with watch(Model(), 100, tmp_path) as watcher:
        for step in (1, 2, 3):
            watcher.step(1.0)
            says = "" if step == 1 else f"At step {step}."
            assert (watcher.run.status().message, watcher.run.status().state) == (says, "running")
    assert watcher.run.status().message == "Watched for 3 steps."


def test_a_loss_that_comes_back_has_not_diverged(tmp_path):
    with watch(Model(), 1, tmp_path) as watcher:
        for loss, diverged in ((1.0, None), (math.inf, (1, 2)), (math.nan, (1, 2)), (1.0, None)):
            watcher.step(loss)
            assert WatchedModel.of(watcher.run).diverged == diverged
