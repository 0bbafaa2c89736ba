"""What a model computes inside on one input, as tensors and as a safetensors file: stream, queries, keys, values, outputs."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor

from core.entries import Cost
from core.interpret.lens import layers_of, token_states
from core.interpret.patching import states_of
from core.interpret.trace import to_numpy
from core.models.base import hooked
from core.pretrained.attention_recorder import numbers_by_layer
from core.pretrained.base import ModelInputs, Pretrained, refuse_too_much, reject_if
from core.pretrained.forward import forward
from core.pretrained.load import largest
from core.pretrained.maps import KINDS, note_of
from core.pretrained.reading import encode
from core.provenance import lab_version

Part = Literal["resid", "q", "k", "v", "out"]
PARTS: tuple[Part, ...] = get_args(Part)
AXES: dict[str, str] = {
    "resid": "(token, dimension): the residual stream after the layer",
    "q": "(head, token, dimension): queries, after rotation and norms, before the scale",
    "k": "(head, token, dimension): keys, of as many heads as the model has keys, or of those chosen",
    "v": "(head, token, dimension): values, of as many heads as there are keys, or of those chosen",
    "out": "(head, token, dimension): what W_O gets of each head",
}


@dataclass(frozen=True, eq=False)
class Activations:
    """Tensors (float32) by name, and what is known of them, as the metadata of a safetensors file.

    `resid_3` is of layer 3, `encoder_resid_3` of an encoder–decoder's encoder, and `causal_3_q` of the attention that maps
    number so: its kind, its layer, its part. The axes are in AXES. The metadata are texts; tokens, ids and modules are JSON.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def activation_bytes(
    pretrained: Pretrained,
    tokens: int,
    parts: Collection[str] = PARTS,
    layers: Collection[int] | None = None,
    heads: Sequence[int] | None = None,
) -> int:
    """About how many bytes these parts of the layers and heads (None: all) take, by the sizes in the model's config.

    PretrainedError where the parts cannot be read, or memory would not hold those of a pass.
    """
    unknown = [part for part in parts if part not in PARTS]
    reject_if(
        unknown or not parts,
        f"There are no activations {', '.join(unknown) or 'of no part'}; take some of {', '.join(PARTS)}.",
    )
    reject_if(
        {*parts} != {"resid"} and not pretrained.recordable,
        f"{pretrained.name} {pretrained.not_recorded}. So only the stream after its layers is read: take resid.",
    )
    if "resid" in parts:
        layers_of(pretrained)
    number = partial(largest, pretrained.model)
    width, count = number(1, "hidden_size"), number(1, "num_attention_heads")
    size = max(number(0, name) for name in ("head_dim", "qk_head_dim", "v_head_dim"))
    size, keys = size or width // count, number(count, "num_key_value_heads")
    every = max(number(1, "num_hidden_layers"), number(1, "decoder_layers"))
    # an encoder–decoder has cross-attention, too
    numbers = tokens * (2 if pretrained.model.config.is_encoder_decoder else 1)

    def total(layers: int, q: int, k: int) -> int:
        """The bytes of so many layers with so many heads of queries and of keys."""
        sizes = {"resid": width, "q": q * size, "k": k * size, "v": k * size, "out": q * size}
        return 4 * numbers * layers * sum(sizes[part] for part in parts)

    refuse_too_much(
        Cost(bytes=2 * total(every, count, keys)),  # of the pass, and the file
        f"What the layers compute on {tokens:,} tokens",
        "Take a shorter text, fewer parts, or a smaller model.",
    )
    chosen = (count, keys) if heads is None else (len(heads),) * 2
    return total(every if layers is None else len(layers), *chosen)


def read_activations(
    pretrained: Pretrained,
    inputs: ModelInputs | str,
    parts: Sequence[str] = PARTS,
    layers: Collection[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Activations:
    """These parts of the layers and heads (None: all) on one input; layers have the numbers of the maps.

    PretrainedError for a part, layer or head that there is not, for a model whose attention is not recorded, and where
    memory would not hold them.
    """
    inputs = ModelInputs(inputs) if isinstance(inputs, str) else inputs
    batch, source, target, cut = encode(pretrained, inputs)
    activation_bytes(pretrained, len(source) + len(target or ()), parts)  # or a sentence
    model, stacks = pretrained.model, {"": pretrained}
    if model.config.is_encoder_decoder:
        stacks["encoder_"] = replace(pretrained, model=model.get_encoder())
    blocks = [
        (prefix, name, stack.model.get_submodule(name))
        for prefix, stack in stacks.items()
        for name in (layers_of(stack) if "resid" in parts else ())
    ]
    passes, rows = Counter[str](), list[tuple[str, int, Tensor, str]]()

    def keep(prefix: str, name: str, module: Any, inputs: Any, output: Any) -> None:
        """The output of a layer; one that runs several times is a layer each time."""
        number = passes[prefix]
        passes[prefix] += 1
        rows.append(
            (f"{prefix}resid_{number}", number, token_states(states_of(output)).cpu(), name)
        )

    hooks = hooked(one.register_forward_hook(partial(keep, *names)) for *names, one in blocks)
    _, recorder = forward(pretrained, batch, with_qkv={*parts} != {"resid"}, hooks=hooks)
    numbers, stateful = numbers_by_layer(model, recorder.calls), list[str]()
    for call in recorder.calls if {*parts} != {"resid"} else ():
        number, count = numbers[call.kind, call.layer], call.weights.shape[1]
        if layers is not None and number not in layers:
            continue
        wrong = [head for head in heads or () if not 0 <= head < count]
        reject_if(
            wrong,
            f"Layer {number} of {pretrained.name} has the heads 0 to {count - 1}, and no {str(wrong)[1:-1]}.",
        )
        stateful += [f"{call.kind}_{number}"] * bool(call.state)
        out = call.replaceable.transpose(1, 2)
        for part, value in (("q", call.q), ("k", call.k), ("v", call.v), ("out", out)):
            if part in parts and value is not None:
                # a head's keys are those of its group
                chosen = [head * value.shape[1] // count for head in heads or ()]
                value = value[0] if heads is None else value[0, chosen]
                rows.append((f"{call.kind}_{number}_{part}", number, value, call.name))
    known = {*numbers.values(), *(number for _, number, *_ in rows)}
    reject_if(
        missing := sorted({*(layers or ())} - known),
        f"{pretrained.name} has the layers {min(known)} to {max(known)}, and no {str(missing)[1:-1]}.",
    )
    rows = [row for row in rows if layers is None or row[1] in layers]
    without = f"Layers that pass on a state have no q and k: {', '.join(stateful)}."
    reject_if(not rows, f"{pretrained.name} has no {' or '.join(parts)} here. {without}")
    notes = cut, note_of(pretrained, recorder, KINDS), without * bool(stateful)
    metadata: dict[str, Any] = {
        "format": f"activations of Attention Lab {lab_version()}",
        "model": pretrained.name,
        "text": inputs.text,
        "second": inputs.second,
        "tokens": json.dumps(source.tokens),
        "ids": json.dumps(source.ids),
        "target_tokens": json.dumps(target.tokens) if target else None,
        "target_ids": json.dumps(target.ids) if target else None,
        "modules": json.dumps({name: module for name, _, _, module in rows}),
        "notes": " ".join(filter(None, notes)),
        **{part: AXES[part] for part in parts},
    }
    return Activations(
        {name: value.detach().float().contiguous() for name, _, value, _ in rows},
        {key: value for key, value in metadata.items() if value},
    )


def activations_file(
    pretrained: Pretrained,
    inputs: ModelInputs | str,
    parts: Sequence[str] = PARTS,
    layers: Collection[int] | None = None,
    heads: Sequence[int] | None = None,
    revision: str = "",
) -> bytes:
    """`read_activations` as a safetensors file, whose metadata also say which weights: a commit, or their SHA-256."""
    read = read_activations(pretrained, inputs, parts, layers, heads)
    weights = revision or f"sha256 of the weights {weights_digest(pretrained.model)}"
    return save(read.tensors, read.metadata | {"revision": weights})


def weights_digest(model: Any) -> str:
    """The SHA-256 of a model's weights: the bytes of each tensor of its state dict, after its name, in their order."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(to_numpy(value.contiguous().reshape(-1).view(torch.uint8)).tobytes())
    return digest.hexdigest()
