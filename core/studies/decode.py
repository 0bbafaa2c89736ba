"""Decoding: searches of runs, and what strategies find."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.attention import ConfigError
from core.models import MODELS, Seq2Seq
from core.models.decoding import (
    EOS,
    ForcedSteps,
    Hypothesis,
    Prompt,
    SearchSettings,
    Tree,
    force_tokens,
    greedy,
    search,
)
from core.runs.runs import LISTED, Run, list_runs
from core.tasks import Example, Task, score, task_of

HELD_OUT = 40  # held-out sources offered
READ, LONGEST = 24, 80  # tokens of a text that are read, that are added
TRIED = 10  # sources among which the first example is searched
SOURCES, SECONDS = 50, 8  # over which strategies are compared, and for how long at most
BEAM_OF_FOUR = SearchSettings("beam", width=4, length_penalty=0.0)


@dataclass(frozen=True)
class Checkpoint:
    """A run's weights at a saved step; `stamp` is the file's time of change, so that a new file is loaded again."""

    path: Path
    step: int
    stamp: int

    @classmethod
    def of(cls, run: Run, step: int) -> Checkpoint:
        return cls(run.path, step, run.checkpoint_path(step).stat().st_mtime_ns)

    def load(self) -> tuple[Seq2Seq, Task]:
        """The model and its task; ValueError or ConfigError."""
        model, task = Run(self.path).model(self.step)
        assert isinstance(model, Seq2Seq)  # as `decodable_runs` lists no other
        return model, task


@dataclass(frozen=True)
class SearchResult:
    """The tree of a search and its source; `target` is the correct output, None where it is not known."""

    prompt: Prompt
    source: tuple[str, ...]
    target: tuple[str, ...] | None
    tree: Tree
    seconds: float
    unknown: tuple[str, ...] = ()


def decodable_runs(examples: Iterable[Run]) -> dict[str, Run]:
    """Runs with a decoder and saved weights: the examples first, then the newest of this machine."""

    def can_decode(run: Run) -> bool:
        try:
            kind, form = run.config().model.kind, task_of(run.config().task).form
        except (ConfigError, TypeError, ValueError, KeyError):
            return False
        writes = issubclass(MODELS[kind], Seq2Seq) and form in ("pairs", "text")
        return writes and bool(run.checkpoint_steps())

    return {
        run.id: run for run in (*examples, *reversed(list_runs(latest=LISTED))) if can_decode(run)
    }


def source_text(task: Task, example: Example) -> str:
    """A source as it would be typed."""
    tokens = example.source[:READ] if task.form == "text" else example.source
    return (" " if task.form == "text" and task.unit == "word" else task.separator).join(
        map(str, tokens)
    )


def default_example(model: Seq2Seq, task: Task) -> int:
    """The first held-out source that greedy decoding gets wrong and a beam right, else one that greedy gets wrong.

    Of a text, the window whose beginning has most different tokens.
    """
    examples = task.held_out(HELD_OUT)
    if task.form != "pairs":
        return max(range(len(examples)), key=lambda i: len(set(examples[i].source[:READ])))
    batch = task.collate(examples)
    outputs = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
    wrong = [
        i
        for i, (row, example) in enumerate(zip(outputs, examples, strict=True))
        if tuple(task.target_vocab.decode(row)) != example.target
    ]
    for i in wrong[:TRIED]:
        best = search(
            model, prompt_of(task, examples[i]), BEAM_OF_FOUR, task.max_target + 1
        ).hypotheses[0]
        if tuple(task.target_vocab.decode(best.tokens)) == examples[i].target:
            return i
    return wrong[0] if wrong else 0


def decode(model: Seq2Seq, task: Task, source: str | int, settings: SearchSettings) -> SearchResult:
    """The search; ValueError for a source that cannot be read and for settings out of bounds."""
    examples = task.held_out(HELD_OUT)
    example = examples[source] if isinstance(source, int) else task.example(source)
    prompt = prompt_of(task, example)
    started = time.thread_time()
    tree = search(model, prompt, settings, longest_of(task, example, settings))
    known = {held.source: held.target for held in examples} if task.form == "pairs" else {}
    unknown = (
        tuple(sorted(set(example.source) - set(task.source_vocab.tokens)))
        if task.input == "tokens"
        else ()
    )
    return SearchResult(
        prompt,
        task.display_tokens(example)[0],
        known.get(example.source),
        tree,
        time.thread_time() - started,
        unknown,
    )


def search_run(run: Run, step: int, source: str | int, settings: SearchSettings) -> SearchResult:
    """A search by a run's weights of that step: of a source to read, or of a held-out one by its number."""
    return decode(*Checkpoint.of(run, step).load(), source, settings)


def path_of(run: Run, step: int, result: SearchResult, candidate: int) -> ForcedSteps:
    """The log-probabilities and the attention of each step of the path to one candidate."""
    model, _ = Checkpoint.of(run, step).load()
    return force_tokens(model, result.prompt, result.tree.tokens(candidate))


def prompt_of(task: Task, example: Example) -> Prompt:
    """What the searches begin with."""
    if task.form == "text":
        return Prompt.of_text(task.source_vocab.encode(example.source))
    batch = task.collate([example])
    return Prompt(batch.source, batch.source_mask)


def longest_of(task: Task, example: Example, settings: SearchSettings) -> int:
    """The largest number of tokens: as set, at most what the task's outputs and the model's positions allow."""
    if task.form == "text":
        return max(
            1, min(settings.longest or 40, LONGEST, 2 * task.shape.longest - len(example.source))
        )
    return min(settings.longest or task.max_target + 1, task.max_target + 1)


@dataclass(frozen=True)
class Score:
    """The means of one strategy over the best outputs of the same sources."""

    sequence_accuracy: float
    logp: float
    tokens: float
    bleu: float | None = None
    chrf: float | None = None
    cut: int = 0  # outputs that reached the longest without an end mark


def compare_strategies(
    model: Seq2Seq, task: Task, strategies: tuple[SearchSettings, ...]
) -> tuple[int, tuple[Score, ...]]:
    """How many held-out sources every strategy decoded within SECONDS, and the score of each strategy."""
    best: list[list[Hypothesis]] = []
    end = time.monotonic() + SECONDS
    examples = task.held_out(SOURCES)
    for example in examples:
        prompt = prompt_of(task, example)
        best.append(
            [
                search(model, prompt, settings, longest_of(task, example, settings)).hypotheses[0]
                for settings in strategies
            ]
        )
        if time.monotonic() > end:
            break
    targets = [example.target for example in examples[: len(best)]]
    count = len(best)
    return count, tuple(
        Score(
            logp=sum(one.logp for one in result) / count,
            tokens=sum(len(one.tokens) for one in result) / count,
            cut=sum(one.tokens[-1] != EOS for one in result),
            **score(task, [task.target_vocab.decode(one.tokens) for one in result], targets),
        )
        for result in zip(*best, strict=True)
    )
