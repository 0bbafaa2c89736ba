"""Copy and reverse: random letters whose attention should be a diagonal, or an anti-diagonal."""

from __future__ import annotations

import string

import torch

from core.entries import ConfigError, Param
from core.tasks.base import Example, Recipe, Task, TaskConfig, TaskEntry, Vocabulary, is_held_out

ALPHABET = string.ascii_lowercase + string.ascii_uppercase


class SequenceTask(Task):
    """`length` letters out of `vocab`, to be said again forwards or backwards."""

    def __init__(self, config: TaskConfig, entry: TaskEntry, backwards: bool) -> None:
        super().__init__(config, entry)
        self.backwards, self.length, self.letters = backwards, int(config["length"]), int(config["vocab"])
        self.source_vocab = self.target_vocab = Vocabulary(ALPHABET[: self.letters])
        self.max_source = self.max_target = self.length
        self.recommended = _recipes(self.length)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            rows = torch.randint(self.letters, (16, self.length), generator=generator).tolist()
            for row in rows:
                source = "".join(ALPHABET[i] for i in row)
                if is_held_out(source) == held_out:
                    return self._example(source)

    def batch(self, batch_size: int, generator: torch.Generator):
        found: list[Example] = []
        while len(found) < batch_size:
            rows = torch.randint(self.letters, (batch_size + 16, self.length), generator=generator).tolist()
            sources = ("".join(ALPHABET[i] for i in row) for row in rows)
            found += [self._example(source) for source in sources if not is_held_out(source)]
        return self.collate(found[:batch_size])

    def _example(self, source: str) -> Example:
        return Example(tuple(source), tuple(source[::-1] if self.backwards else source))

    def expected(self, example: Example) -> tuple[int, ...]:
        n = len(example.source)
        return tuple(range(n - 1, -1, -1) if self.backwards else range(n))


def _recipes(length: int) -> dict[str, Recipe]:
    from core.models.config import ModelConfig

    short = length <= 12
    transformer = ModelConfig.transformer(32 if short else 64, num_heads=2, layers=1, position="sinusoidal")
    recurrent = ModelConfig.recurrent(d_model=64, score="dot")
    rate = 5e-3 if short else 3e-3
    return {
        "transformer": Recipe(transformer.to_json(), 400 if short else 600, 64, rate, seconds=15 if short else 60),
        "recurrent": Recipe(recurrent.to_json(), 1200, 64, 5e-3, seconds=60),
    }


def check(length: int, vocab: int) -> None:
    """ConfigError when there are too few different sequences to hold some out."""
    if vocab**length < 20_000:
        raise ConfigError(f"length = {length} with vocab = {vocab} gives only {vocab**length:,} different sequences, "
                          "too few to hold some out; take vocab ** length ≥ 20,000.")


PARAMS = (
    Param("length", "Length", 10, 2, 64, 1, meaning="letters in a sequence"),
    Param("vocab", "Letters", 26, 2, 52, 1, meaning="different letters that may occur"),
)
COPY = TaskEntry(
    "copy", "Copy", "Say the same letters again.",
    "Each output looks at the letter in its own place: a diagonal.",
    lambda config: SequenceTask(config, COPY, backwards=False), PARAMS, check)
REVERSE = TaskEntry(
    "reverse", "Reverse", "Say the letters backwards.",
    "Each output looks at the letter as far from the end as it is from the start: an anti-diagonal.",
    lambda config: SequenceTask(config, REVERSE, backwards=True), PARAMS, check)
