"""A trained model loses little where each query keeps its largest keys alone, chosen exactly or by an indexer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention import Attention
from core.attention.normalizers.sparse import TopK
from core.claims.base import Claim, ClaimSettings, Figure, Learned, Number, Part, Pick, Stop
from core.claims.experiment import TEXT_BITS, Trained, trained
from core.claims.results import Results, SeedValues
from core.claims.sources import GUPTA
from core.entries import Choice, Param
from core.masks import make_mask
from core.models import Model, ModelConfig
from core.tasks import Task, TaskConfig
from core.training.config import RunConfig
from core.training.evaluate import Stopped

WINDOW, WINDOWS = 64, 100  # characters that are read together; held-out windows
LATER = 32  # characters of a window that only serve as context: each query that counts sees more keys than these
COUNTS = (1, 2, 4, 8, 16, 32, WINDOW)
FEW = 8
LARGEST, INDEXER, LATEST = "k largest scores", "k chosen by an indexer", "k latest keys"
BITS = "Bits a character"
LEARNED = Learned(BITS, high=TEXT_BITS, x=WINDOW, unit="positive")


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The loss of one trained model where every query keeps k keys, for each k."""
    whole = reader(seed, int(settings["steps"]), stop)
    for count in COUNTS:
        if stop():
            raise Stopped
        yield BITS, bits(keep(whole.model, condition, count), whole.task), count


@lru_cache(maxsize=1)
def reader(seed: int, steps: int, stop: Stop) -> Trained:
    """The model that all conditions share: it reads all keys, and its indexers learn beside it which ones matter."""
    model = ModelConfig.transformer(
        64,
        4,
        2,
        kind="decoder",
        norm="pre",
        position="rope",
        mask=Choice.of("lightning", keys=WINDOW),
    )
    config = RunConfig(
        TaskConfig.of("topics", length=WINDOW),
        model,
        steps=steps,
        batch_size=16,
        warmup=20,
        record_every=steps,
        held_out=1,
        watch=1,
    )
    return trained(config, seed, stop)


def keep(model: Model, condition: str, count: int) -> Model:
    """A copy of the model in which every query of every layer keeps that many keys."""
    model = deepcopy(model)
    for layer in (part for part in model.modules() if isinstance(part, Attention)):
        if condition == LARGEST:
            layer.normalizer = TopK(1.0, count)
        elif condition == LATEST:
            layer.mask = make_mask(Choice.of("causal_local", lookback=count - 1), layer.config)
        else:
            assert layer.indexer is not None
            layer.indexer.keys = count
    return model


@torch.no_grad()
def bits(model: Model, task: Task) -> float:
    """Bits a character of held-out text, at the characters that follow more than LATER others."""
    batch = task.collate(task.held_out(WINDOWS))
    logits: Tensor = model(batch.source, batch.source_mask, record=True).logits[:, LATER:]
    return float(
        F.cross_entropy(logits.flatten(0, 1), batch.target_out[:, LATER:].flatten())
    ) / math.log(2)


def share_left(seed: SeedValues, condition: str) -> float:
    """The share of what attention to other characters gives that is left with FEW keys: 1 is as good as with all."""
    alone, whole = seed.one(LATEST, BITS, 1), seed.one(LATEST, BITS, WINDOW)
    return (alone - seed.one(condition, BITS, FEW)) / (alone - whole)


def _ahead(seed: SeedValues) -> float:
    return seed.one(LATEST, BITS, FEW) - seed.one(INDEXER, BITS, FEW)


def _answer(results: Results) -> int:
    share = results.mean_of(lambda seed: share_left(seed, LARGEST))
    return 0 if share > 0.95 else 1 if share > 0.8 else 2


TOPK = Claim(
    key="topk",
    name="Most keys do not matter",
    subject="New variants",
    statement="A trained model is nearly as good where each query keeps only its k largest keys, and where an indexer "
    "chooses them.",
    source=GUPTA,
    refutation="With 8 of 33 to 64 keys, chosen by the model's own scores, less than 95 % is left of what attention to "
    "other characters gains; or less than 90 % where an indexer chooses; or the 8 latest keys serve as well "
    "as the indexer's, to within 0.02 bits a character.",
    guess=Pick(
        "A model that was trained with all keys keeps the 8 largest of 33 to 64. How much is left of what "
        "attention to other characters gains?",
        ("Nearly all, more than 95 %", "Most, 80 to 95 %", "Less than 80 %"),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            1500,
            50,
            5000,
            50,
            meaning="how long each model learns the text",
        ),
    ),
    conditions=lambda settings: (LARGEST, INDEXER, LATEST),
    measure=measure,
    parts=(
        Part(
            "The 8 largest keys keep nearly all of the gain.",
            lambda seed: share_left(seed, LARGEST),
            "share of the gain that is left",
            low=0.95,
            learned=LEARNED,
        ),
        Part(
            "8 keys that an indexer chooses keep most of it.",
            lambda seed: share_left(seed, INDEXER),
            "share of the gain that is left",
            low=0.9,
            learned=LEARNED,
        ),
        Part(
            "The choice matters: the 8 latest keys are worse than the indexer's.",
            _ahead,
            "bits a character between them",
            low=0.02,
            learned=LEARNED,
        ),
    ),
    figures=(Figure("Bits a character with k keys", BITS, "k", "positive", "x"),),
    limits="One small model of characters with windows of 64; long texts, where a choice saves most, are not measured. "
    "In such text the nearest characters say most, so the latest keys are a strong choice; where an answer "
    "stands far back they cannot be. "
    "The model was trained with all keys and never with the few it is left with, as a sparse model would be. "
    "The gain is 0 where each character sees only itself, in a model that never learned to do so.",
    tried="Two pilots after the rule was written, of one seed. 50 steps of 32 windows: 4.15 bits a character with all "
    "keys. 200 steps of 16: 3.149 bits with all keys, and with 8 keys 3.167 (largest), 3.281 (indexer) and 3.140 "
    "(latest), so 98 % and 81 % of the gain were left, and the latest keys were ahead. The rule stayed as it "
    "was; batches and steps were made as large as fits into 90 s on two cores. "
    "The first result had 250 steps and 5 seeds, in which not all models had learned, so that it measured "
    "who learns sooner. The steps were raised to 1,500, and a criterion of learning was added; the bounds stay.",
    no_published="Gupta et al. report accuracy nearly the same as with all keys, on other tasks and larger models; "
    "their tables (Long Range Arena, answering of questions) were looked for and could not be verified.",
    scope="in models of d_model 64 with 2 layers that read characters",
)
