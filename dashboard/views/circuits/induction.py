"""The induction circuit of the lab's repeating models: by patching, by composition, and by where its heads attend."""

from __future__ import annotations

from dataclasses import dataclass

from core.interpret.patching import pair_of, patch, ranked
from core.pretrained import ModelInputs, read
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import shared
from dashboard.views.circuits.compute import Edge, Head, circuits_of
from dashboard.widgets.model_picker import ModelRef, load_model

# Which word stood before which is all that differs, so a head that tells it and one that looks for it must do it.
PAIR = (
    ModelInputs("the dark river and the cold house . we saw the dark"),
    ModelInputs("the cold river and the dark house . we saw the dark"),
)
PAIRED_MODELS = ("only-attention", "induction")


@dataclass(frozen=True, eq=False)
class InductionCircuit:
    """The two heads of a circuit by patching, with what each recovers, and by composition; and where they attend.

    `previous` is the mean weight of the first head on the token before, `answer` the weight of the second one's last
    row on the token that the model then predicts.
    """

    patched: tuple[Head, Head]
    effects: tuple[float, float]
    composed: Edge
    previous: float
    answer: float
    word: str


def induction_circuit(ref: ModelRef) -> InductionCircuit | None:
    """The induction circuit of the lab's repeating models, by patching and by composition; None for other models."""
    return (
        shared(_induction_circuit, ref)
        if ref.source == "lab" and ref.name in PAIRED_MODELS
        else None
    )


def _induction_circuit(ref: ModelRef) -> InductionCircuit:
    model, circuits = load_model(ref), circuits_of(ref)
    with one_thread():
        pair = pair_of(model, *PAIR)
        best = ranked(patch(pair), "denoise")
        reading = read(model, PAIR[0])
    heads = [
        next(((layer, head), value) for (_, layer), head, value in best if layer == number)
        for number in (0, 1)
    ]
    (first, gained), (second, regained) = heads
    earlier, later = (item.weights for item in reading.trace.maps)
    word = str(pair.clean.word)
    answer = float(later[second[1], -1, reading.source.tokens.index(word)])
    previous = float(earlier[first[1]].diagonal(-1).mean())
    return InductionCircuit(
        (first, second), (gained, regained), circuits.pairs("K")[0], previous, answer, word
    )
