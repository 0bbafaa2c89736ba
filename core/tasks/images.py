"""Handwritten digits, cut in patches: which digit is it?"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from core.entries import Param
from core.models.base import Shape
from core.tasks.base import Batch, Example, Form, Recipe, Task, TaskConfig, TaskEntry
from core.tasks.tabular import data_file, logistic, sides

SIDE = 8  # pixels of a digit


@lru_cache(maxsize=1)
def digits() -> tuple[Float[Tensor, "N 8 8"], Int[Tensor, " N"]]:
    """1,797 handwritten digits of 8 × 8 pixels, 0 to 1, and which they are (Alpaydin & Kaynak 1998)."""
    with gzip.open(data_file("digits.csv.gz"), "rt") as file:
        numbers = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return numbers[:, :-1].reshape(-1, SIDE, SIDE) / 16, numbers[:, -1].long()


def cut(pictures: Float[Tensor, "N H W"], patch: int) -> Float[Tensor, "N P D"]:
    """Square patches of `patch` pixels, row by row, as Dosovitskiy 2021 cuts them."""
    return rearrange(pictures, "n (r a) (c b) -> n (r c) (a b)", a=patch, b=patch)


class PictureTask(Task):
    """What tasks of pictures share: patches as sources, named by row and column."""

    input = "patches"
    grid: tuple[int, int]

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Patches by their row and column, from 1, and what is to be said."""
        rows, columns = self.grid
        return tuple(f"{r},{c}" for r in range(1, rows + 1) for c in range(1, columns + 1)), example.target

    def example(self, text: str) -> Example:
        raise ValueError("A picture cannot be typed; take one of those that are held out.")


class Digits(PictureTask):
    """Tell which digit a picture shows; a fifth of the pictures of each digit is held out."""

    form: Form = "label"
    finite = True
    unit, whole = "picture", "pictures"
    classes = tuple("0123456789")

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        pictures, self.labels = digits()
        self.patch = int(config["patch"])
        self.grid = (SIDE // self.patch, SIDE // self.patch)
        self.patches = cut(pictures, self.patch)
        self.sides = sides([row.tobytes() for row in pictures.numpy()], self.labels.tolist(), config.seed)
        self.max_source, self.max_target = self.patches.shape[1], 1
        self.recommended = digit_recipes()

    @property
    def shape(self) -> Shape:
        return Shape(self.patch**2, 10, self.max_source, "patches", "label", grid=self.grid)

    @property
    def baseline_loss(self) -> float:
        return float(np.log(10))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        side = torch.tensor(self.sides[False])
        return self._of(side[torch.randint(len(side), (batch_size,), generator=generator)])

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.sides[held_out]
        return self._example(side[int(torch.randint(len(side), (), generator=generator))])

    def held_out(self, n: int) -> tuple[Example, ...]:
        """All that is held out, or the first n of it."""
        return tuple(map(self._example, self.sides[True][:n]))

    def trained(self) -> tuple[Example, ...]:
        """All that is trained on."""
        return tuple(map(self._example, self.sides[False]))

    def collate(self, examples: Sequence[Example]) -> Batch:
        labels = torch.tensor([int(example.target[0]) if example.target else 0 for example in examples])
        source = torch.tensor([example.source for example in examples])
        return Batch(source, torch.ones(source.shape[:2], dtype=torch.bool), None, labels)

    def baseline(self) -> tuple[str, float]:
        """Logistic regression on the pixels, same split."""
        return "logistic regression on pixels", logistic(self)

    def flat(self, examples: Sequence[Example]) -> Float[Tensor, "N D"]:
        """All pixels of each picture in one line."""
        return self.collate(examples).source.flatten(1)

    def _example(self, i: int) -> Example:
        return Example(tuple(map(tuple, self.patches[i].tolist())), (self.classes[int(self.labels[i])],))

    def _of(self, picked: Int[Tensor, " B"]) -> Batch:
        source = self.patches[picked]
        return Batch(source, torch.ones(source.shape[:2], dtype=torch.bool), None, self.labels[picked])


def digit_recipes() -> Mapping[str, Recipe]:
    """A Vision Transformer of two layers."""
    from core.models.config import ModelConfig

    model = ModelConfig.transformer(64, num_heads=4, layers=2, kind="classifier", norm="pre", activation="gelu",
                                    position="learned", dropout=0.1)
    return {"classifier": Recipe(model.to_json(), 800, 64, 2e-3)}


PATCH = Param("patch", "Patch", "2", choices=("1", "2", "4"), labels=("1 pixel", "2 × 2 pixels", "4 × 4 pixels"),
              meaning="the part of a picture that is one token")
DIGITS = TaskEntry(
    "digits", "Handwritten digits", "Tell which digit a picture of 8 × 8 pixels shows.",
    "The class looks at the strokes that tell one digit from another.",
    lambda config: Digits(config, DIGITS), (PATCH,))
