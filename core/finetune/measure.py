"""How well a model does on its held-out rows as it is now, and where it looks: one record of a fine-tuning run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from core.finetune.build import Learner
from core.finetune.data import Pair
from core.pretrained.base import Line, ModelInputs, Reading
from core.pretrained.reading import read
from core.trace import AttentionTrace
from core.training.objectives import confusion
from core.training.record import Prediction

BATCH = 32
IGNORED = -100  # a target that no loss counts, as Hugging Face's models take it
MAX_EXAMPLES = 8  # held-out rows in each record


@dataclass(frozen=True)
class Evaluation:
    """Mean loss of the held-out rows in nats (a token, for pairs), shares right, what the model made of each, and how
    many outputs were cut: no end mark within as many tokens as the longest answer has.

    `confusion` counts rows by their label and by the model's, in the order of the learner's labels; None for pairs.
    """

    loss: float
    exact: float
    letters: float | None
    predictions: tuple[Prediction, ...]
    cut: int | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None


@contextmanager
def as_is(model: Any) -> Iterator[None]:
    """The model in eval mode, and then as it was: measuring must not change what dropout does next."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)


def measure(learner: Learner, pairs: Sequence[Pair]) -> Evaluation:
    """Loss, accuracy (for pairs: whole outputs right when the model decodes greedily by itself), and examples."""
    with as_is(learner.model), torch.inference_mode():
        parts = [pairs[at:at + BATCH] for at in range(0, len(pairs), BATCH)]
        if learner.labels:
            return _classified(learner, pairs, torch.cat([_logits(learner, part) for part in parts]))
        return _translated(learner, pairs, parts)


def _logits(learner: Learner, part: Sequence[Pair]) -> Float[Tensor, "B labels"]:
    return learner.model(**inputs(learner, [pair.text for pair in part])).logits.float()


def _classified(learner: Learner, pairs: Sequence[Pair], logits: Float[Tensor, "N labels"]) -> Evaluation:
    labels = classes(learner, pairs)
    best = logits.argmax(-1)
    predictions = tuple(Prediction((pair.text,), (pair.answer,), (learner.labels[int(one)],))
                 for pair, one in zip(pairs, best, strict=True))
    counted = tuple(map(tuple, confusion(logits, labels).tolist()))
    return Evaluation(float(F.cross_entropy(logits, labels)), float((best == labels).float().mean()), None, predictions,
                    confusion=counted)


def _translated(learner: Learner, pairs: Sequence[Pair], parts: Sequence[Sequence[Pair]]) -> Evaluation:
    loss = right = tokens = 0.0
    predictions: list[Prediction] = []
    targets_of = [targets(learner, part) for part in parts]
    cap = max(labels.shape[1] for labels in targets_of)  # whichever batch the longest answer is in
    ends = end_marks(learner)
    for part, labels in zip(parts, targets_of, strict=True):
        batch = inputs(learner, [pair.text for pair in part])
        logits = learner.model(**batch, labels=labels).logits.float()
        counted = labels != IGNORED
        loss += float(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"))
        right += float((logits.argmax(-1) == labels)[counted].sum())
        tokens += float(counted.sum())
        made = learner.model.generate(**batch, do_sample=False, num_beams=1, max_new_tokens=cap)
        predictions += [Prediction((pair.text,), (_text(learner, row),), (_text(learner, ids),),
                            bool(ends) and ends.isdisjoint(ids[1:].tolist()))
                 for pair, row, ids in zip(part, labels, made, strict=True)]
    exact = sum(one.right for one in predictions) / len(predictions)
    return Evaluation(loss / tokens, exact, right / tokens, tuple(predictions), sum(one.cut for one in predictions))


def truncated(learner: Learner, pairs: Sequence[Pair]) -> int:
    """How many rows have a text or an answer of more tokens than are taken."""
    long = [len(ids) > learner.max_tokens for ids in learner.tokenizer([pair.text for pair in pairs])["input_ids"]]
    if not learner.labels:
        answers = learner.tokenizer(text_target=[pair.answer for pair in pairs])["input_ids"]
        long = [a or len(ids) > learner.max_tokens for a, ids in zip(long, answers, strict=True)]
    return sum(long)


def end_marks(learner: Learner) -> set[int]:
    """The tokens on which generation ends."""
    marks = learner.model.generation_config.eos_token_id
    return set() if marks is None else {marks} if isinstance(marks, int) else set(marks)


def _text(learner: Learner, ids: Int[Tensor, " T"]) -> str:
    return str(learner.tokenizer.decode(ids[ids != IGNORED].tolist(), skip_special_tokens=True)).strip()


def inputs(learner: Learner, texts: Sequence[str]) -> dict[str, Tensor]:
    """Texts as the model takes them, padded to the longest; each at most `max_tokens` long."""
    batch = learner.tokenizer(list(texts), padding=True, truncation=True, max_length=learner.max_tokens,
                              return_tensors="pt")
    known = ("input_ids", "attention_mask", "token_type_ids")
    return {name: value.to(learner.device) for name, value in batch.items() if name in known}


def targets(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, "B T"]:
    """The answers' ids, each closed by the end mark whether or not the tokenizer does that; what pads them is not
    counted."""
    encoded = learner.tokenizer(text_target=[pair.answer for pair in pairs], truncation=True,
                              max_length=learner.max_tokens - 1)["input_ids"]
    end = learner.tokenizer.eos_token_id
    ids = [row if end is None or row[-1:] == [end] else [*row, end] for row in encoded]
    longest = max(map(len, ids))
    return torch.tensor([row + [IGNORED] * (longest - len(row)) for row in ids], device=learner.device)


def classes(learner: Learner, pairs: Sequence[Pair]) -> Int[Tensor, " B"]:
    """The index of each row's label among the model's outputs."""
    return torch.tensor([learner.labels.index(pair.answer) for pair in pairs], device=learner.device)


def read_attention(learner: Learner, texts: Sequence[ModelInputs]) -> list[Reading]:
    """The attention of the watched sentences as the model is now, read on the CPU as every page reads models."""
    device = learner.device
    with as_is(learner.model):
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
            stacked[f"{index}:{kind}"] = np.stack([item.weights for item in maps]).astype(np.float16)
    return stacked


def words(texts: Sequence[ModelInputs], readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """What the rows and columns of those maps stand for, as plain values."""
    return [{"text": one.text, "target": one.target,
             "kinds": {kind: [_line(line) for line in reading.lines(kind)] for kind in reading.trace.kinds}}
            for one, reading in zip(texts, readings, strict=True)]


def _line(line: Line) -> dict[str, Any]:
    return {"tokens": list(line.tokens), "special": list(line.special)}


def trace_of(maps: dict[str, np.ndarray], index: int, lines: dict[str, Any], source: str) -> AttentionTrace:
    """The frame of one watched sentence as a trace again; empty where nothing was kept of it."""
    from core.trace import AttentionMap

    traced = []
    for kind, (rows, columns) in lines["kinds"].items():
        weights = maps.get(f"{index}:{kind}", np.zeros((0, 0, 0, 0), np.float32))
        mask = np.tri(len(rows["tokens"]), dtype=bool)[None] if kind == "causal" else None
        traced += [AttentionMap(kind, layer, one, tuple(rows["tokens"]), tuple(columns["tokens"]), mask)
                  for layer, one in enumerate(weights)]
    return AttentionTrace(tuple(traced), source)
