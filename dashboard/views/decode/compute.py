"""What the page Decode is asked for (a run, a source, a strategy), and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from core.attention import ConfigError
from core.decoding import ForcedSteps, Prompt, Sampling, Tree, beam, force_tokens, greedy, sample
from core.models import MODELS, Model, Seq2Seq
from core.tasks import Example, Task
from core.training.runs import Run, list_runs
from dashboard.runtime import cache
from dashboard.runtime.example_runs import HERE, KEPT

HALF_TRAINED = Run(HERE / "example_numbers")
GREEDY, BEAM, SAMPLING = "Greedy", "Beam", "Sampling"
STRATEGIES = (GREEDY, BEAM, SAMPLING)
HELD_OUT, READ, LONGEST = 40, 24, 80  # held-out sources offered; tokens of a text that are read, and added at most
TRIED = 10  # sources that a beam tries to get right, to begin with one that shows what it is for


@dataclass(frozen=True)
class How:
    """One way to decode, with all its settings; those of the other strategies wait."""

    strategy: str = BEAM
    width: int = 4
    penalty: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    samples: int = 20
    seed: int = 0
    no_repeat: int = 0
    longest: int = 0  # 0: as long as the task's outputs

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


@dataclass(frozen=True)
class Trained:
    """A run's weights at a kept step; `stamp` tells a file from a later one of the same name."""

    path: Path
    step: int
    stamp: int

    @classmethod
    def of(cls, run: Run, step: int) -> Trained:
        return cls(run.path, step, run.checkpoint_path(step).stat().st_mtime_ns)

    def load(self) -> tuple[Model, Task]:
        """The model, which nobody changes, and its task; ValueError or ConfigError in words."""
        return cache.model(_load, self)


def _load(trained: Trained) -> tuple[Model, Task]:
    return Run(trained.path).model(trained.step)


@dataclass(frozen=True)
class Decoded:
    """The tree, and what it was grown from; `target` is what should be said, None where nobody knows."""

    prompt: Prompt
    source: tuple[str, ...]
    target: tuple[str, ...] | None
    tree: Tree
    seconds: float
    unknown: tuple[str, ...] = ()


def decodable() -> dict[str, Run]:
    """The runs with a decoder and kept weights: those that come with the lab, then this machine's, newest first."""
    return {run.id: run for run in (HALF_TRAINED, *KEPT, *reversed(list_runs())) if _decodes(run)}


def _decodes(run: Run) -> bool:
    try:
        kind = run.config().model.kind
    except (ConfigError, TypeError, ValueError, KeyError):
        return False
    return issubclass(MODELS[kind], Seq2Seq) and bool(run.checkpoint_steps())


def held_out(trained: Trained) -> tuple[Example, ...]:
    """Held-out sources to choose from; of a text the beginning of each window."""
    _, task = trained.load()
    return task.held_out(HELD_OUT)


def written(task: Task, example: Example) -> str:
    """A source as a person would type it."""
    tokens = example.source[:READ] if task.form == "text" else example.source
    return (" " if task.form == "text" and task.unit == "word" else task.separator).join(map(str, tokens))


def telling(trained: Trained) -> int:
    """The first held-out source that greedy decoding gets wrong and a beam right, or one that greedy gets wrong; the
    text whose beginning is the most varied."""
    return cache.cached(_telling, trained)


def _telling(trained: Trained) -> int:
    model, task = trained.load()
    examples = held_out(trained)
    if task.form != "pairs":
        return max(range(len(examples)), key=lambda i: len(set(examples[i].source[:READ])))
    batch = task.collate(examples)
    said = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
    wrong = [i for i, (row, example) in enumerate(zip(said, examples, strict=True))
             if tuple(task.target_vocab.decode(row)) != example.target]
    for i in wrong[:TRIED]:
        best = search(model, prompt_of(task, examples[i]), How(), task.max_target + 1).hypotheses[0]
        if tuple(task.target_vocab.decode(best.tokens)) == examples[i].target:
            return i
    return wrong[0] if wrong else 0


def example_of(trained: Trained, asked: str | int) -> Example:
    """What was typed, or the held-out source of that number; ValueError in words for what cannot be read."""
    _, task = trained.load()
    return held_out(trained)[asked] if isinstance(asked, int) else task.example(asked)


def decoded(trained: Trained, asked: str | int, how: How) -> Decoded:
    """The search itself, remembered; ValueError in words for what cannot be read or asked."""
    return cache.cached(_decoded, trained, asked, how)


def _decoded(trained: Trained, asked: str | int, how: How) -> Decoded:
    model, task = trained.load()
    example = example_of(trained, asked)
    prompt = prompt_of(task, example)
    started = time.thread_time()
    tree = search(model, prompt, how, longest_of(task, example, how))
    known = {held.source: held.target for held in held_out(trained)} if task.form == "pairs" else {}
    unknown = tuple(sorted(set(example.source) - set(task.source_vocab.tokens))) if task.input == "tokens" else ()
    source = task.display_tokens(example)[0]
    return Decoded(prompt, source, known.get(example.source), tree, time.thread_time() - started, unknown)


def prompt_of(task: Task, example: Example) -> Prompt:
    if task.form == "text":
        return Prompt.of_text(task.source_vocab.encode(example.source))
    batch = task.collate([example])
    return Prompt(batch.source, batch.source_mask)


def longest_of(task: Task, example: Example, how: How) -> int:
    """How many tokens may be said: as many as the task's outputs have, or as were asked for and the model can place."""
    if task.form == "text":
        return max(1, min(how.longest or 40, LONGEST, 2 * task.shape.longest - len(example.source)))
    return min(how.longest or task.max_target + 1, task.max_target + 1)


def search(model: Seq2Seq, prompt: Prompt, how: How, longest: int) -> Tree:
    """The tree that this way of decoding grows."""
    if how.strategy == SAMPLING:
        return sample(model, prompt, torch.Generator().manual_seed(how.seed), samples=how.samples, how=how.sampling,
                      no_repeat=how.no_repeat, max_length=longest)
    if how.strategy == BEAM:
        return beam(model, prompt, width=how.width, length_penalty=how.penalty, no_repeat=how.no_repeat,
                    max_length=longest)
    return beam(model, prompt, width=1, no_repeat=how.no_repeat, max_length=longest)


def steps_of(trained: Trained, prompt: Prompt, tokens: Sequence[int]) -> ForcedSteps:
    """All probabilities and the attention along one path."""
    return force_tokens(trained.load()[0], prompt, tokens)
