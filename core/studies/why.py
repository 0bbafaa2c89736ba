"""One translation model without attention and with it: settings, results by training, and the saved measurement.

`make bottleneck` measures again what is saved: quality by the source's length, and the alignment of one long sentence.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec import convert, to_builtins
from safetensors.numpy import load_file, save as to_bytes

from core.attention.config import entry
from core.models import ModelConfig
from core.runs.runs import Run, create_run
from core.runs.worker import work
from core.studies.efficient import machine
from core.tasks import TaskConfig
from core.training import COMPARED_SECONDS, COMPARED_STEPS, Bucket, Record, RunConfig, SeedStats
from core.training.evaluate import watched_examples

SIZES = (16, 32, 64, 96, 128, 192, 256)
LONGEST = (20, 30, 40, 50, 60, 70, 80)
FEW_STEPS = 0  # the option of SECONDS that trains for FEW steps instead, the same on a slow machine
SECONDS = (FEW_STEPS, 5, 10, 20, 45, 90, 180)
SCORES = ("dot", "general", "additive", "concat", "scaled_dot", "cosine")
# steps between two records, and records between two translations of held-out sentences
EVERY, DECODE_EVERY = (25, 2)
FEW = EVERY * DECODE_EVERY  # steps: up to the first translation, before attention has a clear lead
MEASURING = 3.0  # limit of a run's seconds, with measuring, as a multiple of its training: the machine may be busy


class Model(NamedTuple):
    """The score of a model's attention (None: no attention), and the size of its state."""

    score: str | None
    d_model: int

    @classmethod
    def of(cls, config: RunConfig) -> Model:
        attention = config.model.attention
        return cls(None if attention is None else attention.score.key, config.model.d_model)

    def name(self, with_size: bool = False) -> str:
        """The name beside its line."""
        name = "one vector" if self.score is None else "attention"
        if self.score not in (None, "dot"):
            name += f", {entry('score', self.score).name.lower()}"
        return f"{name}, {self.d_model}" if with_size else name


@dataclass(frozen=True)
class Trial:
    """The vector's size, the longest source in words, the score, the seconds of training each, and the seed."""

    d_model: int = 128
    longest: int = 60
    score: str = "dot"
    seconds: float = 45.0
    seed: int = 0

    @property
    def pair(self) -> tuple[Model, Model]:
        return Model(None, self.d_model), Model(self.score, self.d_model)

    def config(self, model: Model) -> RunConfig:
        """Number words from English to German, with equal seconds of training for all models, or a few steps.

        The rate falls as 1/√step, which needs no known last step, and no run ends early.
        """
        if self.seconds == FEW_STEPS:
            return replace(
                replace(self, seconds=SECONDS[-1]).config(model),
                steps=FEW,
                max_seconds=COMPARED_SECONDS,
                max_train_seconds=COMPARED_SECONDS,
            )
        return RunConfig(
            TaskConfig.of("numbers", max_source=self.longest),
            ModelConfig.recurrent(model.d_model, model.score),
            steps=COMPARED_STEPS,
            batch_size=64,
            learning_rate=4e-3,
            warmup=50,
            schedule="inverse_sqrt",
            seed=self.seed,
            max_seconds=min(COMPARED_SECONDS, 60 + MEASURING * self.seconds),
            max_train_seconds=self.seconds,
            record_every=EVERY,
            decode_every=DECODE_EVERY,
            held_out=120,
            num_examples=8,
            finish_early=False,
        )

    def counted(self, model: Model, steps: int) -> RunConfig:
        """The same for a number of steps, which gives the same numbers on any machine; the rate falls as a cosine."""
        return replace(
            self.config(model),
            steps=steps,
            max_train_seconds=COMPARED_SECONDS,
            max_seconds=COMPARED_SECONDS,
            record_every=max(1, steps // 20),  # every second is a tenth, whose weights are saved
            decode_every=1,
            schedule="cosine",
        )

    @classmethod
    def of(cls, config: RunConfig) -> Trial:
        """The setting of the run with attention."""
        model = Model.of(config)
        seconds = FEW_STEPS if config.steps == FEW else config.max_train_seconds
        return cls(
            model.d_model,
            int(config.task["max_source"]),
            model.score or cls.score,
            seconds,
            config.seed,
        )


def training_label(seconds: float) -> str:
    """An option of SECONDS in words."""
    return f"{FEW} steps" if seconds == FEW_STEPS else f"{seconds:g} s"


# The results of a trained model, of this session or saved: curves, scores by length, and one sentence.


METRICS = ("bleu", "sequence_accuracy")
WORDS = 25  # of the sentence whose alignment is drawn, at most: all can be read beside a map
FRAMES = 11  # of the alignment over training, and the last one


class Point(NamedTuple):
    """A free decode at one step: seconds of training, BLEU (0 to 100) and exact match (0 to 1)."""

    step: int
    seconds: float
    bleu: float
    sequence_accuracy: float


@dataclass(frozen=True)
class TrainedModel:
    """One trained model; `buckets` are of its latest decode, over `held_out` sentences."""

    model: Model
    seed: int
    points: tuple[Point, ...]
    buckets: tuple[Bucket, ...]
    held_out: int

    @classmethod
    def of(cls, config: RunConfig, records: Iterable[Record]) -> TrainedModel:
        decoded = [r for r in records if r.sequence_accuracy is not None and r.bleu is not None]
        points = {
            r.step: Point(r.step, r.train_seconds, r.bleu or 0.0, r.sequence_accuracy or 0.0)
            for r in decoded
        }
        last = decoded[-1] if decoded else Record(0)
        return cls(
            Model.of(config),
            config.seed,
            tuple(points.values()),
            last.buckets,
            last.held_out,
        )

    def rounded(self) -> TrainedModel:
        """With so many digits as are saved: seconds to 0.01, BLEU to 0.001."""
        return replace(
            self,
            points=tuple(
                p._replace(seconds=round(p.seconds, 2), bleu=round(p.bleu, 3)) for p in self.points
            ),
        )


@dataclass(frozen=True)
class Sentence:
    """A long held-out sentence: the output of each model, and the attention of the one that has it.

    `frames` are (step, weights (T, S)), oldest first; the target's end mark is the last row. `vectors` are what gives
    them, by the step: "query" (T, D), "key" (S, D) and "score" (T, S); only of steps at which the model is saved.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    outputs: Mapping[Model, tuple[str, ...]] = field(default_factory=dict)
    frames: tuple[tuple[int, np.ndarray], ...] = ()
    vectors: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Meeting:
    """The query (D,) of one output word at a step and what it meets of each input word: key (S, D), score and weight (S,).

    The model has no maps of its own: a query is the decoder's state, a key and its value are the encoder's state.
    """

    step: int
    word: str
    words: tuple[str, ...]
    query: np.ndarray
    keys: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    taken: np.ndarray  # (D,), the sum of the values by weight

    @property
    def best(self) -> int:
        return int(self.weights.argmax())


def meeting(result: Result, row: int, step: int) -> Meeting:
    """Cross-attention of one output word of the sentence at a step; KeyError where the model is not saved."""
    sentence = result.sentence or Sentence((), ())
    vectors = sentence.vectors[step]
    scores, keys = vectors["score"][row], vectors["key"].astype(np.float32)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return Meeting(
        step,
        (*sentence.target, "<eos>")[row],
        sentence.source,
        vectors["query"][row].astype(np.float32),
        keys,
        scores,
        weights,
        weights @ keys,
    )


@torch.no_grad()
def vectors_of(run: Run, step: int, index: int) -> dict[str, np.ndarray]:
    """The `vectors` of a run's watched sentence, from its checkpoint of that step."""
    (model, task), config = run.model(step), run.config()
    batch = task.collate([watched_examples(config.task, config.num_examples)[index]])
    output = model(batch.source, batch.source_mask, batch.target_in, record=True)
    (steps,) = output.maps["cross"]
    parts = {"query": steps.q, "key": steps.k, "score": steps.scores}
    return {name: part[0, 0].float().numpy() for name, part in parts.items()}


def sentence(runs: Mapping[Model, tuple[Run, Sequence[Record]]]) -> Sentence | None:
    """A watched sentence of some runs, with FRAMES frames at most; None before the first decode.

    It is the longest of at most WORDS words, else the shortest.
    """
    outputs, frames, first = {}, [], None
    vectors: dict[int, Mapping[str, np.ndarray]] = {}
    for model, (run, records) in runs.items():
        if not (decoded := [r.examples for r in records if r.examples]):
            continue
        lengths = [len(example.source) for example in decoded[0]]
        index = max(
            range(len(lengths)), key=lambda i: (lengths[i] <= WORDS) * 2 * lengths[i] - lengths[i]
        )
        first, outputs[model] = decoded[0][index], decoded[-1][index].predicted
        if model.score is not None:
            recorded = {r.step for r in records}
            weights = (
                (step, run.frame(step).get(f"{index}:cross"))
                for step in thinned(
                    [step for step in run.frame_steps() if step in recorded], FRAMES
                )
            )
            frames = [(step, each[-1, 0]) for step, each in weights if each is not None]
            steps = dict(frames).keys() & run.checkpoint_steps()
            vectors = {step: vectors_of(run, step, index) for step in sorted(steps)}
    if first is None:
        return None
    return Sentence(first.source, first.target, outputs, tuple(frames), vectors)


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Every second, fourth, … item, at most `most`, and the last: the items that stay do not change as more come."""
    stride = 1 << ((len(items) - 1) // most).bit_length()
    return [item for i, item in enumerate(items) if i % stride == 0 or i == len(items) - 1]


def models(learned: Iterable[TrainedModel]) -> list[Model]:
    """The models, the smallest first, and of one size the one without attention first."""
    return sorted(
        {one.model for one in learned},
        key=lambda m: (m.d_model, m.score is not None, m.score != "dot", m),
    )


def by_length(learned: Sequence[TrainedModel], model: Model, metric: str) -> dict[str, SeedStats]:
    """BLEU or exact match in percent, by the source's length, over the seeds of one model."""
    buckets = [bucket for one in learned if one.model == model for bucket in one.buckets]
    return {
        lengths: SeedStats(
            tuple(_percent(each, metric) for each in buckets if each.lengths == lengths)
        )
        for lengths in dict.fromkeys(bucket.lengths for bucket in buckets)
    }


def over_time(
    learned: Sequence[TrainedModel], model: Model, metric: str, clock: str
) -> list[tuple[float, SeedStats]]:
    """(x, BLEU or exact match in percent) at each step that all seeds of one model have reached.

    `clock` names x: "step", or "seconds", the mean time of training.
    """
    seeds = [{point.step: point for point in one.points} for one in learned if one.model == model]
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    return [
        (
            statistics.fmean(getattr(points[step], clock) for points in seeds),
            SeedStats(tuple(_percent(points[step], metric) for points in seeds)),
        )
        for step in steps
    ]


def _percent(item: Bucket | Point, metric: str) -> float:
    return 100 * item.sequence_accuracy if metric == "sequence_accuracy" else item.bleu or 0.0


SAVED = Path(__file__).with_name("data") / "why"
STEPS, SEEDS, AT_ONCE = 900, 3, 2
CONTROLS = Trial()
# the slowest first
MODELS = (Model(None, 2 * CONTROLS.d_model), *CONTROLS.pair, Model("general", CONTROLS.d_model))


@dataclass(frozen=True)
class Result:
    """The setting, the trained models, their sentence, the seconds of processor time a run, and the machine."""

    setting: Trial
    learned: tuple[TrainedModel, ...]
    sentence: Sentence | None
    seconds: Mapping[Model, float] = field(default_factory=dict)
    machine: str = ""


def result_of(without: Run, attention: Run) -> Result:
    """Two runs, one without attention and one with it, as they are now."""
    read = [(run, run.config(), run.records()) for run in (without, attention)]
    learned = tuple(TrainedModel.of(config, records) for _, config, records in read)
    pairs = zip(learned, read, strict=True)
    watched = sentence({one.model: (run, records) for one, (run, _, records) in pairs})
    return Result(Trial.of(read[1][1]), learned, watched)


def scores_by_length(result: Result, metric: str) -> dict[str, dict[str, float]]:
    """BLEU or exact match in percent by the words in the source, the mean over the seeds of each model."""
    return {
        model.name(with_size=True): {
            words: stats.mean for words, stats in by_length(result.learned, model, metric).items()
        }
        for model in models(result.learned)
    }


def load() -> Result:
    """The saved measurement (`make bottleneck` trains all of its models again)."""
    data = json.loads((SAVED / "result.json").read_text("utf-8"))
    saved, arrays = data["sentence"], dict[int, dict[str, np.ndarray]]()
    for name, array in load_file(SAVED / "alignment.safetensors").items():
        step, _, part = name.partition(":")
        arrays.setdefault(int(step), {})[part] = array
    sentence = Sentence(
        tuple(saved["source"]),
        tuple(saved["target"]),
        dict(convert(saved["said"], list[tuple[Model, tuple[str, ...]]])),
        tuple((at, part.pop("weight").astype(np.float32)) for at, part in sorted(arrays.items())),
        {at: part for at, part in sorted(arrays.items()) if part},
    )
    return Result(
        Trial(**data["setting"]),
        convert(data["learned"], tuple[TrainedModel, ...]),
        sentence,
        dict(convert(data["seconds"], list[tuple[Model, float]])),
        data["machine"],
    )


def save(result: Result, folder: Path = SAVED) -> None:
    folder.mkdir(exist_ok=True)
    sentence = result.sentence
    assert sentence is not None  # every run has finished
    data: dict[str, Any] = {
        "machine": result.machine,
        "setting": vars(result.setting),
        "seconds": list(result.seconds.items()),
        "sentence": {
            "source": sentence.source,
            "target": sentence.target,
            "said": list(sentence.outputs.items()),
        },
        "learned": to_builtins([one.rounded() for one in result.learned]),
    }
    (folder / "result.json").write_text(json.dumps(data, ensure_ascii=False) + "\n", "utf-8")
    (folder / "alignment.safetensors").write_bytes(
        to_bytes(
            {f"{step}:weight": weights.astype(np.float16) for step, weights in sentence.frames}
            | {
                f"{step}:{name}": array if name == "score" else array.astype(np.float16)
                for step, each in sentence.vectors.items()
                for name, array in each.items()
            }
        )
    )


def measure(setting: Trial, steps: int, seeds: int, folder: Path) -> Result:
    """Measure the models of the page again, from several seeds each, two at a time in processes of their own.

    One vector, Luong's dot, Luong's general and one vector of twice the size, equal otherwise. The result has quality
    by the source's length, and the alignment of one long sentence, that of the first seed.
    """
    runs = {
        (model, seed): create_run(replace(setting, seed=seed).counted(model, steps), folder)
        for model in MODELS
        for seed in range(seeds)
    }
    spent: dict[Model, float] = dict.fromkeys(MODELS, 0.0)
    with ProcessPoolExecutor(
        AT_ONCE, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)
    ) as pool:
        for (model, seed), seconds in zip(
            runs, pool.map(train, [run.path for run in runs.values()]), strict=True
        ):
            spent[model] += seconds / seeds
            scores = "; ".join(
                f"{bucket.lengths} {bucket.bleu:.0f}/{100 * bucket.sequence_accuracy:.0f}"
                for bucket in runs[model, seed].records()[-1].buckets
            )
            print(
                f"{model.score or 'one vector'} {model.d_model}, seed {seed}: {scores}", flush=True
            )
    learned = tuple(TrainedModel.of(run.config(), run.records()) for run in runs.values())
    return Result(
        setting,
        learned,
        sentence(
            {
                m: (runs[m, 0], runs[m, 0].records())
                for m in models(learned)
                if m in (*setting.pair, MODELS[0])
            }
        ),
        {m: round(spent[m], 1) for m in models(learned)},
        machine(threads=1),
    )


def train(path: Path) -> float:
    """Train the run in this folder to its end; seconds of processor time, with measuring."""
    before, run = time.process_time(), Run(path)
    if work(path) != "finished" or run.records()[-1].step < run.config().steps:
        raise RuntimeError(
            f"{run.status().message} All models need equal steps; measure on a quieter machine."
        )
    return time.process_time() - before


def main() -> None:
    """Measure all models and save the result."""
    with tempfile.TemporaryDirectory() as folder:
        save(measure(CONTROLS, STEPS, SEEDS, Path(folder)))
