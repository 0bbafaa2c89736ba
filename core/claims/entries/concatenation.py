"""Positions are added to the tokens' vectors, not concatenated: both ways at equal width."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention import Attention, AttentionConfig
from core.claims.base import Claim, ClaimSettings, Figure, Learned, Number, Part, Pick, Stop
from core.claims.experiment import fit
from core.claims.results import Results, SeedValues
from core.claims.sources import VASWANI, at
from core.entries import Param

ADDED, JOINED, NONE = "added", "concatenated", "no positions"
ACCURACY, PARAMETERS = "Accuracy", "Parameters"
LEARNED = Learned(ACCURACY, 0.99)
LENGTH, LETTERS, WIDTH, HEADS, HELD_OUT = 16, 26, 32, 2, 500


class Reverser(nn.Module):
    """Embedding, positions in one of three ways, one layer of attention and feed-forward: a letter for each place."""

    def __init__(self, condition: str) -> None:
        super().__init__()
        of_positions = WIDTH // 2 if condition == JOINED else WIDTH if condition == ADDED else 0
        self.joined = condition == JOINED
        self.letters = nn.Embedding(LETTERS, WIDTH - of_positions if self.joined else WIDTH)
        self.positions = nn.Embedding(LENGTH, of_positions) if of_positions else None
        self.attention = Attention(AttentionConfig(WIDTH, HEADS))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, LETTERS)
        )

    def forward(self, letters: Tensor) -> Tensor:
        """Logits (B, T, V) of letters (B, T)."""
        x = self.letters(letters)
        if self.positions is not None:
            places = self.positions.weight.expand(len(x), -1, -1)
            x = torch.cat([x, places], -1) if self.joined else x + places
        logits: Tensor = self.output(self.norm(x + self.attention(x).merged))
        return logits


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The accuracy of each letter of a reversed line after training, and the model's size."""
    torch.manual_seed(seed)
    model, draw = Reverser(condition), torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        lines = torch.randint(LETTERS, (64, LENGTH), generator=draw)
        return F.cross_entropy(model(lines).flatten(0, 1), lines.flip(1).flatten())

    fit(model, loss, int(settings["steps"]), 3e-3, stop)
    lines = torch.randint(LETTERS, (HELD_OUT, LENGTH), generator=draw)
    with torch.no_grad():
        yield (
            ACCURACY,
            float((model.eval()(lines).argmax(-1) == lines.flip(1)).float().mean()),
            None,
        )
    yield PARAMETERS, sum(weight.numel() for weight in model.parameters()), None


def _difference(seed: SeedValues) -> float:
    return seed.one(ADDED, ACCURACY) - seed.one(JOINED, ACCURACY)


def _answer(results: Results) -> int:
    added, joined = (results.mean(condition, ACCURACY) for condition in (ADDED, JOINED))
    return 0 if added > joined + 0.02 else 2 if joined > added + 0.02 else 1


CONCATENATION = Claim(
    key="concatenation",
    name="Adding positions",
    subject="Positions",
    statement="Positions are added to the tokens' vectors rather than concatenated, and nothing is lost by it.",
    source=at(VASWANI, "section 3.5"),
    refutation="At equal width the model that adds is more than 2 points less accurate than the one that "
    "concatenates; or the model without positions learns the task as well.",
    guess=Pick(
        "Both models have 32 numbers a token. One adds position to letter, one keeps 16 for each. Which "
        "reverses lines better?",
        ("The one that adds", "Both the same, within 2 points", "The one that concatenates"),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            500,
            50,
            3000,
            50,
            meaning="how long each model learns to reverse",
        ),
    ),
    conditions=lambda settings: (ADDED, JOINED, NONE),
    measure=measure,
    parts=(
        Part(
            "Adding loses nothing against concatenating.",
            _difference,
            "accuracy added − concatenated",
            low=-0.02,
            unit="gain",
            resolution=0.003,
            learned=LEARNED,
        ),
        Part(
            "Without positions the task cannot be learned.",
            lambda seed: seed.one(NONE, ACCURACY),
            "accuracy",
            high=0.5,
            unit="share",
            resolution=0.003,
            learned=LEARNED,
        ),
    ),
    figures=(
        Figure("Accuracy on reversed lines", ACCURACY, unit="share"),
        Figure("Parameters", PARAMETERS, unit="positive"),
    ),
    limits="Learned positions, lines of 16 letters, one layer of width 32. With 26 letters, 16 numbers a letter are "
    "plenty; a large vocabulary may need the whole width.",
    tried="A pilot with 2 seeds and 50 steps, to see that it runs.",
    no_published="The paper adds without a comparison and prints no figure.",
    scope=f"in models of d_model {WIDTH} with 1 layer that reverse {LENGTH} letters",
)
