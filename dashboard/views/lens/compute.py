"""The lens of a text, the tokens that are followed through its layers, and the parts of a logit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from core.interpret.attribution import Attribution, Part, attribute_passes
from core.interpret.evidence import Baseline, Question
from core.interpret.lens import (
    LogitLens,
    Part as LensPart,
    Stream,
    Trajectories,
    count_parts,
    first_likeliest,
    follow_tokens,
    join_parts,
    read_part,
    read_stream,
)
from core.interpret.trace import AttentionMap, Kind
from core.pretrained import ModelInputs
from core.pretrained.base import display_tokens
from core.pretrained.reading import tokenizer_of
from dashboard.server.cache import measurements, shared
from dashboard.ui.models import ModelRef, baseline_of, is_small, load_model
from dashboard.ui.threads import one_thread
from dashboard.views.lens.controls import Controls

LensKey = tuple[ModelRef, ModelInputs, int]
AttributionKey = tuple[ModelRef, Question, int | None]
LENS, ATTRIBUTED = (
    "lens:read",
    "lens:attributed",
)  # the parts that were read and the passes that ran, for all sessions
EMBEDDING, BIASES, DECODER = "embedding", "biases", "decoder "
LAYER_ROLES = ("mixer", "feed-forward")  # what a layer writes beside its heads
WINDOW = 64  # positions that are read at once: each is multiplied with the whole vocabulary, after every layer
LEADERS = 3  # tokens besides the answer that lead after some layer, and are followed unasked


@dataclass(frozen=True, eq=False)
class Decision:
    """The lens at every position, and tokens through the layers at one: the answer first.

    `first` is the first state in which the answer is the likeliest, `stays` that from which it stays so.
    """

    lens: LogitLens
    states: tuple[str, ...]
    tokens: tuple[int, ...]
    trajectories: Trajectories
    first: int | None
    stays: int | None

    @property
    def decisive(self) -> int:
        """The state in which the answer is decided; the last one where it is not the likeliest."""
        return len(self.states) - 1 if self.stays is None else self.stays


def lens_key(controls: Controls) -> LensKey:
    """What the lens is of: of a long text, the window around the position."""
    return controls.ref, controls.question.inputs, window_start(controls)


def parts_of(key: LensKey) -> int:
    """In how many passes all states of the lens are read; they are computed now."""
    return count_parts(_baseline(key), shared(_stream, *key))


def read_lens_part(key: LensKey, part: int) -> LensPart:
    """The states that one pass reads, by its index."""
    baseline, stream = _baseline(key), shared(_stream, *key)
    with one_thread(is_small(baseline.pretrained)):
        return read_part(baseline, stream, part)


def lens_of(key: LensKey) -> LogitLens:
    """The lens; parts that were not read yet are read now. Shared by all sessions."""
    return shared(_lens, *key)


def _lens(*key: Any) -> LogitLens:
    values = measurements(LENS, key)
    parts = [
        values[part] if part in values else read_lens_part(key, part)
        for part in range(parts_of(key))
    ]
    return join_parts(load_model(key[0]), shared(_stream, *key), parts)


def _stream(ref: ModelRef, inputs: ModelInputs, start: int) -> Stream:
    baseline = baseline_of(ref, Question(inputs, 0))
    with one_thread(is_small(baseline.pretrained)):
        return read_stream(baseline, start, start + WINDOW)


def _baseline(key: LensKey) -> Baseline:
    return baseline_of(key[0], Question(key[1], 0))


def window_start(controls: Controls) -> int:
    """The first position that is read: a long text is read in windows, which stay while near cells are picked."""
    late = max(0, controls.position - WINDOW // 4) // (WINDOW // 2) * (WINDOW // 2)
    return min(late, max(0, len(controls.line) - WINDOW))


def state_names(lens: LogitLens) -> tuple[str, ...]:
    """The embedding, and the layers by their numbers."""
    return (EMBEDDING, *(f"L{layer}" for layer in range(len(lens.states) - 1)))


def leaders(controls: Controls, lens: LogitLens) -> list[int]:
    """The tokens besides the answer that are the likeliest in some state at the position, the latest first."""
    first = lens.top[:, controls.position - lens.start, 0].tolist()[::-1]
    return [token for token in dict.fromkeys(first) if token != controls.baseline.id]


def decide(controls: Controls, lens: LogitLens, tokens: Sequence[int]) -> Decision:
    """Follow the answer, the latest leaders and further tokens through the layers."""
    assert controls.baseline.id is not None
    chosen = tuple(
        dict.fromkeys([controls.baseline.id, *tokens, *leaders(controls, lens)[:LEADERS]])
    )
    trajectories = shared(_trajectories, controls.ref, controls.question, chosen, lens.start)
    return Decision(lens, state_names(lens), chosen, trajectories, *first_likeliest(trajectories))


def _trajectories(
    ref: ModelRef, question: Question, tokens: tuple[int, ...], start: int
) -> Trajectories:
    baseline = baseline_of(ref, question)
    with one_thread(is_small(baseline.pretrained)):
        return follow_tokens(
            baseline, lens_of((ref, question.inputs, start)), baseline.answer.position, tokens
        )


def attribution_key(controls: Controls) -> AttributionKey:
    return controls.ref, controls.question, controls.contrast


def attributor(key: AttributionKey) -> Callable[[int], Attribution | None]:
    """A function that runs the passes up to one, by its index; the last one gives the parts of the answer's logit.

    PretrainedError where they do not add up.
    """
    ref, question, contrast = key
    baseline, run = baseline_of(ref, question), list[Attribution | None]()
    assert baseline.id is not None
    passes = attribute_passes(baseline, baseline.id, contrast)

    def attribute(index: int) -> Attribution | None:
        with one_thread(is_small(baseline.pretrained)):
            run.extend(islice(passes, index + 1 - len(run)))
        return run[index]

    return attribute


def words_of(ref: ModelRef, tokens: Sequence[int]) -> dict[int, str]:
    """The display text of tokens by their ids."""
    return shared(_words_of, ref, tuple(dict.fromkeys(tokens)))


def _words_of(ref: ModelRef, tokens: tuple[int, ...]) -> dict[int, str]:
    return dict(zip(tokens, display_tokens(tokenizer_of(load_model(ref)), tokens), strict=True))


def maps_of_layer(controls: Controls, name: str) -> list[AttentionMap]:
    """The attention maps of a layer by its name; empty for the embedding, and for layers without attention."""
    return [
        item
        for item in controls.reading.trace.maps
        if item.kind in controls.kinds and item.layer_name == name
    ]


def layer_names(controls: Controls) -> dict[tuple[Kind, int], str]:
    """The layers that answer by (kind, layer), with the kind where there are several."""
    several = {"causal": DECODER, "cross": "cross "} if len(controls.kinds) > 1 else {}
    return {
        (item.kind, item.layer): f"{several.get(item.kind, '')}{item.layer_name}"
        for item in controls.reading.trace.maps
        if item.kind in controls.kinds
    }


def named_parts(controls: Controls, attribution: Attribution) -> list[tuple[str, Part]]:
    """Each part with its name, the largest share first."""
    names = layer_names(controls)
    ranked = sorted(attribution.parts, key=lambda part: -abs(part.value))
    return [
        (_part_name(part, "" if part.key is None else names[part.key]), part) for part in ranked
    ]


def _part_name(part: Part, layer: str) -> str:
    return {
        "embedding": f"{part.name} embedding",
        "head": f"{layer}·H{part.head}",
        "bias": f"bias of {layer}",
        **{role: f"{role} of {layer.removeprefix(DECODER) or part.name}" for role in LAYER_ROLES},
        "norm": "bias of a norm",
        "transform": "bias before the unembedding",
        "unembedding": "bias of the unembedding",
    }[part.role]


def grouped(controls: Controls, attribution: Attribution) -> dict[str, float]:
    """The same sum by larger parts, in the order of the model, and last all biases."""
    names, sums = layer_names(controls), dict[str, float]()
    for part in sorted(
        attribution.parts,
        key=lambda part: (
            -1
            if part.role == "embedding"
            else 10**6
            if part.key is None
            else 2 * part.key[1] + (part.role in LAYER_ROLES)
        ),
    ):
        layer = "" if part.key is None else names[part.key]
        group = (
            f"heads of {layer}"
            if part.role == "head"
            else _part_name(part, layer)
            if part.role in ("embedding", *LAYER_ROLES)
            else BIASES
        )
        sums[group] = sums.get(group, 0.0) + part.value
    return dict(sorted(sums.items(), key=lambda item: item[0] == BIASES))
