"""A fine-tuning run in its folder, trained by Hugging Face's Trainer with callbacks that write the run's files.

run.json        the config under "finetune", its creation time, its name, the machines that trained it
metrics.jsonl   one record a line, frames/ the attention on the watched sentences at that step
watched.json    the tokens of those sentences, and facts about the model
NAME-tuned/     the fine-tuned model as an ordinary Hugging Face folder
trainer/        the Trainer's checkpoint while the run is paused, with the checksums of its files
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.entries import ConfigError
from core.files import is_intact, read_object, runs_folder, seal, write_atomically
from core.finetune.build import TUNED, Learner, build, count
from core.finetune.config import RECORDS, FineTuneConfig
from core.finetune.data import Rows, parse
from core.finetune.measure import (
    MAX_EXAMPLES,
    classes,
    frames,
    inputs,
    measure,
    read_attention,
    targets,
    truncated,
    words,
)
from core.finetune.models import check_words, load_tokenizer
from core.pretrained.base import ModelInputs
from core.runs.machine import record_machine
from core.runs.runs import Run, new_id
from core.training.config import resolve_device
from core.training.record import Record, cap_reached

KEY = "finetune"
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
    rows = parse(config.task, config.data, config.seed)
    recorded_inputs(config, rows)
    check_words(load_tokenizer(config.model, config.task), config.model, rows)
    resolve_device(config.device)
    run = Run(path or (root or runs_folder()) / new_id())
    (run.path / "frames").mkdir(parents=True)
    data = {KEY: config.to_json(), "created": time.time(), **more}
    write_atomically(run.path / "run.json", json.dumps(data, indent=1).encode())
    return run


def is_fine_tune(run: Run) -> bool:
    return KEY in run.metadata()


def config_of(run: Run) -> FineTuneConfig:
    """The run's config; ConfigError when the file does not describe one."""
    return FineTuneConfig.from_json(run.metadata().get(KEY))


def result(run: Run) -> Path | None:
    """The folder of the fine-tuned model; None before there is one."""
    weights = run.path.glob(f"*{TUNED}/model.safetensors")
    return next((path.parent for path in weights if path.with_name("config.json").is_file()), None)


def about(run: Run) -> dict[str, Any]:
    """The contents of watched.json; {} before the start.

    `sentences`, counts (`learns`, `weights`, `steps`), `new_words`, `new_head` (whether the head was initialized anew),
    `labels` (in the order of a record's confusion).
    """
    return read_object(run.path / "watched.json")


def work(
    run: Run, stop: Callable[[], bool], on_record: OnRecord = lambda record: None
) -> tuple[str, str]:
    """Train, or continue a paused run, and return the final state and its message."""
    config = config_of(run)
    rows = parse(config.task, config.data, config.seed)
    learner = build(config, rows)
    record_machine(run, learner.device.type)
    course = Course(run, config, rows, learner, stop, on_record)
    saved = last_checkpoint(run)
    if saved is not None and not is_intact(saved):
        raise ValueError(DAMAGED)
    make_trainer(course).train(resume_from_checkpoint=saved and str(saved))
    return course.end()


def last_checkpoint(run: Run) -> Path | None:
    """The folder of the Trainer's last checkpoint; None but while the run is paused."""
    saved = (run.path / "trainer").glob("checkpoint-*")
    return max(saved, key=lambda path: int(path.name.split("-")[1]), default=None)


class Course:
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
        per_epoch = math.ceil(len(rows.learned) / config.batch_size)
        self.steps = per_epoch * config.epochs
        self.every = max(1, round(self.steps / RECORDS))
        self.inputs = recorded_inputs(config, rows)
        self.losses: list[float] = []
        before = run.records()
        self.trained = before[-1].trained if before else 0.0
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
        learns, weights = count(self.learner.model)
        rows = (*self.rows.learned, *self.rows.held_out)
        facts = {
            "truncated": truncated(self.learner, rows),
            "max_tokens": self.learner.max_tokens,
            "sentences": words(self.inputs, read_attention(self.learner, self.inputs)),
            "learns": learns,
            "weights": weights,
            "new_words": list(self.learner.new_words),
            "steps": self.steps,
            "new_head": self.learner.new_head,
            "labels": list(self.learner.labels),
        }
        write_atomically(
            self.run.path / "watched.json", json.dumps(facts, ensure_ascii=False).encode()
        )
        self.write(None)

    def after(self, step: int, rate: float) -> bool:
        """Write a record when it is due; returns whether to continue training."""
        self.trained += time.perf_counter() - self.step_began
        self.step, self.late = step, self.elapsed > self.config.seconds
        stopped, paused = self.stop(), self.run.stop_request() == "pause"
        if stopped and not paused:
            return False
        self.done = step >= self.steps or self.late
        if self.done or step % self.every == 0:
            self.write(rate)
        return not self.late and not paused

    def write(self, rate: float | None) -> None:
        evaluation = measure(self.learner, self.rows.held_out)
        losses, self.losses = self.losses, []
        record = Record(
            step=self.step,
            train_loss=sum(losses) / len(losses) if losses else None,
            loss=evaluation.loss,
            letters=evaluation.letters,
            exact=evaluation.exact,
            cut=evaluation.cut,
            rate=rate,
            elapsed=self.elapsed,
            trained=self.trained,
            held_out=len(self.rows.held_out),
            final=self.done,
            capped=self.capped,
            examples=evaluation.predictions[:MAX_EXAMPLES],
            confusion=evaluation.confusion,
            maps=frames(read_attention(self.learner, self.inputs)),
        )
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
                pairs = (*self.rows.learned, *self.rows.held_out)
                self.learner.model.generation_config.max_new_tokens = targets(
                    self.learner, pairs
                ).shape[1]
            self.learner.save(self.run.path)
        shutil.rmtree(self.run.path / "trainer", ignore_errors=True)
        if not self.done:
            return "stopped", f"Stopped; everything up to step {self.step:,} is saved."
        capped = cap_reached(self.config.seconds, self.steps) if self.capped else ""
        return "finished", f"Finished after {self.step:,} steps in {self.elapsed:.1f} s.{capped}"


def recorded_inputs(config: FineTuneConfig, rows: Rows) -> tuple[ModelInputs, ...]:
    """The inputs whose attention is recorded: the config's sentence first, then a held-out row or two.

    The decoder of pairs reads the right targets, so that a map's rows stay the same during training; its sentence must
    be one of the sources, else ConfigError.
    """
    sentence = config.watch.strip()
    if config.task == "classify":
        return (
            *([ModelInputs(sentence)] if sentence else []),
            *(ModelInputs(pair.text) for pair in rows.held_out[:1]),
        )
    chosen = [pair for pair in (*rows.held_out, *rows.learned) if pair.text == sentence]
    if sentence and not chosen:
        raise ConfigError(
            f"{sentence!r:.60} is not one of the sources, so its target is not known; choose one of "
            "them."
        )
    pairs = dict.fromkeys((*chosen, *rows.held_out[:2]))
    return tuple(ModelInputs(pair.text, target=pair.answer) for pair in pairs)


def make_trainer(course: Course) -> Any:
    """Hugging Face's Trainer over the training rows: AdamW, linear warm-up over a tenth of the steps, linear decay.

    It logs and saves nothing itself: a callback writes the run's files.
    """
    import transformers

    config, learner = course.config, course.learner
    args = transformers.TrainingArguments(
        output_dir=str(course.run.path / "trainer"),
        num_train_epochs=config.epochs,
        seed=config.seed,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        weight_decay=0.01,
        warmup_steps=max(1, course.steps // 10),
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
    args._n_gpu = min(
        args.n_gpu, 1
    )  # with more, the Trainer multiplies the batch size by the number of GPUs

    def collate(pairs: list[Any]) -> dict[str, Any]:
        answers = targets(learner, pairs) if config.task == "pairs" else classes(learner, pairs)
        return {**inputs(learner, [pair.text for pair in pairs]), "labels": answers}

    class RecordingTrainer(transformers.Trainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **more: Any) -> Any:
            loss = super().training_step(*args, **more)
            course.learned(float(loss))
            return loss

    class Writes(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            course.begin(state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            course.step_began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if not course.after(state.global_step, more["lr_scheduler"].get_last_lr()[0]):
                control.should_training_stop = True
                control.should_save = course.run.stop_request() == "pause"

    trainer = RecordingTrainer(
        learner.model,
        args,
        train_dataset=list(course.rows.learned),
        data_collator=collate,
        callbacks=[Writes()],
    )
    trainer.remove_callback(transformers.PrinterCallback)  # it would repeat metrics.jsonl
    return trainer
