"""A reading: the tokens that a model reads, its attention on them, and its answer."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import refuse_type
from core.interpret.trace import AttentionTrace
from core.models.base import hooked
from core.models.decoding import SearchSettings
from core.pretrained.attention_recorder import (
    NO_HEADS,
    HeadSet,
    layer_numbers,
)
from core.pretrained.base import (
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    reject_if,
    text_line,
    wrap_errors,
)
from core.pretrained.forward import (
    Batch,
    encode_source,
    end_tokens,
    forward,
    start_token,
    target_ids,
    tokenized,
    tokenizer_of,
)
from core.pretrained.generate import Answer, Candidate, answer_of, display_names, generate
from core.pretrained.maps import has_sinks, maps_of, note_of

MAX_PRODUCED = 64


def read(pretrained: Pretrained, inputs: ModelInputs | str) -> Reading:
    """The attention of every layer and head on the inputs: text of at most 20,000 characters, a picture or sound.

    A text longer than `max_tokens` is cut, and `Reading.cut` says so. An encoder–decoder that is given no target
    decodes it first. PretrainedError when there is nothing to read, or the model has no attention to draw.
    """
    refuse_type(pretrained, Pretrained, "read(load_minilm(), 'A text.')")
    inputs = ModelInputs(inputs) if isinstance(inputs, str) else inputs
    refuse_type(
        inputs, ModelInputs, "read(model, ModelInputs('A text.')) or read(model, 'A text.')"
    )
    with wrap_errors(f"{pretrained.name} cannot read this"):
        return _reading(pretrained, *encode(pretrained, inputs))


def read_lines(pretrained: Pretrained, inputs: ModelInputs) -> Reading:
    """What a model reads, without its attention. PretrainedError as in `encode`."""
    _, source, target, cut = encode(pretrained, inputs)
    return Reading(AttentionTrace((), pretrained.name), source, target, target, cut)


def read_ids(pretrained: Pretrained, ids: Sequence[int]) -> Reading:
    """The attention on a text of these token ids, between the special tokens that the tokenizer puts around a text.

    An encoder–decoder's decoder gets them too. PretrainedError as for `read`, or where there are more than
    `max_tokens`.
    """
    example = tokenized(pretrained, "a b", return_special_tokens_mask=True)
    ordinary = np.flatnonzero(np.equal(example["special_tokens_mask"], 0))
    first, last = (
        (ordinary[0], ordinary[-1] + 1) if len(ordinary) else (0, len(example["input_ids"]))
    )
    framed = [*example["input_ids"][:first], *ids, *example["input_ids"][last:]]
    reject_if(
        len(framed) > pretrained.max_tokens,
        f"{pretrained.name} reads at most {pretrained.max_tokens:,} tokens; these are {len(framed):,}.",
    )
    batch = {
        "input_ids": torch.tensor([framed]),
        "attention_mask": torch.ones(1, len(framed), dtype=torch.long),
    }
    tokenizer, target = tokenizer_of(pretrained), None
    if pretrained.model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = torch.tensor([[start_token(pretrained), *ids]])
        target = text_line(tokenizer, batch["decoder_input_ids"][0].tolist())
    with wrap_errors(f"{pretrained.name} cannot read this"):
        return _reading(pretrained, batch, text_line(tokenizer, framed), target, None)


def _reading(
    pretrained: Pretrained, batch: Batch, source: Line, target: Line | None, cut: str | None
) -> Reading:
    output, recorder = forward(pretrained, batch)
    produced = None
    # shifted by one and closed by the end token: what each position predicts
    if target is not None:
        tokenizer = tokenizer_of(pretrained)
        end = target.ids[0] if tokenizer.eos_token_id is None else tokenizer.eos_token_id
        line = text_line(tokenizer, [*target.ids[1:], end])
        produced = replace(line, special=(*line.special[:-1], True), word=(*line.word[:-1], None))
        if pretrained.head != "seq2seq":  # which predicts no token
            produced = target
    reading = Reading(AttentionTrace((), pretrained.name), source, target, produced, cut)
    trace = AttentionTrace(maps_of(pretrained, output, recorder, reading), pretrained.name)
    return replace(
        reading,
        trace=trace,
        note=note_of(pretrained, recorder, trace.kinds),
        sinks=has_sinks(recorder),
    )


def encode(
    pretrained: Pretrained, inputs: ModelInputs
) -> tuple[Batch, Line, Line | None, str | None]:
    """The model's inputs, the lines it reads, and a sentence when something was cut.

    Without a target an encoder–decoder reads its own greedy output, of at most 64 tokens. One that writes nothing, as a
    classifier, gives its decoder what its own code makes of the source, if it uses its decoder.
    """
    batch, source, cut = encode_source(pretrained, inputs)
    model, max_tokens = pretrained.model, pretrained.max_tokens
    if not (
        model.config.is_encoder_decoder
        and "decoder_input_ids" in inspect.signature(model.forward).parameters
    ):
        return batch, source, None, cut
    ids, fed = target_ids(pretrained, inputs.target), list[Tensor]()
    if pretrained.head != "seq2seq" and (len(ids) == 1 or pretrained.reads == "text"):
        note = model.get_decoder().register_forward_pre_hook(
            lambda module, _, named: fed.append(named["input_ids"]), with_kwargs=True
        )
        try:
            forward(pretrained, batch, hooks=hooked([note]))
        except PretrainedError:
            if pretrained.reads == "text":
                raise
        reject_if(
            not fed or fed[0] is None,
            f"{pretrained.name} writes no target: give it one, the text that its decoder reads.",
        )
        ids = fed[0][0].tolist()
    elif len(ids) == 1:
        tree = generate(
            pretrained, replace(inputs, target=None), SearchSettings(longest=MAX_PRODUCED)
        )
        tokens = tree.hypotheses[0].tokens
        ids += tokens[:-1] if tokens[-1] in end_tokens(pretrained) else tokens
    if len(ids) > max_tokens:
        long = f"The target has {len(ids) - 1:,} tokens; at most {max_tokens - 1} are read, so the rest is left out."
        ids, cut = ids[:max_tokens], long if cut is None else f"{cut} {long}"
    batch["decoder_input_ids"] = torch.tensor([ids])
    return batch, source, text_line(tokenizer_of(pretrained), ids), cut


@dataclass(frozen=True, eq=False)
class LayerQKV:
    """The input x of one layer on one text, and its queries, keys and values by head."""

    x: Float[Tensor, "1 T C"]
    q: Float[Tensor, "1 H T D"]
    k: Float[Tensor, "1 H T D"]
    v: Float[Tensor, "1 H T D"]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    cut: str | None


def layer_qkv(pretrained: Pretrained, text: str, layer: int) -> LayerQKV:
    """The queries, keys and values of one layer on a text, after any rotation.

    softmax(q·k/√D) is the attention that `read` returns. A long text is cut as there. PretrainedError when the
    text is empty, or the model has no such layer.
    """
    batch, line, _, cut = encode(pretrained, ModelInputs(text))
    output, recorder = forward(pretrained, batch, with_qkv=True, output_hidden_states=True)
    reject_if(
        not 0 <= layer < len(recorder.calls),
        f"{pretrained.name} has no readable queries in layer {layer}; it has "
        f"{len(recorder.calls)} layers whose attention can be read.",
    )
    call = recorder.calls[layer]
    reject_if(
        call.state,
        f"Layer {layer} of {pretrained.name} is {call.state}, without softmax, so it has no queries and keys that make "
        "its weights. Take a layer with attention.",
    )
    number = layer_numbers(pretrained.model, [one.name for one in recorder.calls])[layer]
    return LayerQKV(
        output.hidden_states[number], call.q, call.k, call.v, line.tokens, line.special, cut
    )


def answer(
    pretrained: Pretrained,
    inputs: ModelInputs,
    off: HeadSet = NO_HEADS,
    position: int | None = None,
) -> Answer:
    """The model's answer to its inputs at `position`: by default the last or the masked one, for a label the first word.

    PretrainedError when a masked language model gets no mask.
    """
    batch, *_ = encode(pretrained, inputs)
    output, _ = forward(pretrained, batch, off=off)
    return answer_of(pretrained, batch, output, position)


def embedding(pretrained: Pretrained, inputs: ModelInputs) -> Float[Tensor, " C"]:
    """The embedding of an input, of length 1; PretrainedError for a model that gives none."""
    vector = answer(pretrained, inputs).vector
    if vector is None:
        raise PretrainedError(f"{pretrained.name} gives no embedding; all-MiniLM-L6-v2 does.")
    return vector


def token_labels(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Candidate, ...]:
    """The likeliest label of each token that a model of labels reads."""
    output, _ = forward(pretrained, encode(pretrained, inputs)[0])
    best = output.logits[0].softmax(-1).max(-1)
    ids = best.indices.tolist()
    return tuple(
        map(Candidate, ids, display_names(pretrained, Answer("class"), ids), best.values.tolist())
    )
