"""A pretrained model goes on with a text, or answers one: the lab's own searches, on any model that says tokens."""

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
from core.pretrained.maps import has_sinks, maps_of, note_of, with_sink
from core.pretrained.reading import Batch, encode_source, forward, target_ids, tokenizer_of
from core.trace import AttentionMap, AttentionTrace, Kind


@dataclass(frozen=True, eq=False)
class GenerationStart:
    """What a model has before it says anything: the prompt of the searches, what it read, and a sentence if cut.

    `room` is how many tokens it may say. `batch` is what an encoder reads, None where the model goes on with its text.
    """

    prompt: Prompt
    read: Line
    room: int
    batch: Batch | None = None
    cut: str | None = None


@dataclass(frozen=True, eq=False)
class Continuation:
    """One way to go on, all at once: the logits of each step, and where each step looked (a row a step).

    `note` is what one must know to read the maps. With `sink` their last column is no token: what went to none.
    """

    logits: Float[Tensor, "T V"]
    trace: AttentionTrace
    note: str | None = None
    sink: bool = False


def prepare_generation(pretrained: Pretrained, given: ModelInputs) -> GenerationStart:
    """Read what was given; a target is what a decoder has to begin with.

    PretrainedError for a model that says no tokens, and for a text that leaves no room.
    """
    if pretrained.head not in ("next", "seq2seq"):
        raise PretrainedError(f"{pretrained.name} does not say one token after another; take a language model, such as "
                              "GPT-2, or an encoder–decoder.")
    batch, read, cut = encode_source(pretrained, given)
    seq2seq = pretrained.head == "seq2seq"
    read = read if seq2seq else _open(pretrained, read)
    said = tuple(target_ids(pretrained, given.target)) if seq2seq else read.ids
    if (room := pretrained.max_tokens - len(said)) < 1:
        raise PretrainedError(f"The text fills all {pretrained.max_tokens} tokens that {pretrained.name} reads, so it "
                              "cannot go on; shorten it.")
    if not seq2seq:
        source = torch.tensor([said[:-1]], dtype=torch.long)
        mask = torch.ones_like(source, dtype=torch.bool)
        return GenerationStart(Prompt(source, mask, said[-1], text=True, prefix_tokens=said), read, room, None, cut)
    source, told = batch[pretrained.model.main_input_name], batch.get("attention_mask")
    mask = torch.ones(source.shape[:2], dtype=torch.bool) if told is None else told.bool()
    return GenerationStart(Prompt(source, mask, said[-1], prefix_tokens=said), read, room, batch, cut)


def _open(pretrained: Pretrained, line: Line) -> Line:
    """The line without the marks that close it: a model goes on with a text that is not over."""
    tokenizer, length = tokenizer_of(pretrained), len(line)
    closing = {tokenizer.eos_token_id, tokenizer.sep_token_id}
    while length > 1 and line.ids[length - 1] in closing:
        length -= 1
    return Line(line.ids[:length], line.tokens[:length], line.special[:length], line.word[:length],
                line.segment[:length])


def generate_steps(pretrained: Pretrained, begun: GenerationStart, settings: SearchSettings) -> Iterator[Tree]:
    """The tree of the search, step by step; at the last step it has its outputs, the best first.

    The same for the same seed, whatever else runs. ValueError for a setting out of bounds.
    """
    most = min(settings.longest, begun.room)
    common: dict[str, Any] = {"no_repeat": settings.no_repeat, "max_length": most, "eos": end_tokens(pretrained),
                              "rules": logit_rules(pretrained, len(begun.prompt.prefix_tokens), most)}
    model = DecoderAdapter(pretrained, begun.prompt.prefix_tokens[:-1] if begun.batch is not None else ())
    if settings.strategy == "sampling":
        generator = torch.Generator().manual_seed(settings.seed)
        return sample_steps(model, begun.prompt, generator, samples=settings.samples, sampling=settings.sampling,
                            **common)
    width, alpha = (settings.width, settings.length_penalty) if settings.strategy == "beam" else (1, 0.0)
    return beam_steps(model, begun.prompt, width=width, length_penalty=alpha, lp=length_power, **common)


def generate(pretrained: Pretrained, given: ModelInputs, settings: SearchSettings) -> Tree:
    """The whole search at once."""
    *_, tree = generate_steps(pretrained, prepare_generation(pretrained, given), settings)
    return tree


def length_power(length: int, alpha: float) -> float:
    """length^α, by which Hugging Face divides the log-probability of an output."""
    return float(length**alpha)


def score_continuation(pretrained: Pretrained, begun: GenerationStart, tokens: Sequence[int]) -> Continuation:
    """The steps that say these tokens, in one forward pass: logits, and the attention by which each was chosen.

    Maps of kind cross look at the source, those of kind causal at what was read and said before. ValueError for no
    token.
    """
    if not tokens:
        raise ValueError("There is no token to follow.")
    fed, first = [*begun.prompt.prefix_tokens, *tokens[:-1]], len(begun.prompt.prefix_tokens) - 1
    name = "input_ids" if begun.batch is None else "decoder_input_ids"
    with torch.no_grad():
        output, watch = forward(pretrained, {**(begun.batch or {}), name: torch.tensor([fed])})
    line, said = text_line(tokenizer_of(pretrained), fed), text_line(tokenizer_of(pretrained), tokens).tokens
    reading = Reading(AttentionTrace((), pretrained.name), line)
    if begun.batch is not None:
        reading = replace(reading, source=begun.read, target=line, produced=line)
    found = maps_of(pretrained, output, watch, reading)
    note = note_of(pretrained, watch, [one.kind for one in found])
    maps = [_rows(one, first, said) for one in found
            if begun.batch is None or one.kind != "self"]  # an encoder looks at its source before anything is said
    maps.sort(key=lambda one: one.kind != "cross")
    trace = AttentionTrace(tuple(maps), pretrained.name)
    sink = has_sinks(watch)
    return Continuation(output.logits[0, first:].float(), with_sink(trace) if sink else trace, note, sink)


def _rows(item: AttentionMap, first: int, said: tuple[str, ...]) -> AttentionMap:
    """The rows by which the new tokens were chosen, named by what was said there."""
    mask = item.mask if item.mask is None or item.mask.shape[-2] == 1 else item.mask[..., first:, :]
    kind: Kind = "cross" if item.kind == "cross" else "causal"
    return replace(item, kind=kind, weights=item.weights[:, first:], queries=said, mask=mask)


def step_probabilities(pretrained: Pretrained, begun: GenerationStart, settings: SearchSettings,
                       before: Sequence[int],
            logits: Float[Tensor, " V"]) -> Float[Tensor, " V"]:  # fmt: skip
    """The probabilities that the search takes a step from: the model's, less what is forbidden, and reshaped."""
    said = [(*begun.prompt.prefix_tokens, *before)]
    rule = logit_rules(pretrained, len(begun.prompt.prefix_tokens), min(settings.longest, begun.room))
    allowed = rule(no_repeat(logits.log_softmax(-1)[None], said, settings.no_repeat), said)
    if settings.strategy == "sampling":
        allowed = settings.sampling.reshape(allowed)
    return allowed.softmax(-1)[0]


def decode_text(pretrained: Pretrained, tokens: Sequence[int]) -> str:
    """Said tokens as running text, without marks."""
    return str(tokenizer_of(pretrained).decode(list(tokens), skip_special_tokens=True)).strip()


def token_names(pretrained: Pretrained, ids: Sequence[int]) -> dict[int, str]:
    """Each token by itself, as it is read; where the vocabulary marks the beginnings of words, ## continues one."""
    found = list(dict.fromkeys(int(one) for one in ids))
    return dict(zip(found, display_tokens(tokenizer_of(pretrained), found), strict=True))
