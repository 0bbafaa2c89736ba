"""The two heads of the lab's model of names and number that carry its answers: by patching, and what they write."""

from __future__ import annotations

from dataclasses import dataclass

from core.interpret.attribution import attribute_logit
from core.interpret.evidence import Baseline
from core.interpret.patching import LayerKey, pair_of, patch, ranked
from core.pretrained import ModelInputs, Pretrained, read
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import shared
from dashboard.views.circuits.compute import Head
from dashboard.widgets.model_picker import ModelRef, load_model

MODEL = "names"
# Only who gives differs, and only the number of the subject.
PAIRS = (
    (
        "when ann and ben went to the shop , ben gave the book to",
        "when ann and ben went to the shop , ann gave the book to",
    ),
    ("the dogs near the tree", "the dog near the tree"),
)


@dataclass(frozen=True)
class Carrier:
    """The head that brings back most of the difference between two texts, with the answers to both.

    `weight` is that of its last query in the first text on `key`, where it attends most; `adds` what it writes directly
    to the logit of the answer minus that of the other one, in both texts.
    """

    texts: tuple[str, str]
    answer: str
    other: str
    head: Head
    effect: float
    key: str
    weight: float
    adds: tuple[float, float]


def carriers(ref: ModelRef) -> tuple[Carrier, ...]:
    """The head that carries each of PAIRS in the lab's model of names; none in other models."""
    return shared(_carriers, ref) if ref.source == "lab" and ref.name == MODEL else ()


def _carriers(ref: ModelRef) -> tuple[Carrier, ...]:
    with one_thread():
        return tuple(_carrier(load_model(ref), texts) for texts in PAIRS)


def _carrier(model: Pretrained, texts: tuple[str, str]) -> Carrier:
    clean, corrupted = map(ModelInputs, texts)
    pair, reading = pair_of(model, clean, corrupted), read(model, clean)
    (kind, layer), head, effect = ranked(patch(pair), "denoise")[0]
    weights = reading.trace.maps[layer].weights[head, -1]
    key = int(weights.argmax())
    first, second = (_adds(one, (kind, layer), head) for one in (pair.clean, pair.corrupted))
    return Carrier(
        texts,
        str(pair.clean.word),
        str(pair.clean.other),
        (layer, head),
        effect,
        reading.source.tokens[key],
        float(weights[key]),
        (first, second),
    )


def _adds(baseline: Baseline, key: LayerKey, head: int) -> float:
    """What a head writes directly to the difference of the two answers' logits."""
    assert baseline.id is not None
    parts = attribute_logit(baseline, baseline.id, baseline.contrast).parts
    return next(
        part.value for part in parts if part.role == "head" and (part.key, part.head) == (key, head)
    )
