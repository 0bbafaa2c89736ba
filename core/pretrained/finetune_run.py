"""Fine-tune from a shell: `attention-lab finetune classify RUN_DIR` on our own rows, or with --data rows.csv."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from core import command_line
from core.command_line import Encoding, Pairs, given, settings, text_of
from core.entries import refuse_if
from core.files import is_intact, read_object, remove_tree, runs_folder, seal, write_atomically
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.decoding import eval_mode
from core.pretrained.base import ModelInputs, Reading
from core.pretrained.finetune import (
    RECORDS,
    TUNED,
    FineTuneConfig,
    Learner,
    Pair,
    Rows,
    build,
    check_words,
    load_tokenizer,
    resolve,
    usual,
)
from core.pretrained.forward import TEXT_INPUTS, end_tokens
from core.pretrained.reading import read
from core.runs.machine import line, record_machine
from core.runs.runs import Run, new_id
from core.runs.worker import work
from core.training import Prediction, Record, cap_reached, confusion_matrix, resolve_device

BATCH = 32
IGNORED = -100  # Hugging Face's target that no loss counts
MAX_EXAMPLES = 8  # held-out rows in each record


def measure(learner: Learner, pairs: Sequence[Pair]) -> Record:
    """What is measured on these rows, as a record of step 0: loss in nats (a token, for pairs), accuracies, predictions.

    Outputs of pairs are decoded greedily; `cut` counts those without an end mark within as many tokens as the longest
    answer has. `confusion` counts rows by their label and the predicted one, in the order of the learner's labels.
    """
    parts = [pairs[at : at + BATCH] for at in range(0, len(pairs), BATCH)]
    with eval_mode(learner.model), torch.inference_mode():
        if not learner.labels:
            return _measure_pairs(learner, parts)
        logits = torch.cat(
            [
                learner.model(**inputs(learner, [pair.text for pair in part])).logits.float()
                for part in parts
            ]
        )
        labels, best = classes(learner, pairs), logits.argmax(-1)
        return Record(
            0,
            loss=float(F.cross_entropy(logits, labels)),
            sequence_accuracy=float((best == labels).float().mean()),
            held_out=len(pairs),
            examples=tuple(
                Prediction((pair.text,), (pair.answer,), (learner.labels[one],))
                for pair, one in zip(pairs, best.tolist(), strict=True)
            ),
            confusion=tuple(map(tuple, confusion_matrix(logits, labels).tolist())),
        )


def _measure_pairs(learner: Learner, parts: Sequence[Sequence[Pair]]) -> Record:
    loss = right = tokens = 0.0
    predictions: list[Prediction] = []
    targets_of = [targets(learner, part) for part in parts]
    cap = max(labels.shape[1] for labels in targets_of)
    ends = end_tokens(learner)

    def written(ids: Int[Tensor, " T"]) -> tuple[str]:
        known = ids[ids != IGNORED].tolist()
        return (str(learner.tokenizer.decode(known, skip_special_tokens=True)).strip(),)

    for part, labels in zip(parts, targets_of, strict=True):
        batch, counted = inputs(learner, [pair.text for pair in part]), labels != IGNORED
        logits = learner.model(**batch, labels=labels).logits.float()
        loss += float(F.cross_entropy(logits[counted], labels[counted], reduction="sum"))
        right += float((logits.argmax(-1) == labels)[counted].sum())
        tokens += float(counted.sum())
        outputs = learner.model.generate(**batch, do_sample=False, num_beams=1, max_new_tokens=cap)
        for pair, row, ids in zip(part, labels, outputs, strict=True):
            predictions.append(
                Prediction(
                    (pair.text,),
                    written(row),
                    written(ids),
                    cut=bool(ends) and ends.isdisjoint(ids[1:].tolist()),
                )
            )
    return Record(
        0,
        loss=loss / tokens,
        token_accuracy=right / tokens,
        sequence_accuracy=sum(one.right for one in predictions) / len(predictions),
        cut=sum(one.cut for one in predictions),
        held_out=len(predictions),
        examples=tuple(predictions),
    )


def inputs(learner: Learner, texts: Sequence[str]) -> dict[str, Tensor]:
    """The model's inputs of texts, each cut to `max_tokens` and padded to the longest."""
    batch = learner.tokenizer(
        list(texts),
        padding=True,
        truncation=True,
        max_length=learner.max_tokens,
        return_tensors="pt",
    )
    return {name: value.to(learner.device) for name, value in batch.items() if name in TEXT_INPUTS}


def targets(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, "B T"]:
    """The answers' ids, each closed by the end mark and padded with IGNORED."""
    encoded = learner.tokenizer(
        text_target=[pair.answer for pair in pairs],
        truncation=True,
        max_length=learner.max_tokens - 1,
    )["input_ids"]
    end = learner.tokenizer.eos_token_id
    ids = [row if end is None or row[-1:] == [end] else [*row, end] for row in encoded]
    longest = max(map(len, ids))
    return torch.tensor(
        [row + [IGNORED] * (longest - len(row)) for row in ids], device=learner.device
    )


def classes(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, " B"]:
    """The index of each row's label among the model's outputs."""
    return torch.tensor(
        [learner.labels.index(pair.answer) for pair in pairs], device=learner.device
    )


def read_attention(learner: Learner, texts: Sequence[ModelInputs]) -> list[Reading]:
    """The attention on the watched sentences, computed on the CPU as on every page."""
    device = learner.device
    with eval_mode(learner.model):
        learner.model.to("cpu")
        try:
            return [read(learner, one) for one in texts]
        finally:
            learner.model.to(device)


def saved_maps(readings: Sequence[Reading]) -> dict[str, np.ndarray]:
    """The weights of each sentence and kind as a frame keeps them: (L, H, T, S), zeros for heads that a layer lacks."""
    saved = {}
    for index, reading in enumerate(readings):
        for kind in reading.trace.kinds:
            maps = [item.weights for item in reading.trace.of(kind).maps]
            most = max(map(len, maps))
            padded = [np.pad(one, ((0, most - len(one)), (0, 0), (0, 0))) for one in maps]
            saved[f"{index}:{kind}"] = np.stack(padded).astype(np.float16)
    return saved


def saved_layers(reading: Reading) -> dict[str, list[list[Any]]]:
    """The number of heads of each map, what it is if it has no softmax, and its number in the model, by kind."""
    return {
        kind: [[len(one.weights), one.state, one.number] for one in reading.trace.of(kind).maps]
        for kind in reading.trace.kinds
    }


def trace_of(
    maps: dict[str, np.ndarray], index: int, lines: dict[str, Any], source: str
) -> AttentionTrace:
    """The trace of one watched sentence from a saved frame; without weights where the frame lacks it."""
    traced = []
    for kind, (rows, columns) in lines["kinds"].items():
        weights = maps.get(f"{index}:{kind}", ())
        mask = np.tri(len(rows["tokens"]), dtype=bool)[None] if kind == "causal" else None
        layers = lines.get("layers", {}).get(
            kind, [[None, "", None]] * len(weights)
        )  # of older runs
        names = tuple(rows["tokens"]), tuple(columns["tokens"])
        traced += [
            AttentionMap(kind, layer, one[:heads], *names, mask, number, state)
            for layer, (one, (heads, state, number)) in enumerate(
                zip(weights, layers, strict=False)
            )
        ]
    return AttentionTrace(tuple(traced), source)


DAMAGED = (
    "The weights at which this run was paused changed after they were saved, so that it cannot go on. Its "
    "records and maps are kept; start a new run with the same settings."
)
OnRecord = Callable[[Record], None]


def create(
    config: FineTuneConfig, root: Path | None = None, path: Path | None = None, **more: object
) -> Run:
    """A new run's folder under `root` with a fresh id, or exactly at `path`.

    ConfigError or PretrainedError when its rows or its model cannot be used.
    """
    rows = config.rows
    recorded_inputs(config, rows)
    check_words(load_tokenizer(config.model, config.task), config.model, rows)
    resolve_device(config.device)
    run = Run(path or (root or runs_folder()) / new_id())
    (run.path / "frames").mkdir(parents=True)
    run.create(finetune=config.to_json(), **more)
    return run


def config_of(run: Run) -> FineTuneConfig:
    """The run's config; ConfigError when the file does not describe one."""
    return FineTuneConfig.from_json(run.metadata().get("finetune"))


def result(run: Run) -> Path | None:
    """The folder of the fine-tuned model; None before there is one."""
    return next(
        (
            path.parent
            for path in run.path.glob(f"*{TUNED}/model.safetensors")
            if path.with_name("config.json").is_file()
        ),
        None,
    )


def about(run: Run) -> dict[str, Any]:
    """The contents of watched.json; {} before the start.

    `sentences`, counts (`learns`, `weights`, `steps`), `new_words`, `new_head` (whether the head was initialized anew),
    `labels` (in the order of a record's confusion).
    """
    return read_object(run.path / "watched.json")


def fine_tune(
    run: Run, stop: Callable[[], bool], on_record: OnRecord = lambda record: None
) -> tuple[str, str]:
    """Train, or continue a paused run, and return the final state and its message."""
    config = config_of(run)
    rows = config.rows
    learner = build(config, rows)
    record_machine(run, learner.device.type)
    loop = FineTuneLoop(run, config, rows, learner, stop, on_record)
    saved = last_checkpoint(run)
    if saved is not None and not is_intact(saved):
        raise ValueError(DAMAGED)
    make_trainer(loop).train(resume_from_checkpoint=saved and str(saved))
    return loop.end()


def last_checkpoint(run: Run) -> Path | None:
    """The folder of the Trainer's last checkpoint; None but while the run is paused."""
    return max(
        (run.path / "trainer").glob("checkpoint-*"),
        key=lambda path: int(path.name.split("-")[1]),
        default=None,
    )


class FineTuneLoop:
    """Counts a run's steps, times it and writes its records."""

    def __init__(
        self,
        run: Run,
        config: FineTuneConfig,
        rows: Rows,
        learner: Learner,
        stop: Callable[[], bool],
        on_record: OnRecord,
    ) -> None:
        self.run, self.config, self.rows, self.learner = run, config, rows, learner
        self.stop, self.on_record = stop, on_record
        self.steps = math.ceil(len(rows.learned) / config.batch_size) * config.epochs
        self.every = max(1, round(self.steps / RECORDS))
        self.inputs = recorded_inputs(config, rows)
        self.losses: list[float] = []
        before = run.records()
        self.train_seconds = before[-1].train_seconds if before else 0.0
        self.began = time.perf_counter() - (before[-1].elapsed if before else 0.0)
        self.step, self.done, self.late, self.step_began = 0, False, False, self.began

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    @property
    def capped(self) -> bool:
        """Whether the cap on seconds ends the run before its last step."""
        return self.late and self.step < self.steps

    def begin(self, step: int) -> None:
        """Write watched.json and the first record; of a continued run, delete the records after `step`."""
        self.step = step
        if step:
            self.run.truncate(step)
            return
        learner, rows = self.learner, (*self.rows.learned, *self.rows.held_out)
        given = [learner.tokenizer([pair.text for pair in rows])["input_ids"]]
        if not learner.labels:
            given.append(learner.tokenizer(text_target=[pair.answer for pair in rows])["input_ids"])
        weights = list(learner.model.parameters())
        facts = {
            "truncated": sum(
                max(map(len, row)) > learner.max_tokens for row in zip(*given, strict=True)
            ),
            "max_tokens": learner.max_tokens,
            "sentences": [
                {
                    "text": one.text,
                    "target": one.target,
                    "kinds": {
                        kind: [
                            {"tokens": list(line.tokens), "special": list(line.special)}
                            for line in reading.lines(kind)
                        ]
                        for kind in reading.trace.kinds
                    },
                    "layers": saved_layers(reading),
                }
                for one, reading in zip(
                    self.inputs, read_attention(learner, self.inputs), strict=True
                )
            ],
            "learns": sum(weight.numel() for weight in weights if weight.requires_grad),
            "weights": sum(weight.numel() for weight in weights),
            "new_words": list(learner.new_words),
            "steps": self.steps,
            "new_head": learner.new_head,
            "labels": list(learner.labels),
        }
        write_atomically(
            self.run.path / "watched.json", json.dumps(facts, ensure_ascii=False).encode()
        )
        self.write(None)

    def after(self, step: int, rate: float) -> bool:
        """Write a record when it is due; returns whether to continue training."""
        self.train_seconds += time.perf_counter() - self.step_began
        self.step, self.late = step, self.elapsed > self.config.max_seconds
        stopped, paused = self.stop(), self.run.stop_request() == "pause"
        if stopped and not paused:
            return False
        self.done = step >= self.steps or self.late
        if self.done or step % self.every == 0:
            self.write(rate)
        return not self.late and not paused

    def write(self, rate: float | None) -> None:
        measured = measure(self.learner, self.rows.held_out)
        record = replace(
            measured,
            maps=saved_maps(read_attention(self.learner, self.inputs)),
            step=self.step,
            train_loss=sum(self.losses) / len(self.losses) if self.losses else None,
            rate=rate,
            elapsed=self.elapsed,
            train_seconds=self.train_seconds,
            final=self.done,
            capped=self.capped,
            examples=measured.examples[:MAX_EXAMPLES],
        )
        self.losses = []
        self.run.append(record)
        self.on_record(record)

    def learned(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss is no longer a number after step {self.step}; take a smaller learning "
                "rate."
            )
        self.losses.append(loss)

    def end(self) -> tuple[str, str]:
        """Save the model unless the run is paused; returns the final state and its message."""
        if self.run.stop_request() == "pause" and not self.done:
            if (saved := last_checkpoint(self.run)) is not None:
                seal(saved)
            return "paused", f"Paused at step {self.step:,}."
        if self.step and self.run.exists():
            if self.config.task == "pairs":  # the library's own default cuts at 20 tokens
                self.learner.model.generation_config.max_new_tokens = targets(
                    self.learner, (*self.rows.learned, *self.rows.held_out)
                ).shape[1]
            self.learner.save(self.run.path)
        remove_tree(self.run.path / "trainer")
        if not self.done:
            return "stopped", f"Stopped; everything up to step {self.step:,} is saved."
        capped = cap_reached(self.config.max_seconds, self.steps) if self.capped else ""
        return "finished", f"Finished after {self.step:,} steps in {self.elapsed:.1f} s.{capped}"


def recorded_inputs(config: FineTuneConfig, rows: Rows) -> tuple[ModelInputs, ...]:
    """The inputs whose attention is recorded: the config's sentence first, then a held-out row or two.

    The decoder of pairs reads the right targets, so that a map's rows stay the same during training; its sentence must
    be one of the sources, else ConfigError.
    """
    sentence = config.logged_example.strip()
    if config.task == "classify":
        texts = (sentence, *(pair.text for pair in rows.held_out[:1]))
        return tuple(map(ModelInputs, filter(None, texts)))
    chosen = [pair for pair in (*rows.held_out, *rows.learned) if pair.text == sentence]
    refuse_if(
        bool(sentence and not chosen),
        f"{sentence!r:.60} is not one of the sources, so its target is not known; choose one of them.",
    )
    pairs = dict.fromkeys((*chosen, *rows.held_out[:2]))
    return tuple(ModelInputs(pair.text, target=pair.answer) for pair in pairs)


def make_trainer(loop: FineTuneLoop) -> Any:
    """Hugging Face's Trainer over the training rows: AdamW, linear warm-up over a tenth of the steps, linear decay.

    It logs and saves nothing itself: a callback writes the run's files.
    """
    import transformers

    config, learner = loop.config, loop.learner
    args = transformers.TrainingArguments(
        output_dir=str(loop.run.path / "trainer"),
        num_train_epochs=config.epochs,
        seed=config.seed,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        weight_decay=0.01,
        warmup_steps=max(1, loop.steps // 10),
        lr_scheduler_type="linear",
        optim="adamw_torch",
        report_to=[],
        use_cpu=learner.device.type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    # with more, the Trainer multiplies the batch size by the number of GPUs
    args._n_gpu = min(args.n_gpu, 1)

    def collate(pairs: list[Any]) -> dict[str, Any]:
        answers = targets(learner, pairs) if config.task == "pairs" else classes(learner, pairs)
        return {**inputs(learner, [pair.text for pair in pairs]), "labels": answers}

    class RecordingTrainer(transformers.Trainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **more: Any) -> Any:
            loss = super().training_step(*args, **more)
            loop.learned(float(loss))
            return loss

    class Writes(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.begin(state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.step_began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if not loop.after(state.global_step, more["lr_scheduler"].get_last_lr()[0]):
                control.should_training_stop = True
                control.should_save = loop.run.stop_request() == "pause"

    trainer = RecordingTrainer(
        learner.model,
        args,
        train_dataset=list(loop.rows.learned),
        data_collator=collate,
        callbacks=[Writes()],
    )
    trainer.remove_callback(transformers.PrinterCallback)  # it would repeat metrics.jsonl
    return trainer


app = command_line.new_app(__doc__)


@app.command()
def finetune(
    task: Literal["classify", "pairs"],
    run_dir: Path,
    *,
    set: Pairs,
    encoding: Encoding = "utf-8",
    data: Annotated[Path | None, typer.Option(help="a CSV: text,label or source,target")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="minilm, a model of the lab, a folder, or owner/name of the hub"),
    ] = None,
    logged_example: Annotated[
        str | None,
        typer.Option("--logged-example", "--watch", help="the sentence whose attention is saved"),
    ] = None,
    seed: int | None = None,
    device: Annotated[
        str | None, typer.Option(help="auto (CUDA if available), cpu, cuda or mps")
    ] = None,
) -> None:
    """Fine-tune a pretrained model; --set changes its training, as epochs=3."""
    torch.set_num_threads(1)  # as in a worker, so that the same seed gives the same numbers
    more = {
        **given(
            logged_example=logged_example, seed=seed, device=device, model=model and resolve(model)
        ),
        **settings(set),
    }
    config = FineTuneConfig.from_json(usual(task, **text_of(data, encoding)).to_json() | more)
    run = create(config, path=run_dir)
    state = work(run.path, on_record=_print_record)
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    if config.task == "classify":
        label, share = config.rows.majority
        print(f"baseline: the majority class, {label!r}, is right for {share:.1%}")
    raise typer.Exit(0 if state == "finished" else 1)


def _print_record(record: Record) -> None:
    loss = "" if record.loss is None else f"loss {record.loss:.3f}"
    balanced = "" if record.balanced is None else f"  balanced {record.balanced:.1%}"
    capped = "  ended by the time limit" if record.capped else ""
    print(
        f"step {record.step:5,}  {loss}  right {record.sequence_accuracy:.1%}{balanced}  {record.elapsed:.1f} s{capped}"
    )
