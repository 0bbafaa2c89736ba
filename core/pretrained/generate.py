"""A pretrained model goes on with a text, or answers one: the lab's own searches, on any model that says tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from core.decoding import Prompt, Sampling, Tree, beaming, no_repeat, sampling
from core.pretrained.base import Given, Line, Pretrained, PretrainedError
from core.pretrained.lines import STARTS_WORD, readable, text_line
from core.pretrained.reading import Batch, encode_source, forward, tokenizer_of, weights_of
from core.pretrained.rules import ends, rules, start_mark
from core.pretrained.stepped import Stepped
from core.trace import AttentionMap, AttentionTrace, Kind

Strategy = Literal["greedy", "beam", "sampling"]


@dataclass(frozen=True)
class Settings:
    """How the next tokens are found; a strategy takes what it needs. Their bounds are those of the searches.

    Beams are ranked by log-probability / length^`length_penalty`, as Hugging Face ranks them. `no_repeat` tokens in a
    row, the prompt's too, are never said twice; 0 forbids nothing. `longest` is the most that is said.
    """

    strategy: Strategy = "greedy"
    width: int = 4
    length_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    samples: int = 5
    seed: int = 0
    no_repeat: int = 0
    longest: int = 20

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


@dataclass(frozen=True, eq=False)
class Begun:
    """What a model has before it says anything: the prompt of the searches, what it read, and a sentence if cut.

    `room` is how many tokens it may say. `batch` is what an encoder reads, None where the model goes on with its text.
    """

    prompt: Prompt
    read: Line
    room: int
    batch: Batch | None = None
    cut: str | None = None


@dataclass(frozen=True, eq=False)
class Path:
    """One way to go on, all at once: the logits of each step, and where each step looked (a row a step)."""

    logits: Float[Tensor, "T V"]
    trace: AttentionTrace


def begin(pretrained: Pretrained, given: Given) -> Begun:
    """Read what was given. PretrainedError for a model that says no tokens, and for a text that leaves no room."""
    if pretrained.head not in ("next", "seq2seq"):
        raise PretrainedError(f"{pretrained.name} does not say one token after another; take a language model, such as "
                              "GPT-2, or an encoder–decoder.")
    batch, read, cut = encode_source(pretrained, given)
    if pretrained.head == "seq2seq":
        start = start_mark(pretrained)
        mask = batch.get("attention_mask")
        source = batch[pretrained.model.main_input_name]
        mask = torch.ones_like(source[:, :1, 0] if source.dim() > 2 else source) if mask is None else mask
        return Begun(Prompt(source, mask.bool(), start, said=(start,)), read, pretrained.max_tokens - 1, batch, cut)
    read = _open(pretrained, read)
    if (room := pretrained.max_tokens - len(read)) < 1:
        raise PretrainedError(f"The text fills all {pretrained.max_tokens} tokens that {pretrained.name} reads, so it "
                              "cannot go on; shorten it.")
    source = torch.tensor([read.ids[:-1]], dtype=torch.long)
    mask = torch.ones_like(source, dtype=torch.bool)
    return Begun(Prompt(source, mask, read.ids[-1], text=True, said=read.ids), read, room, None, cut)


def _open(pretrained: Pretrained, line: Line) -> Line:
    """The line without the marks that close it: a model goes on with a text that is not over."""
    tokenizer, length = tokenizer_of(pretrained), len(line)
    closing = {tokenizer.eos_token_id, tokenizer.sep_token_id}
    while length > 1 and line.ids[length - 1] in closing:
        length -= 1
    return Line(line.ids[:length], line.tokens[:length], line.special[:length], line.word[:length],
                line.segment[:length])


def generating(pretrained: Pretrained, begun: Begun, settings: Settings) -> Iterator[Tree]:
    """The tree of the search, step by step; at the last step it has its outputs, the best first.

    The same for the same seed, whatever else runs. ValueError for a setting out of bounds.
    """
    most = min(settings.longest, begun.room)
    common: dict[str, Any] = {"no_repeat": settings.no_repeat, "max_length": most, "eos": ends(pretrained),
                              "rules": rules(pretrained, len(begun.prompt.said), most)}
    model = Stepped(pretrained)
    if settings.strategy == "sampling":
        generator = torch.Generator().manual_seed(settings.seed)
        return sampling(model, begun.prompt, generator, samples=settings.samples, how=settings.sampling, **common)
    width, alpha = (settings.width, settings.length_penalty) if settings.strategy == "beam" else (1, 0.0)
    return beaming(model, begun.prompt, width=width, length_penalty=alpha, lp=power, **common)


def generate(pretrained: Pretrained, given: Given, settings: Settings) -> Tree:
    """The whole search at once."""
    *_, tree = generating(pretrained, begin(pretrained, given), settings)
    return tree


def power(length: int, alpha: float) -> float:
    """length^α, by which Hugging Face divides the log-probability of an output."""
    return float(length**alpha)


def follow(pretrained: Pretrained, begun: Begun, tokens: Sequence[int]) -> Path:
    """The steps that say these tokens, in one forward pass: logits, and the attention by which each was chosen.

    Maps of kind cross look at the source, those of kind causal at what was read and said before. ValueError for no
    token.
    """
    if not tokens:
        raise ValueError("There is no token to follow.")
    if begun.batch is not None:
        fed, first, name = [*begun.prompt.said, *tokens[:-1]], 0, "decoder_input_ids"
    else:
        fed, first, name = [*begun.read.ids, *tokens[:-1]], len(begun.read) - 1, "input_ids"
    with torch.no_grad():
        output, watch = forward(pretrained, {**(begun.batch or {}), name: torch.tensor([fed])})
    weights = weights_of(output, watch)
    said, columns = text_line(tokenizer_of(pretrained), tokens).tokens, text_line(tokenizer_of(pretrained), fed).tokens
    # A decoder of one's own makes its maps by looking back, whatever its layers call themselves.
    sides: list[tuple[Kind, tuple[str, ...], list[Tensor]]] = [("cross", begun.read.tokens, weights["cross"])]
    sides += [("causal", columns, weights["causal"] or ([] if begun.batch is not None else weights["self"]))]
    maps = [_map(kind, layer, one[0, :, first:], said, keys, first) for kind, keys, layers in sides
            for layer, one in enumerate(layers)]
    return Path(output.logits[0, first:].float(), AttentionTrace(tuple(maps), pretrained.name))


def _map(kind: Kind, layer: int, weights: Float[Tensor, "H T S"], rows: tuple[str, ...], columns: tuple[str, ...],
         first: int) -> AttentionMap:  # fmt: skip
    mask = None
    if kind == "causal":
        mask = torch.ones(weights.shape[1:], dtype=torch.bool).tril(first)[None].numpy()
    return AttentionMap(kind, layer, weights.detach().float().numpy(), rows, columns, mask)


def chances(pretrained: Pretrained, begun: Begun, settings: Settings, before: Sequence[int],
            logits: Float[Tensor, " V"]) -> Float[Tensor, " V"]:  # fmt: skip
    """The probabilities that the search takes a step from: the model's, less what is forbidden, and reshaped."""
    said = [(*begun.prompt.said, *before)]
    rule = rules(pretrained, len(begun.prompt.said), min(settings.longest, begun.room))
    allowed = rule(no_repeat(logits.log_softmax(-1)[None], said, settings.no_repeat), said)
    if settings.strategy == "sampling":
        allowed = settings.sampling.reshape(allowed)
    return allowed.softmax(-1)[0]


def text_of(pretrained: Pretrained, tokens: Sequence[int]) -> str:
    """Said tokens as running text, without marks."""
    return str(tokenizer_of(pretrained).decode(list(tokens), skip_special_tokens=True)).strip()


def names_of(pretrained: Pretrained, ids: Sequence[int]) -> dict[int, str]:
    """Each token by itself, as it is read; where the vocabulary marks the beginnings of words, ## continues one."""
    tokenizer, found = tokenizer_of(pretrained), dict.fromkeys(int(one) for one in ids)
    pieces = tokenizer.convert_ids_to_tokens(list(found))
    marked = any(piece.startswith(STARTS_WORD) for piece in pieces)
    special = set(tokenizer.all_special_tokens)
    return {one: piece if piece in special else
            readable(tokenizer, piece, not marked or piece.startswith(STARTS_WORD))
            for one, piece in zip(found, pieces, strict=True)}
