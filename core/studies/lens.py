"""When a model decides: tokens through its layers at one position, and the named parts of a logit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from core.interpret.evidence import Baseline
from core.interpret.lens import (
    Attribution,
    LogitLens,
    Part,
    Trajectories,
    first_likeliest,
)
from core.interpret.trace import AttentionMap, LayerKey, layer_names
from core.pretrained import Reading

EMBEDDING, BIASES, DECODER = "embedding", "biases", "decoder "
LAYER_ROLES = ("mixer", "feed-forward")  # what a layer writes beside its heads
WINDOW = 64  # positions that are read at once: each is multiplied with the whole vocabulary, after every layer
LEADERS = 3  # tokens besides the answer that lead after some layer, and are followed unasked


@dataclass(frozen=True, eq=False)
class Decision:
    """The lens at every position, and tokens through the layers at one: the answer first."""

    lens: LogitLens
    tokens: tuple[int, ...]
    trajectories: Trajectories

    @cached_property
    def states(self) -> tuple[str, ...]:
        return state_names(self.lens)

    @property
    def decisive(self) -> int:
        """The state from which the answer stays the likeliest; the last one where it is not."""
        _, stays = first_likeliest(self.trajectories)
        return len(self.states) - 1 if stays is None else stays


def window_start(position: int, length: int) -> int:
    """The first position that is read: a long text is read in windows, which stay while near cells are picked."""
    late = max(0, position - WINDOW // 4) // (WINDOW // 2) * (WINDOW // 2)
    return min(late, max(0, length - WINDOW))


def state_names(lens: LogitLens) -> tuple[str, ...]:
    """The embedding, and the layers by their numbers."""
    return (EMBEDDING, *(f"L{layer}" for layer in range(len(lens.states) - 1)))


def leaders(baseline: Baseline, lens: LogitLens) -> list[int]:
    """The tokens besides the answer that are the likeliest in some state at its position, the latest first."""
    first = lens.top[:, baseline.answer.position - lens.start, 0].tolist()[::-1]
    return [token for token in dict.fromkeys(first) if token != baseline.id]


def followed(baseline: Baseline, lens: LogitLens, tokens: Sequence[int]) -> tuple[int, ...]:
    """The answer, further tokens and the latest leaders: what is followed through the layers."""
    assert baseline.id is not None
    return tuple(dict.fromkeys([baseline.id, *tokens, *leaders(baseline, lens)[:LEADERS]]))


def answering_maps(reading: Reading) -> tuple[AttentionMap, ...]:
    """The maps of the layers that answer: of an encoder–decoder, the decoder's."""
    return tuple(
        item for item in reading.trace.maps if item.kind != "self" or reading.target is None
    )


def answering_layers(reading: Reading) -> dict[LayerKey, str]:
    """The names of the layers that answer."""
    return layer_names(
        {(item.kind, item.layer): item.layer_number for item in answering_maps(reading)}
    )


def named_parts(reading: Reading, attribution: Attribution) -> list[tuple[str, Part]]:
    """Each part with its name, the largest share first."""
    names = answering_layers(reading)
    return [
        (_part_name(part, "" if part.key is None else names[part.key]), part)
        for part in sorted(attribution.parts, key=lambda part: -abs(part.value))
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


def grouped(reading: Reading, attribution: Attribution) -> dict[str, float]:
    """The same sum by larger parts, in the order of the model, and last all biases."""
    names, sums = answering_layers(reading), dict[str, float]()
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
