"""The objective of each form of task: the loss, the teacher-forced measures, and the free-running outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.decoding import EOS, greedy
from core.tasks import PAD, UNK, Batch, Example, Task
from core.tasks.metrics import score
from core.training.record import Prediction

CONTINUED = 64  # tokens of a displayed continuation, at most


class Objective:
    """Pairs: cross-entropy of the next target token in nats, under teacher forcing."""

    scored = True  # whether free-running outputs are scored, or only displayed

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """The mean loss; label smoothing as in Szegedy 2016, section 7."""
        return F.cross_entropy(
            logits.flatten(0, -2),
            batch.target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
        )

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        """The sum of losses, the number of right outputs, and the number of outputs."""
        real = batch.target_out != PAD
        logits, targets = logits[real], batch.target_out[real]
        loss = F.cross_entropy(logits, targets, reduction="sum")
        return loss.item(), float((logits.argmax(-1) == targets).sum()), int(real.sum())

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        """The sum of losses at target tokens that the vocabulary lacks, and their number."""
        mask = batch.target_out == UNK
        return F.cross_entropy(logits[mask], batch.target_out[mask], reduction="sum").item(), int(
            mask.sum()
        )

    def confusion(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """The confusion matrix (K, K), rows true and columns predicted classes; None unless classes are predicted."""
        return None

    def outputs(self, batch: Batch) -> int:
        """The number of outputs of an example."""
        return batch.target_out.shape[1]

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        """The model's free-running output for each example."""
        batch = task.collate(examples).to(device)
        written = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
        return [
            Prediction(
                *task.display_tokens(example),
                tuple(task.target_vocab.decode(ids)),
                cut=EOS not in ids,
            )
            for example, ids in zip(examples, written, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Fields of a Record, by name."""
        outputs, targets = [p.predicted for p in predictions], [p.target for p in predictions]
        return {**score(task, outputs, targets), "cut": sum(p.cut for p in predictions)}


class Text(Objective):
    """The next token of a text."""

    scored = False

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        """A continuation of the first half of each window from its last token: there is no start mark."""
        starts = [Example(e.source[: max(2, len(e.source) // 2)], ()) for e in examples]
        batch, longest = (
            task.collate(starts).to(device),
            max(1, min(CONTINUED, len(examples[0].source) // 2)),
        )
        written = greedy(
            model,
            batch.source[:, :-1],
            batch.source_mask[:, :-1],
            longest,
            begin=batch.source[:, -1],
        ).tolist()
        return [
            Prediction(
                task.display_tokens(start)[0],
                task.display_tokens(whole)[0][len(start.source) :],
                tuple(task.target_vocab.decode(ids)),
            )
            for start, whole, ids in zip(starts, examples, written, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {}


class Label(Objective):
    """One class for the whole input."""

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(logits, batch.target_out, label_smoothing=smoothing)

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        return 0.0, 0

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        loss = F.cross_entropy(logits, batch.target_out, reduction="sum")
        return (
            loss.item(),
            float((logits.argmax(-1) == batch.target_out).sum()),
            len(batch.target_out),
        )

    def confusion(self, logits: Tensor, batch: Batch) -> Tensor:
        return confusion(logits, batch.target_out)

    def outputs(self, batch: Batch) -> int:
        return 1

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        batch = task.collate(examples).to(device)
        predicted = model(batch.source, batch.source_mask).logits.argmax(-1).tolist()
        return [
            Prediction(*task.display_tokens(example), (task.classes[index],))
            for example, index in zip(examples, predicted, strict=True)
        ]


class Series(Objective):
    """A forecast: the mean squared error in units of the task."""

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return F.mse_loss(logits, batch.target_out)

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        return 0.0, 0

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        loss = F.mse_loss(logits, batch.target_out, reduction="sum")
        return loss.item(), float("nan"), batch.target_out.numel()

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        batch = task.collate(examples).to(device)
        values = model(batch.source, batch.source_mask).logits.tolist()
        return [
            Prediction(*task.display_tokens(example), tuple(f"{value:.3f}" for value in row))
            for example, row in zip(examples, values, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The absolute error divided by that of repeating the last season (MASE, Hyndman & Koehler 2006)."""
        predicted = torch.tensor([[float(x) for x in p.predicted] for p in predictions])
        targets = torch.tensor([[float(x) for x in p.target] for p in predictions])
        naive = torch.tensor([task.naive([float(x) for x in p.source]) for p in predictions])
        return {"error": float((predicted - targets).abs().mean() / (naive - targets).abs().mean())}


def confusion(logits: Tensor, classes: Tensor) -> Tensor:
    """The confusion matrix (K, K) of logits (B, K) and true classes (B,): rows true, columns predicted."""
    count = logits.shape[-1]
    return torch.bincount(classes * count + logits.argmax(-1), minlength=count**2).view(
        count, count
    )


OBJECTIVES: dict[str, Objective] = {
    "pairs": Objective(),
    "text": Text(),
    "label": Label(),
    "series": Series(),
}


def objective(task: Task) -> Objective:
    """The objective of a task's form."""
    return OBJECTIVES[task.form]
