"""A language model's simplest habit: what was said once is being said again (Olsson 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from core.entries import ConfigError, Param
from core.tasks.base import PAD, SPECIALS, Batch, Example, Form, Recipe, TaskConfig, TaskEntry, Vocabulary, pad
from core.tasks.rows import RowTask
from core.tasks.text import split

BEGIN = SPECIALS[1]
SHORTEST = 4  # words of a passage
RANK = 12  # how even the draw is: word number r comes as often as 1 / (r + RANK)

# The commonest first: in a sentence that a person types the same small words come back, too.
COMMON = tuple("""
the . a and of to in , it was he on that she for with they at his her is had as but we you i not from by be or an my
their one all said there were when out up so what who if then this no into down over him them time now like could than
little old new big small long two good man woman child boy girl king queen friend day night morning year house door
window room street road town city garden tree river sea lake hill mountain forest field sun moon star wind rain snow
fire water stone gold silver red blue green white black dark light warm cold hot cat dog horse cow sheep bird fish
mouse fox bear wolf lion bread milk cheese apple egg cake soup tea book letter word story song name school table chair
bed cup box hat coat shoe ship boat train car hand head eye heart face sat ran saw went came took gave made found lost
told asked knew thought felt heard read wrote ate drank slept woke stood walked fell flew sang played opened closed
loved kept left never always again soon here where before after under near between far away three four mat rug animal
bank paper money music dinner because too very quick brown lazy tired hungry happy sad young slow strong cross jumped
wanted needed looked turned sent bought sold rose lay cut ' t s didn don ? !
""".split())


class Repeats(RowTask):
    """Lines of random words in which one passage comes again and again, other words in between; tell each next word.

    A line begins with the start mark: a place to look at for words that stand nowhere else.
    """

    form: Form = "text"
    metrics = ()
    separator = " "
    unit, whole = "word", "continuations"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.length, self.passage, self.gap = (int(config[name]) for name in ("length", "passage", "gap"))
        self.source_vocab = self.target_vocab = Vocabulary(COMMON)
        self.ids = torch.tensor(self.source_vocab.encode(COMMON))
        self.often = 1 / (torch.arange(len(COMMON)) + RANK)
        self.max_source = self.max_target = self.length
        self.recommended = recipes()

    def tokens(self, text: str) -> list[str]:
        return [BEGIN, *split(text.lower(), "words")]

    def rows(self, count: int, generator: torch.Generator) -> tuple[Int[Tensor, "N S"], Int[Tensor, "N S"]]:
        """Each line's place p shows word p mod (passage + gap) of its passage, or in the gap a word of its own."""
        size = count, self.length
        flat = torch.multinomial(self.often, count * self.length, replacement=True, generator=generator)
        random_words = flat.view(size)
        long = torch.randint(SHORTEST, self.passage + 1, (count, 1), generator=generator)
        between = torch.randint(self.gap + 1, (count, 1), generator=generator)
        start = torch.randint(self.passage + self.gap, (count, 1), generator=generator)
        place = (torch.arange(self.length) + start) % (long + between)
        words = torch.where(place < long, random_words.gather(1, place), random_words)
        line = torch.cat((torch.full((count, 1), self.source_vocab.encode([BEGIN])[0]), self.ids[words]), 1)
        return line[:, :-1], line[:, 1:]

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, target = self._side(batch_size, batch_size + batch_size // 4 + 8, generator, held_out=False)
        return Batch(source, torch.ones_like(source, dtype=torch.bool), None, target)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Lines with their next words; a line that a person typed has none but its own."""
        if not examples or not all(example.source for example in examples):
            raise ValueError("A batch needs at least one line, and every line at least one word.")
        source = pad([self.source_vocab.encode(example.source) for example in examples])
        target = torch.full_like(source, PAD)
        for row, example in zip(target, examples, strict=True):
            ids = self.target_vocab.encode(example.target or example.source[1:])
            row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return Batch(source, source != PAD, None, target)

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A line has nothing beside it: what is told is its own next word."""
        return example.source, ()

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """Where the next word stood before, behind the word that was just read."""
        read, positions = example.source, []
        for now, next_word in enumerate(example.target):
            pairs = zip(read[:now], read[1 : now + 1], strict=True)
            positions.append(tuple(place for place, pair in enumerate(pairs, 1) if pair == (read[now], next_word)))
        return tuple(positions)


def check_lines(length: int, passage: int, gap: int) -> None:
    """ConfigError when a line has no room for a passage to come again."""
    if length < 2 * (passage + gap):
        raise ConfigError(f"length = {length} has no room for a passage of {passage} words and {gap} others, twice; "
                          f"take length ≥ {2 * (passage + gap)}, or a shorter passage.")


def recipes() -> Mapping[str, Recipe]:
    """As language models are built today (Llama): RMSNorm before each part, RoPE, SwiGLU, keys and values shared by
    two heads; two layers, the fewest that can do it (Olsson 2022)."""
    from core.entries import Choice
    from core.models.config import ModelConfig

    model = ModelConfig.transformer(
        64, num_heads=4, layers=2, d_ff=128, kind="decoder", norm="pre", normalization="rms", activation="swiglu",
        output_bias=False, position="rope", projection=Choice.of("grouped_query", kv_heads=2))
    return {"decoder": Recipe(model.to_json(), 1500, 64, 3e-3, warmup=100)}


REPEATS = TaskEntry(
    "repeats", "Repeated passages", "Tell each next word of a line in which a passage of random words comes again.",
    "In the passage's second turn each word looks at the word behind its own earlier place: an induction head. A layer "
    "before it each word looks at the one before.",
    lambda config: Repeats(config, REPEATS),
    (Param("length", "Line", 64, 16, 128, 8, meaning="words that are read at once, start mark included"),
     Param("passage", "Longest passage", 20, SHORTEST, 32, 1, meaning="most words that come again"),
     Param("gap", "Words between", 8, 0, 16, 1, meaning="most random words between two turns of the passage")),
    check_lines)
