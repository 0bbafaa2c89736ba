"""Decoding: searches of runs and what strategies find, what a step with a cache computes and stores, both ways timed, and
pages. `make cache` saves the times."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from core.attention import ConfigError, attend
from core.entries import refuse_if
from core.models import MODELS, Seq2Seq
from core.models.decoding import (
    EOS,
    Clock,
    Hypothesis,
    Prompt,
    SearchSettings,
    Tree,
    Written,
    greedy,
    search,
    write,
)
from core.pretrained.hf_conversion import SEEDED, TRAINED, encode, load_lab_decoder
from core.runs.runs import LISTED, Run, list_runs
from core.studies.efficient import Saved, alone, save
from core.tasks import Example, Task, score

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
            kind = run.config().model.kind
        except (ConfigError, TypeError, ValueError, KeyError):
            return False
        return issubclass(MODELS[kind], Seq2Seq) and bool(run.checkpoint_steps())

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


MAX_PROMPT, STEPS = 16, 8  # tokens of a prompt, and tokens that are written after it
NAMES = ("q", "k", "v")


@dataclass(frozen=True)
class Counts:
    """How many vectors of each type one layer computes, reads from its cache, and stores after a step."""

    computed: dict[str, int]  # by name: q, k, v
    read: int  # stored keys, and as many values
    stored: int

    @property
    def without(self) -> int:
        """Queries, and as many keys and values, that a layer without a cache computes at this step."""
        return self.read + self.computed["k"]


@dataclass(frozen=True, eq=False)
class Decoding:
    """A prompt and the tokens written after it, with every layer's q, k, v (L, H, T, D) and weights, step by step.

    Step 0 reads the prompt; step s reads token `prompt + s − 1`. k and v are those of the cache, keys rotated, and
    repeated for the heads that share them. `weights[s]` (L, H, S) are those of the last token of step s.
    """

    tokens: tuple[str, ...]
    prompt: int
    vectors: dict[str, np.ndarray]
    weights: tuple[np.ndarray, ...]
    counts: tuple[Counts, ...]
    unknown: tuple[str, ...]

    def first_new(self, step: int) -> int:
        """The index of the first token that is read at a step."""
        return 0 if step == 0 else self.prompt + step - 1

    def last(self, step: int) -> int:
        """The index of the last token that is read at a step."""
        return self.prompt + step - 1

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of every head."""
        layers, heads = self.weights[0].shape[:2]
        return [(layer, head) for layer in range(layers) for head in range(heads)]

    def sharpest_head(self) -> tuple[int, int]:
        """The head whose largest weight is largest on average over the steps."""
        mean = np.mean([weights.max(-1) for weights in self.weights], axis=0)
        layer, head = np.unravel_index(int(mean.argmax()), mean.shape)
        return int(layer), int(head)


@torch.no_grad()
def decode_steps(text: str) -> Decoding:
    """Read the text, then write STEPS tokens, the likeliest at each step; ValueError for a text without a word."""
    model, task = load_lab_decoder(TRAINED)
    tokens, ids, unknown = encode(task, text, MAX_PROMPT)
    refuse_if(len(tokens) < 2, "There is no word here. Type a few words: the model continues them.")
    state, new, queries, weights, counts = model.start(None), ids, [], [], []
    for step in range(STEPS + 1):
        before = state.length
        logits, state, maps = model.read(None, state, new, True)
        causal, heads = maps["causal"], [past.heads for past in state.past if past is not None]
        queries.append(torch.stack([steps.q[0] for steps in causal]))
        weights.append(
            np.stack(
                [steps.weights[0, :, -1].numpy() for steps in causal if steps.weights is not None]
            )
        )
        stored = heads[0][0].shape[2]
        counts.append(
            Counts(
                {
                    "q": causal[0].q.shape[2],
                    "k": stored - before,
                    "v": heads[0][1].shape[2] - before,
                },
                before,
                stored,
            )
        )
        new = logits[:, -1:].argmax(-1)
        if step < STEPS:
            tokens = [*tokens, *(task.target_vocab.decode(new[0].tolist()) or ["<end>"])]
    q = torch.cat(queries, 2)
    k, v = (torch.stack([layer[at][0] for layer in heads]) for at in (0, 1))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    vectors = {name: each.numpy() for name, each in zip(NAMES, (q, k, v), strict=True)}
    return Decoding(tuple(tokens), ids.shape[1], vectors, tuple(weights), tuple(counts), unknown)


def changes(text: str) -> dict[str, float]:
    """How much the last token's output changes when all earlier q, k or v are set to zero, relative to its size.

    The tokens are those of a text and what is written after it; ValueError for a text without a word.
    """
    vectors = decode_steps(text).vectors
    tensors = {name: torch.from_numpy(vectors[name]) for name in NAMES}
    usual, result = attend(*tensors.values()).out[:, :, -1], {}
    for name, tensor in tensors.items():
        last = torch.zeros_like(tensor)
        last[:, :, -1] = tensor[:, :, -1]
        changed = attend(*(tensors | {name: last}).values()).out[:, :, -1]
        result[name] = float((changed - usual).norm() / usual.norm())
    return result


# The same tokens written with and without a cache, timed on this machine.


PROMPT = "the old cat saw the small bird . the old"
MAX_TOKENS = 256  # tokens that are written
LIMIT = 30.0  # seconds of one measurement at most


@dataclass(frozen=True)
class Pair:
    """The same text written with and without the cache."""

    cached: Written
    whole: Written

    @property
    def count(self) -> int:
        """Tokens that both wrote."""
        return min(len(self.cached.tokens), len(self.whole.tokens))

    def same(self, count: int) -> bool:
        """Whether the first tokens are equal."""
        return self.cached.tokens[:count] == self.whole.tokens[:count]

    def ratio(self, count: int) -> float:
        """How many times as long the first tokens took without the cache."""
        return sum(self.whole.seconds[:count]) / sum(self.cached.seconds[:count])


def measure(
    name: str, count: int, clock: Clock = time.perf_counter, limit: float = LIMIT / 2
) -> Pair:
    """Both ways on this machine, each for at most `limit` seconds."""
    model, task = load_lab_decoder(name)
    _, prompt, _ = encode(task, PROMPT, MAX_PROMPT)
    with alone():
        write(model, prompt, 2, True)  # warms up
        return Pair(*(write(model, prompt, count, way, clock, limit) for way in (True, False)))


# The saved times of the page Cache and decoding; `make cache` measures them again.


SAVED = Path(__file__).parent / "data" / "cache.json"
ROUNDS, DIGITS = 3, 6  # the fastest round of each step counts; decimals of a second


def load_measurement() -> Saved[dict[str, Pair]]:
    """Both ways to write, by the model's name."""
    return msgspec.json.decode(SAVED.read_bytes(), type=Saved[dict[str, Pair]])


def main() -> None:
    """Measure both models on one thread, in processor time, and save the fastest round of each step."""
    torch.set_num_threads(1)
    pairs = {}
    for name in (TRAINED, SEEDED):
        rounds = [measure(name, MAX_TOKENS, time.process_time, float("inf")) for _ in range(ROUNDS)]
        ways = ([each.cached for each in rounds], [each.whole for each in rounds])
        pairs[name] = Pair(
            *(
                replace(
                    way[0],
                    seconds=tuple(
                        round(min(times), DIGITS)
                        for times in zip(*(each.seconds for each in way), strict=True)
                    ),
                )
                for way in ways
            )
        )
    save(SAVED, Saved(pairs))


MAX_SEQUENCES, LONGEST_SEQUENCE = 8, 256


@dataclass(frozen=True)
class Page:
    """One page: the sequence that it belongs to, and how many of its places hold a token."""

    sequence: int
    filled: int


@dataclass(frozen=True)
class Paging:
    """Lengths of sequences, and the pages in the order in which they were taken."""

    lengths: tuple[int, ...]
    size: int
    pages: tuple[Page, ...]

    @property
    def used(self) -> int:
        return sum(self.lengths)

    @property
    def paged(self) -> int:
        """Places for a token in all pages."""
        return self.size * len(self.pages)

    @property
    def reserved(self) -> int:
        """Places where each sequence has room for the longest."""
        return len(self.lengths) * max(self.lengths)

    def wasted(self, places: int) -> float:
        """The share of the places that holds no token."""
        return 1 - self.used / places


def paging(lengths: tuple[int, ...], size: int) -> Paging:
    """Sequences that start together and grow by one token a step: each takes a page when its last one is full."""
    pages = [
        Page(sequence, min(size, length - start))
        for start in range(0, max(lengths), size)
        for sequence, length in enumerate(lengths)
        if length > start
    ]
    return Paging(lengths, size, tuple(pages))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Typed lengths; ValueError names the first that is none, and what would fit."""
    lengths = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        refuse_if(
            not (part.isascii() and part.isdigit() and len(part) < 10)
            or not 1 <= int(part) <= LONGEST_SEQUENCE,
            f"“{part[:20]}” is no length; type whole numbers from 1 to {LONGEST_SEQUENCE}, with commas.",
        )
        lengths.append(int(part))
    refuse_if(
        not 1 <= len(lengths) <= MAX_SEQUENCES,
        f"There are {len(lengths)} lengths; type 1 to {MAX_SEQUENCES}, such as 37, 5, 90.",
    )
    return tuple(lengths)
