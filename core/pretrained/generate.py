"""Text generation with a pretrained language model or encoder–decoder, by the lab's own decoding algorithms."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.interpret.trace import AttentionTrace, Kind
from core.models.decoding import Prompt, SearchSettings, Tree, length_power, no_repeat, search_steps
from core.pretrained.attention_recorder import to_device
from core.pretrained.base import (
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    display_tokens,
    text_config,
    text_line,
    wrap_errors,
)
from core.pretrained.load import sees_ahead
from core.pretrained.reading import (
    Batch,
    encode_source,
    end_tokens,
    forward,
    has_sinks,
    logit_rules,
    maps_of,
    note_of,
    target_ids,
    tokenizer_of,
    with_sink,
)

# A pretrained model behind the decoder interface of `core.models.decoding`: encode a source, then feed one token a row.


# Families whose cache, in the installed transformers, does not give what the whole text gives: they run without it.
WRONG_CACHES = ("minimax", "moshi", "nemotron_h", "zamba2")


@dataclass(frozen=True)
class EncodedSource:
    """The encoder's states, or the ids themselves where there is no encoder; and the padding mask."""

    ids: Tensor
    mask: Bool[Tensor, "B S"]
    states: Float[Tensor, "B S C"] | None = None


@dataclass(frozen=True)
class DecoderState:
    """The ids that each row has been fed, and the model's key–value cache, if it has one."""

    ids: Int[Tensor, "B T"]
    cache: Any = None

    def pick(self, rows: Int[Tensor, " R"]) -> DecoderState:
        """Select rows; the cache belongs to this search alone, so it is reordered in place."""
        if self.cache is not None and not torch.equal(
            rows, torch.arange(len(self.ids), device=rows.device)
        ):
            self.cache.reorder_cache(rows)
        return DecoderState(self.ids[rows], self.cache)


class DecoderAdapter:
    """A decoder for core.models.decoding over a shared model, always in eval mode; each step holds the model's lock."""

    def __init__(self, pretrained: Pretrained, before: Sequence[int] = ()) -> None:
        """`before` is the prefix of an encoder–decoder's decoder, before the search's first token."""
        self.pretrained, self.before = pretrained, list(before)
        taken = inspect.signature(pretrained.model.forward).parameters
        # Logits of the last position alone: those of a long prompt would take most of a step's memory.
        cached = text_config(pretrained.model).model_type not in WRONG_CACHES
        self.more: dict[str, Any] = {"use_cache": cached} | (
            {"logits_to_keep": 1} if "logits_to_keep" in taken else {}
        )
        self.encoder_output: type = dict
        self.positions = "position_ids" in taken

    def encode(self, source: Tensor, source_mask: Bool[Tensor, "B S"]) -> EncodedSource:
        """Run the encoder, where there is one."""
        model = self.pretrained.model
        if not model.config.is_encoder_decoder:
            return EncodedSource(source, source_mask)
        mask = {"attention_mask": source_mask.long()} if self.pretrained.reads == "pair" else {}
        with (
            wrap_errors(f"{self.pretrained.name} cannot read this"),
            self.pretrained.lock,
            torch.inference_mode(),
        ):
            output = model.get_encoder()(
                source.to(model.device), **to_device(model, mask), return_dict=True
            )
        states, self.encoder_output = output.last_hidden_state.cpu(), type(output)
        return EncodedSource(
            source,
            torch.ones(states.shape[:2], dtype=torch.bool) if not mask else source_mask,
            states,
        )

    def start(self, memory: EncodedSource) -> DecoderState:
        """The state before the first step; a prompt is fed together with the first token."""
        return DecoderState(
            memory.ids if memory.states is None else torch.tensor([self.before], dtype=torch.long)
        )

    def step(
        self, memory: EncodedSource, state: DecoderState, tokens: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B V"], DecoderState, None]:
        """The logits of the next token of each row."""
        ids = torch.cat((state.ids, tokens[:, None]), dim=1)
        model, inputs = self.pretrained.model, {**self.more}
        if memory.states is not None:
            inputs["encoder_outputs"] = self.encoder_output(
                last_hidden_state=memory.states.to(model.device)
            )
            if self.pretrained.reads == "pair":
                inputs["attention_mask"] = memory.mask.long()
        elif self.positions:
            inputs["position_ids"] = torch.arange(ids.shape[1]).expand_as(ids)
        with (
            wrap_errors(f"{self.pretrained.name} cannot continue"),
            self.pretrained.lock,
            torch.inference_mode(),
        ):
            # The inputs that the library's own generate gives: a layer's cache need not count the tokens before.
            inputs = model.prepare_inputs_for_generation(
                ids.to(model.device),
                next_sequence_length=None if state.cache is None else 1,
                past_key_values=state.cache,
                is_first_iteration=state.cache is None,
                **to_device(model, inputs),
            )
            output = model(**inputs)
        return (
            output.logits[:, -1].cpu(),
            DecoderState(ids, getattr(output, "past_key_values", None)),
            None,
        )


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
    if seq2seq:
        prefix = tuple(target_ids(pretrained, inputs.target))
        source, mask = batch[pretrained.model.main_input_name], batch.get("attention_mask")
    else:
        tokenizer, length = tokenizer_of(pretrained), len(read)
        # Without its closing special tokens the model continues the text.
        while length > 1 and read.ids[length - 1] in (
            tokenizer.eos_token_id,
            tokenizer.sep_token_id,
        ):
            length -= 1
        read = Line(
            read.ids[:length],
            read.tokens[:length],
            read.special[:length],
            read.word[:length],
            read.segment[:length],
        )
        prefix = read.ids
        source, mask = torch.tensor([prefix[:-1]], dtype=torch.long), None
    if (room := pretrained.max_tokens - len(prefix)) < 1:
        raise PretrainedError(
            f"The text fills all {pretrained.max_tokens} tokens that {pretrained.name} reads, so it "
            "cannot continue; shorten it."
        )
    real = torch.ones(source.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    prompt = Prompt(source, real, prefix[-1], text=not seq2seq, prefix_tokens=prefix)
    return GenerationStart(prompt, read, room, batch if seq2seq else None, cut)


def generate_steps(
    pretrained: Pretrained, start: GenerationStart, settings: SearchSettings
) -> Iterator[Tree]:
    """The search tree after each step; the last one has the hypotheses, best first. ValueError for invalid settings.

    Beam search divides by length^α, as Hugging Face does.
    """
    max_tokens = min(settings.longest, start.room)
    model = DecoderAdapter(
        pretrained, start.prompt.prefix_tokens[:-1] if start.batch is not None else ()
    )
    return search_steps(
        model,
        start.prompt,
        settings,
        max_tokens,
        eos=end_tokens(pretrained),
        rules=logit_rules(pretrained, len(start.prompt.prefix_tokens), max_tokens),
        lp=length_power,
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
    line = text_line(tokenizer_of(pretrained), fed)
    generated = text_line(tokenizer_of(pretrained), tokens).tokens
    reading = Reading(AttentionTrace((), pretrained.name), line)
    if start.batch is not None:
        reading = replace(reading, source=start.read, target=line, produced=line)
    all_maps = maps_of(pretrained, output, recorder, reading)
    maps = []
    for item in all_maps:
        if item.kind == "self" and start.batch is not None:
            continue  # the encoder runs before the first step
        kind: Kind = "cross" if item.kind == "cross" else "causal"
        mask = item.mask
        if mask is not None and mask.shape[-2] > 1:
            mask = mask[..., first:, :]
        maps.append(
            replace(
                item,
                kind=kind,
                weights=item.weights[:, first:],
                queries=generated,
                mask=mask,
            )
        )
    trace = AttentionTrace(
        tuple(sorted(maps, key=lambda one: one.kind != "cross")), pretrained.name
    )
    note, sink = note_of(pretrained, recorder, [one.kind for one in all_maps]), has_sinks(recorder)
    return Continuation(
        output.logits[0, first:].float(), with_sink(trace) if sink else trace, note, sink
    )


def score_path(
    pretrained: Pretrained, inputs: ModelInputs, tokens: tuple[int, ...]
) -> Continuation:
    """All logits and the attention along one output of these inputs."""
    return score_continuation(pretrained, prepare_generation(pretrained, inputs), tokens)


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
