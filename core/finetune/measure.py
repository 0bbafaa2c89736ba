"""Held-out measurements and attention maps of one record of a fine-tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from core.decoding.prefix import eval_mode
from core.finetune.build import Learner
from core.finetune.data import Pair
from core.pretrained.base import ModelInputs, Reading
from core.pretrained.reading import read
from core.trace import AttentionMap, AttentionTrace
from core.training.evaluate import confusion_matrix
from core.training.record import Prediction

BATCH = 32
IGNORED = -100  # Hugging Face's target that no loss counts
MAX_EXAMPLES = 8  # held-out rows in each record


@dataclass(frozen=True)
class Evaluation:
    """Mean held-out loss in nats (a token, for pairs), accuracy of whole outputs (`exact`) and of tokens (`letters`).

    `cut` counts outputs without an end mark within as many tokens as the longest answer has. `confusion` counts rows by
    their label and the predicted one, in the order of the learner's labels; None for pairs.
    """

    loss: float
    exact: float
    letters: float | None
    predictions: tuple[Prediction, ...]
    cut: int | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None


def measure(learner: Learner, pairs: Sequence[Pair]) -> Evaluation:
    """Loss, accuracy (for pairs, of greedily decoded outputs) and predictions."""
    with eval_mode(learner.model), torch.inference_mode():
        parts = [pairs[at : at + BATCH] for at in range(0, len(pairs), BATCH)]
        if learner.labels:
            logits = [
                learner.model(**inputs(learner, [pair.text for pair in part])).logits.float()
                for part in parts
            ]
            return _classified(learner, pairs, torch.cat(logits))
        return _translated(learner, pairs, parts)


def _classified(
    learner: Learner, pairs: Sequence[Pair], logits: Float[Tensor, "N labels"]
) -> Evaluation:
    labels = classes(learner, pairs)
    best = logits.argmax(-1)
    predictions = tuple(
        Prediction((pair.text,), (pair.answer,), (learner.labels[int(one)],))
        for pair, one in zip(pairs, best, strict=True)
    )
    counted = tuple(map(tuple, confusion_matrix(logits, labels).tolist()))
    return Evaluation(
        float(F.cross_entropy(logits, labels)),
        float((best == labels).float().mean()),
        None,
        predictions,
        confusion=counted,
    )


def _translated(
    learner: Learner, pairs: Sequence[Pair], parts: Sequence[Sequence[Pair]]
) -> Evaluation:
    loss = right = tokens = 0.0
    predictions: list[Prediction] = []
    targets_of = [targets(learner, part) for part in parts]
    cap = max(labels.shape[1] for labels in targets_of)
    end = learner.model.generation_config.eos_token_id
    ends: set[int] = set() if end is None else {end} if isinstance(end, int) else set(end)
    for part, labels in zip(parts, targets_of, strict=True):
        batch = inputs(learner, [pair.text for pair in part])
        logits = learner.model(**batch, labels=labels).logits.float()
        counted = labels != IGNORED
        loss += float(
            F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
            )
        )
        right += float((logits.argmax(-1) == labels)[counted].sum())
        tokens += float(counted.sum())
        outputs = learner.model.generate(**batch, do_sample=False, num_beams=1, max_new_tokens=cap)
        predictions += [
            Prediction(
                (pair.text,),
                (_text(learner, row),),
                (_text(learner, ids),),
                bool(ends) and ends.isdisjoint(ids[1:].tolist()),
            )
            for pair, row, ids in zip(part, labels, outputs, strict=True)
        ]
    exact = sum(one.right for one in predictions) / len(predictions)
    return Evaluation(
        loss / tokens,
        exact,
        right / tokens,
        tuple(predictions),
        sum(one.cut for one in predictions),
    )


def truncated(learner: Learner, pairs: Sequence[Pair]) -> int:
    """The number of rows with a text or an answer of more than `max_tokens` tokens."""
    long = [
        len(ids) > learner.max_tokens
        for ids in learner.tokenizer([pair.text for pair in pairs])["input_ids"]
    ]
    if not learner.labels:
        answers = learner.tokenizer(text_target=[pair.answer for pair in pairs])["input_ids"]
        long = [a or len(ids) > learner.max_tokens for a, ids in zip(long, answers, strict=True)]
    return sum(long)


def _text(learner: Learner, ids: Int[Tensor, " T"]) -> str:
    return str(
        learner.tokenizer.decode(ids[ids != IGNORED].tolist(), skip_special_tokens=True)
    ).strip()


def inputs(learner: Learner, texts: Sequence[str]) -> dict[str, Tensor]:
    """The model's inputs of texts, each cut to `max_tokens` and padded to the longest."""
    batch = learner.tokenizer(
        list(texts),
        padding=True,
        truncation=True,
        max_length=learner.max_tokens,
        return_tensors="pt",
    )
    known = ("input_ids", "attention_mask", "token_type_ids")
    return {name: value.to(learner.device) for name, value in batch.items() if name in known}


def targets(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, "B T"]:
    """The answers' ids, each closed by the end mark and padded with IGNORED."""
    encoded = learner.tokenizer(
        text_target=[pair.answer for pair in pairs],
        truncation=True,
        max_length=learner.max_tokens - 1,
    )["input_ids"]
    end = learner.tokenizer.eos_token_id
    ids = [row if end is None or row[-1:] == [end] else [*row, end] for row in encoded]
    longest = max(map(len, ids))
    return torch.tensor(
        [row + [IGNORED] * (longest - len(row)) for row in ids], device=learner.device
    )


def classes(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, " B"]:
    """The index of each row's label among the model's outputs."""
    return torch.tensor(
        [learner.labels.index(pair.answer) for pair in pairs], device=learner.device
    )


def read_attention(learner: Learner, texts: Sequence[ModelInputs]) -> list[Reading]:
    """The attention on the watched sentences, computed on the CPU as on every page."""
    device = learner.device
    with eval_mode(learner.model):
        learner.model.to("cpu")
        try:
            return [read(learner.pretrained(), one) for one in texts]
        finally:
            learner.model.to(device)


def frames(readings: Sequence[Reading]) -> dict[str, np.ndarray]:
    """The maps of a record, "0:self" -> (layers, H, T, S) as half floats."""
    stacked = {}
    for index, reading in enumerate(readings):
        for kind in reading.trace.kinds:
            maps = reading.trace.of(kind).maps
            stacked[f"{index}:{kind}"] = np.stack([item.weights for item in maps]).astype(
                np.float16
            )
    return stacked


def words(texts: Sequence[ModelInputs], readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """The tokens of the rows and columns of those maps, as plain values."""
    return [
        {
            "text": one.text,
            "target": one.target,
            "kinds": {
                kind: [
                    {"tokens": list(line.tokens), "special": list(line.special)}
                    for line in reading.lines(kind)
                ]
                for kind in reading.trace.kinds
            },
        }
        for one, reading in zip(texts, readings, strict=True)
    ]


def trace_of(
    maps: dict[str, np.ndarray], index: int, lines: dict[str, Any], source: str
) -> AttentionTrace:
    """The trace of one watched sentence from a saved frame; without weights where the frame lacks it."""
    traced = []
    for kind, (rows, columns) in lines["kinds"].items():
        weights = maps.get(f"{index}:{kind}", np.zeros((0, 0, 0, 0), np.float32))
        mask = np.tri(len(rows["tokens"]), dtype=bool)[None] if kind == "causal" else None
        traced += [
            AttentionMap(kind, layer, one, tuple(rows["tokens"]), tuple(columns["tokens"]), mask)
            for layer, one in enumerate(weights)
        ]
    return AttentionTrace(tuple(traced), source)
