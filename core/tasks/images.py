"""Handwritten digits, cut in patches: which digit is it?"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.entries import Param
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import Example, Task, TaskConfig, TaskEntry
from core.tasks.labelled import LabelledTask
from core.tasks.tabular import data_file

SIDE = 8  # pixels of a digit


@lru_cache(maxsize=1)
def digits() -> tuple[Float[Tensor, "N 8 8"], Int[Tensor, " N"]]:
    """1,797 handwritten digits of 8 × 8 pixels, 0 to 1, and which they are (Alpaydin & Kaynak 1998)."""
    with gzip.open(data_file("digits.csv.gz"), "rt", encoding="utf-8") as file:
        numbers = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return numbers[:, :-1].reshape(-1, SIDE, SIDE) / 16, numbers[:, -1].long()


def cut(pictures: Float[Tensor, "N H W"], patch: int) -> Float[Tensor, "N P D"]:
    """Square patches of `patch` pixels, row by row, as Dosovitskiy 2021 cuts them."""
    return rearrange(pictures, "n (r a) (c b) -> n (r c) (a b)", a=patch, b=patch)


class PictureTask(Task):
    """A task of pictures: a source is patches, named by row and column."""

    input = "patches"
    grid: tuple[int, int]

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Patches by their row and column, from 1, and the target."""
        rows, columns = (range(1, size + 1) for size in self.grid)
        return tuple(f"{r},{c}" for r in rows for c in columns), example.target

    def encode(
        self, examples: Sequence[Example]
    ) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        source = torch.tensor([example.source for example in examples])
        return source, torch.ones(source.shape[:2], dtype=torch.bool)

    def example(self, text: str) -> Example:
        raise ValueError("A picture cannot be typed; choose one of the held-out pictures.")


class Digits(PictureTask, LabelledTask):
    """Tell which digit a picture shows."""

    unit, whole = "picture", "pictures"
    classes = tuple("0123456789")
    baseline_name = "logistic regression on pixels"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        pictures, labels = digits()
        super().__init__(
            config, entry, [picture.tobytes() for picture in pictures.numpy()], labels.tolist()
        )
        self.patch = int(config["patch"])
        self.grid = (SIDE // self.patch, SIDE // self.patch)
        self.patches = cut(pictures, self.patch)
        self.max_source = self.patches.shape[1]
        self.recommended = recipes.digits()

    @property
    def shape(self) -> Shape:
        return Shape(self.patch**2, 10, self.max_source, "patches", "label", grid=self.grid)

    @property
    def baseline_loss(self) -> float:
        return math.log(10)

    def item(self, i: int) -> Example:
        return Example(tuple(map(tuple, self.patches[i].tolist())), (self.classes[self.labels[i]],))

    def flat(self, examples: Sequence[Example]) -> Float[Tensor, "N D"]:
        return self.collate(examples).source.flatten(1)


PATCH = Param(
    "patch",
    "Patch",
    "2",
    choices=("1", "2", "4"),
    labels=("1 pixel", "2 × 2 pixels", "4 × 4 pixels"),
    meaning="size of the patch of the picture that is one token",
)
DIGITS: TaskEntry = TaskEntry(
    "digits",
    "Handwritten digits",
    "Classify the digit in a picture of 8 × 8 pixels.",
    "The class token attends to the strokes that distinguish the digits.",
    lambda config: Digits(config, DIGITS),
    (PATCH,),
)
