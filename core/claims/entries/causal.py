"""A causal mask makes training match generation, and a padding mask keeps a sentence's result apart from its batch."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention import Attention, AttentionConfig
from core.claims.base import Claim, ClaimSettings, Figure, Learned, Number, Part, Pick, Stop
from core.claims.experiment import TEXT_BITS, fit
from core.claims.results import Results, SeedValues
from core.claims.sources import VASWANI, at
from core.entries import Param
from core.seeding import seeded_normal
from core.tasks import TaskConfig, make_task

MASKED, OPEN = "causal mask", "no mask"
TEACHER, GENERATION, PADDING = "Validation loss", "Loss of the last character", "Change by padding"
LENGTH, WINDOWS, D_MODEL, HEADS, LAYERS = 32, 200, 48, 4, 2
LEARNED = Learned(TEACHER, high=TEXT_BITS * log(2), conditions=(MASKED,), unit="positive")


class NextCharacter(nn.Module):
    """Two layers of self-attention and feed-forward that predict the next character at every position."""

    def __init__(self, vocabulary: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(vocabulary, D_MODEL)
        config = AttentionConfig(D_MODEL, HEADS, position="rope")
        self.attention = nn.ModuleList(Attention(config) for _ in range(LAYERS))
        self.feed_forward = nn.ModuleList(
            nn.Sequential(
                nn.Linear(D_MODEL, 2 * D_MODEL), nn.ReLU(), nn.Linear(2 * D_MODEL, D_MODEL)
            )
            for _ in range(LAYERS)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(D_MODEL) for _ in range(2 * LAYERS + 1))
        self.output = nn.Linear(D_MODEL, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of characters (B, T)."""
        x = self.embedding(tokens)
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril() if self.causal else None
        for layer, (attention, feed_forward) in enumerate(
            zip(self.attention, self.feed_forward, strict=True)
        ):
            x = x + attention(self.norms[2 * layer](x), mask=mask).merged
            x = x + feed_forward(self.norms[2 * layer + 1](x))
        logits: Tensor = self.output(self.norms[-1](x))
        return logits


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The loss over all positions, as in training, and of the last one alone, behind which nothing stands."""
    torch.manual_seed(seed)
    task = make_task(TaskConfig.of("topics", length=LENGTH, unit="characters"))
    model = NextCharacter(len(task.target_vocab), causal=condition == MASKED)
    generator = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        batch = task.batch(32, generator)
        return F.cross_entropy(model(batch.source).flatten(0, 1), batch.target_out.flatten())

    fit(model, loss, int(settings["steps"]), 3e-3, stop)
    held_out = task.collate(task.held_out(WINDOWS))
    with torch.no_grad():
        logits, target = model.eval()(held_out.source), held_out.target_out
    yield TEACHER, float(F.cross_entropy(logits.flatten(0, 1), target.flatten())), None
    yield GENERATION, float(F.cross_entropy(logits[:, -1], target[:, -1])), None
    yield PADDING, padding_change(seed, masked=condition == MASKED), None


@torch.no_grad()
def padding_change(seed: int, masked: bool) -> float:
    """The largest change of a sentence's outputs when padding is added to it, with a padding mask or without."""
    torch.manual_seed(seed)
    layer = Attention(AttentionConfig(16, 2)).eval()
    sentence, padding = seeded_normal(1, 7, 16, seed=seed, name="claim.x"), torch.zeros(1, 5, 16)
    key_mask = torch.arange(12)[None] < 7
    alone, padded = (
        layer(sentence).merged,
        layer(torch.cat([sentence, padding], 1), key_mask=key_mask if masked else None).merged,
    )
    assert alone is not None and padded is not None
    return float((padded[:, :7] - alone).abs().max())


def _collapse(seed: SeedValues) -> float:
    return seed.one(OPEN, TEACHER) / seed.one(MASKED, TEACHER)


def _match(seed: SeedValues) -> float:
    return seed.one(MASKED, GENERATION) / seed.one(MASKED, TEACHER)


def _failure(seed: SeedValues) -> float:
    return seed.one(OPEN, GENERATION) - seed.one(MASKED, GENERATION)


def _answer(results: Results) -> int:
    without, masked = (results.mean(condition, TEACHER) for condition in (OPEN, MASKED))
    return 0 if without < 0.8 * masked else 1 if without < 1.2 * masked else 2


CAUSAL = Claim(
    key="causal",
    name="Why the mask is causal",
    subject="Training",
    statement="A causal mask makes training match generation: without it the training loss collapses and generation "
    "fails; a padding mask keeps a sentence's result independent of its batch.",
    source=at(VASWANI, "section 3.2.3"),
    refutation="Without the mask the validation loss stays above half of the masked model's; with the mask the loss of "
    "the last character differs by more than a fifth from that of all; without the mask the last character "
    "costs less than 0.1 nats more than with it; padding changes masked outputs by more than 0.00001, or "
    "unmasked ones by less than 0.001.",
    guess=Pick(
        "A model that predicts every next character is trained without a causal mask. Its validation loss is …",
        ("lower than with the mask", "about the same", "higher than with the mask"),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            4000,
            50,
            5000,
            50,
            meaning="how long each model learns to predict characters of a text",
        ),
    ),
    conditions=lambda settings: (MASKED, OPEN),
    measure=measure,
    parts=(
        Part(
            "Without the mask the loss collapses.",
            _collapse,
            "loss without over loss with the mask",
            high=0.5,
            unit="times",
            learned=LEARNED,
        ),
        Part(
            "With the mask training matches generation.",
            _match,
            "loss of the last character over that of all",
            0.8,
            1.2,
            unit="times",
            learned=LEARNED,
        ),
        Part(
            "Without the mask generation fails.",
            _failure,
            "nats that the last character costs more",
            low=0.1,
            learned=LEARNED,
        ),
        Part(
            "With a padding mask padding changes nothing.",
            lambda seed: seed.one(MASKED, PADDING),
            "largest change of an output",
            high=1e-5,
            unit="positive",
        ),
        Part(
            "Without a padding mask padding changes the result.",
            lambda seed: seed.one(OPEN, PADDING),
            "largest change of an output",
            low=1e-3,
            unit="positive",
        ),
    ),
    figures=(
        Figure("Validation loss over all positions (nats)", TEACHER, unit="positive"),
        Figure("Loss of the last character, as in generation (nats)", GENERATION, unit="positive"),
    ),
    limits="A model of two layers, after 2,000 steps. Generation is measured by its first "
    "step, the loss of the character behind which nothing stands; errors that add up over many steps are not.",
    tried="A pilot with 2 seeds and 50 steps on sonnets of 3,300 characters, to see that it runs. The whole run on "
    "them (300 steps) gave a loss of 0.03 of the masked one, yet a last character 0.45 nats cheaper without the "
    "mask: the masked model had learned the sonnets by heart (validation loss 3.1), so the text was replaced by "
    "one of 422,000 characters, and nothing else. "
    "The first result had 300 steps and 5 seeds, before the text was learned. With 2,000 steps the masked model "
    "came to 1.75 to 1.79 nats, near the criterion and not below it, so that they are 4,000 now, which "
    "were not measured yet; the bounds stay.",
    no_published="The paper gives the reason (positions must not see later ones) and no figure.",
    scope=f"in models of d_model {D_MODEL} with {LAYERS} layers that read characters",
)
