"""Text generation with a pretrained language model or encoder–decoder, by the lab's own decoding algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from core.decoding import Prompt, SearchSettings, Tree, beam_steps, no_repeat, sample_steps
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.decoder_adapter import DecoderAdapter
from core.pretrained.generation_rules import end_tokens, logit_rules
from core.pretrained.lines import display_tokens, text_line
from core.pretrained.load import sees_ahead
from core.pretrained.maps import has_sinks, maps_of, note_of, with_sink
from core.pretrained.reading import Batch, encode_source, forward, target_ids, tokenizer_of
from core.trace import AttentionMap, AttentionTrace, Kind


@dataclass(frozen=True, eq=False)
class GenerationStart:
    """The state before the first generated token; `cut` is a sentence if the text was cut.

    `room` is how many tokens may be generated. `batch` is the encoder's input, None for a decoder-only model.
    """

    prompt: Prompt
    read: Line
    room: int
    batch: Batch | None = None
    cut: str | None = None


@dataclass(frozen=True, eq=False)
class Continuation:
    """The logits and the attention of each step of one generated sequence; maps have a row a step.

    `note` explains the maps where needed. With `sink` their last column is the weight that went to no token.
    """

    logits: Float[Tensor, "T V"]
    trace: AttentionTrace
    note: str | None = None
    sink: bool = False


def prepare_generation(pretrained: Pretrained, inputs: ModelInputs) -> GenerationStart:
    """Encode the inputs; a target is the beginning of the decoder's output.

    PretrainedError for a model that generates no tokens, and for a text that leaves no room.
    """
    if pretrained.head not in ("next", "seq2seq"):
        why = "" if pretrained.reads_text else f" from a {pretrained.reads} here"
        if sees_ahead(pretrained.model):
            why = ": its last layer sees the tokens that follow, so it does not predict them"
        raise PretrainedError(
            f"{pretrained.name} does not generate text{why}; take a language model, such as GPT-2, "
            "or an encoder–decoder."
        )
    batch, read, cut = encode_source(pretrained, inputs)
    seq2seq = pretrained.head == "seq2seq"
    read = read if seq2seq else _open(pretrained, read)
    prefix = tuple(target_ids(pretrained, inputs.target)) if seq2seq else read.ids
    if (room := pretrained.max_tokens - len(prefix)) < 1:
        raise PretrainedError(
            f"The text fills all {pretrained.max_tokens} tokens that {pretrained.name} reads, so it "
            "cannot continue; shorten it."
        )
    if not seq2seq:
        source = torch.tensor([prefix[:-1]], dtype=torch.long)
        mask = torch.ones_like(source, dtype=torch.bool)
        return GenerationStart(
            Prompt(source, mask, prefix[-1], text=True, prefix_tokens=prefix), read, room, None, cut
        )
    source, source_mask = batch[pretrained.model.main_input_name], batch.get("attention_mask")
    mask = (
        torch.ones(source.shape[:2], dtype=torch.bool)
        if source_mask is None
        else source_mask.bool()
    )
    return GenerationStart(
        Prompt(source, mask, prefix[-1], prefix_tokens=prefix), read, room, batch, cut
    )


def _open(pretrained: Pretrained, line: Line) -> Line:
    """The line without its closing special tokens, so that the model continues the text."""
    tokenizer, length = tokenizer_of(pretrained), len(line)
    closing = {tokenizer.eos_token_id, tokenizer.sep_token_id}
    while length > 1 and line.ids[length - 1] in closing:
        length -= 1
    return Line(
        line.ids[:length],
        line.tokens[:length],
        line.special[:length],
        line.word[:length],
        line.segment[:length],
    )


def generate_steps(
    pretrained: Pretrained, start: GenerationStart, settings: SearchSettings
) -> Iterator[Tree]:
    """The search tree after each step; the last one has the hypotheses, best first. ValueError for invalid settings.

    Beam search divides by length^α, as Hugging Face does.
    """
    most = min(settings.longest, start.room)
    common: dict[str, Any] = {
        "no_repeat": settings.no_repeat,
        "max_length": most,
        "eos": end_tokens(pretrained),
        "rules": logit_rules(pretrained, len(start.prompt.prefix_tokens), most),
    }
    model = DecoderAdapter(
        pretrained, start.prompt.prefix_tokens[:-1] if start.batch is not None else ()
    )
    if settings.strategy == "sampling":
        generator = torch.Generator().manual_seed(settings.seed)
        return sample_steps(
            model,
            start.prompt,
            generator,
            samples=settings.samples,
            sampling=settings.sampling,
            **common,
        )
    width, alpha = (
        (settings.width, settings.length_penalty) if settings.strategy == "beam" else (1, 0.0)
    )
    return beam_steps(
        model,
        start.prompt,
        width=width,
        length_penalty=alpha,
        **common,
        lp=lambda length, power: float(length**power),
    )


def generate(pretrained: Pretrained, inputs: ModelInputs, settings: SearchSettings) -> Tree:
    """Run the whole search."""
    *_, tree = generate_steps(pretrained, prepare_generation(pretrained, inputs), settings)
    return tree


def score_continuation(
    pretrained: Pretrained, start: GenerationStart, tokens: Sequence[int]
) -> Continuation:
    """The logits and attention of the steps that generate these tokens, from one forward pass.

    Keys of cross maps are the source; keys of causal maps are the prompt and the tokens generated before. ValueError
    for no token.
    """
    if not tokens:
        raise ValueError("There is no token to continue from.")
    fed, first = [*start.prompt.prefix_tokens, *tokens[:-1]], len(start.prompt.prefix_tokens) - 1
    name = "input_ids" if start.batch is None else "decoder_input_ids"
    output, recorder = forward(pretrained, {**(start.batch or {}), name: torch.tensor([fed])})
    line, generated = (
        text_line(tokenizer_of(pretrained), fed),
        text_line(tokenizer_of(pretrained), tokens).tokens,
    )
    reading = Reading(AttentionTrace((), pretrained.name), line)
    if start.batch is not None:
        reading = replace(reading, source=start.read, target=line, produced=line)
    all_maps = maps_of(pretrained, output, recorder, reading)
    note = note_of(pretrained, recorder, [one.kind for one in all_maps])
    maps = [
        _rows(one, first, generated)
        for one in all_maps
        if start.batch is None or one.kind != "self"
    ]  # the encoder runs before the first step
    trace = AttentionTrace(
        tuple(sorted(maps, key=lambda one: one.kind != "cross")), pretrained.name
    )
    sink = has_sinks(recorder)
    return Continuation(
        output.logits[0, first:].float(), with_sink(trace) if sink else trace, note, sink
    )


def _rows(item: AttentionMap, first: int, generated: tuple[str, ...]) -> AttentionMap:
    """The rows of the generated tokens, named by those tokens."""
    mask = item.mask if item.mask is None or item.mask.shape[-2] == 1 else item.mask[..., first:, :]
    kind: Kind = "cross" if item.kind == "cross" else "causal"
    return replace(item, kind=kind, weights=item.weights[:, first:], queries=generated, mask=mask)


def step_probabilities(
    pretrained: Pretrained,
    start: GenerationStart,
    settings: SearchSettings,
    before: Sequence[int],
    logits: Float[Tensor, " V"],
) -> Float[Tensor, " V"]:
    """The probabilities of one search step: the model's, after forbidden tokens and the sampling settings."""
    sequences = [(*start.prompt.prefix_tokens, *before)]
    rule = logit_rules(
        pretrained, len(start.prompt.prefix_tokens), min(settings.longest, start.room)
    )
    allowed = rule(
        no_repeat(logits.log_softmax(-1)[None], sequences, settings.no_repeat), sequences
    )
    if settings.strategy == "sampling":
        allowed = settings.sampling.reshape(allowed)
    return allowed.softmax(-1)[0]


def decode_text(pretrained: Pretrained, tokens: Sequence[int]) -> str:
    """The tokens as running text, without special tokens."""
    return str(tokenizer_of(pretrained).decode(list(tokens), skip_special_tokens=True)).strip()


def token_names(pretrained: Pretrained, ids: Sequence[int]) -> dict[int, str]:
    """The display name of each token; ## continues a word where the vocabulary marks word beginnings."""
    unique = list(dict.fromkeys(int(one) for one in ids))
    return dict(zip(unique, display_tokens(tokenizer_of(pretrained), unique), strict=True))
