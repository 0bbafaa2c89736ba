"""The task of the lab's writer: the next piece of short stories, which the grammar of core.tasks.grammar makes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from core.entries import Param
from core.tasks import recipes
from core.tasks.base import (
    EOS,
    Batch,
    Example,
    Form,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
)
from core.tasks.grammar import story

FOR_PIECES = 2_000  # stories from which the pieces are learned
HELD_OUT = 1_500  # stories
HELD_OUT_SEED = 2**32


@lru_cache(maxsize=2)
def stories(count: int, seed: int) -> tuple[str, ...]:
    """That many stories, the same for the same seed."""
    draw = random.Random(seed)
    return tuple(story(draw).text for _ in range(count))


@lru_cache(maxsize=2)
def byte_pairs(pieces: int) -> Any:
    """A tokenizer of byte pairs (Sennrich 2016) over bytes (Radford 2019), so that no text is unknown to it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories(FOR_PIECES, 0), trainer)
    return tokenizer


@lru_cache(maxsize=2)
def ids_of(
    count: int, seed: int, pieces: int
) -> tuple[Vocabulary, Int[Tensor, " N"], Int[Tensor, " M"]]:
    """The vocabulary; stories as ids one after another, each with its end mark; and where each begins."""
    tokenizer = byte_pairs(pieces)
    vocabulary = Vocabulary(tokenizer.get_vocab())
    order = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    known = torch.tensor(vocabulary.encode(piece for piece, _ in order))
    end, rows = torch.tensor([EOS]), list[Tensor]()
    for text in stories(count, seed):
        rows += known[tokenizer.encode(text).ids], end
    lengths = torch.tensor([0, *map(len, rows)]).view(-1)
    return vocabulary, torch.cat(rows), lengths.cumsum(0)[:-1:2]


class Stories(Task):
    """Predict each next piece of stories; a window begins where a story does."""

    form: Form = "text"
    metrics = ()
    unit, whole = "piece", "continuations"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.length, self.count = int(config["length"]), int(config["stories"])
        self.pieces = int(config["pieces"])
        vocabulary, self.ids, self.starts = ids_of(self.count, config.seed, self.pieces)
        self.source_vocab = self.target_vocab = vocabulary
        self.max_source = self.max_target = self.length
        self.recommended = recipes.stories()

    def tokens(self, text: str) -> list[str]:
        return byte_pairs(self.pieces).encode(text).tokens

    def text_of(self, tokens: Sequence[str]) -> str:
        return str(byte_pairs(self.pieces).decoder.decode(list(tokens)))  # type: ignore[union-attr]

    def tokenizer(self) -> Any:
        """The tokenizer that an exported model takes: its ids are those of the vocabulary."""
        from tokenizers import Tokenizer

        data = json.loads(byte_pairs(self.pieces).to_str())
        data["model"]["vocab"] = {piece: id for id, piece in enumerate(self.source_vocab.tokens)}
        return Tokenizer.from_str(json.dumps(data))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        able = self.begins(self.ids, self.starts)
        picked = able[torch.randint(len(able), (batch_size, 1), generator=generator)]
        windows = self.ids[picked + torch.arange(self.length + 1)]  # (B, S + 1)
        source, target = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        return Batch(source, torch.ones_like(source, dtype=torch.bool), None, target)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        vocabulary, ids, starts = self.source_vocab, self.ids, self.starts
        if held_out:
            _, ids, starts = ids_of(HELD_OUT, self.config.seed + HELD_OUT_SEED, self.pieces)
        able = self.begins(ids, starts)
        start = int(able[choose(generator, len(able))])
        window = [vocabulary.tokens[id] for id in ids[start : start + self.length + 1].tolist()]
        return Example(tuple(window[:-1]), tuple(window[1:]))

    def begins(self, ids: Int[Tensor, " N"], starts: Int[Tensor, " M"]) -> Int[Tensor, " K"]:
        """Where a story begins that a whole window follows."""
        return starts[starts + self.length < len(ids)]


STORIES: TaskEntry = TaskEntry(
    "stories",
    "Stories",
    "Predict each next piece of short stories, which a grammar makes without end and can check.",
    "A name, a thing or a pronoun attends to where it was introduced. The last words of a list attend to the list.",
    lambda config: Stories(config, STORIES),
    (
        Param("length", "Window", 128, 32, 256, 8, meaning="number of pieces that the model reads"),
        Param("stories", "Stories", 2_000, 200, 200_000, 100, meaning="number of training stories"),
        Param("pieces", "Pieces", 1_024, 512, 8_192, 256, meaning="number of byte pairs"),
    ),
)
