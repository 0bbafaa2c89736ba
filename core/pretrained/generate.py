"""An answer of a model, a token, a class or an embedding, in words; and a text that the lab's own algorithms generate."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.attention import Absent
from core.interpret.trace import AttentionTrace
from core.models.decoding import Prompt, SearchSettings, Tree, length_power, no_repeat, search_steps
from core.pretrained.attention_recorder import to_device
from core.pretrained.base import (
    STARTS_WORD,
    Head,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    Reads,
    display_tokens,
    marks_words,
    reject_if,
    text_config,
    text_line,
    wrap_errors,
)
from core.pretrained.forward import (
    READS,
    Batch,
    encode_source,
    end_tokens,
    forward,
    logit_rules,
    target_ids,
    tokenized,
    tokenizer_of,
)
from core.pretrained.load import sees_ahead
from core.pretrained.maps import has_sinks, maps_of, note_of, with_sink
from core.tokens import bare_piece, join_pieces

AnswerKind = Literal["next", "mask", "class", "span", "embedding"]


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer at one position: logits (V,), or a unit vector (C,) where the model has no head.

    Of a span they are those of every part of the text of `tokens`: the logit of its start plus that of its end.
    """

    kind: AnswerKind
    logits: Float[Tensor, " V"] | Absent = None
    vector: Float[Tensor, " C"] | Absent = None
    position: int = 0
    tokens: tuple[int, ...] = ()

    @property
    def output(self) -> str:
        """What its logits are of, as a noun."""
        return {"class": "class", "span": "part of the text"}.get(
            self.kind, "token of the vocabulary"
        )

    def span(self, output: int) -> list[int]:
        """The first and the last token of a part of the text; the parts that begin with the first token come first."""
        ends: list[int] = torch.triu_indices(len(self.tokens), len(self.tokens))[:, output].tolist()
        return ends

    @property
    def probabilities(self) -> Float[Tensor, " V"] | Absent:
        """The softmax of the logits; None for an embedding."""
        return None if self.logits is None else self.logits.softmax(-1)


class Candidate(NamedTuple):
    """One token or class of an answer: its id, its display name and its probability."""

    id: int
    word: str
    probability: float


AHEAD = (
    "does not generate text here: read at once, its last layer sees the tokens that follow, so it does not predict "
    "them; take a language model, such as GPT-2, or an encoder–decoder"
)


def answer_of(pretrained: Pretrained, batch: dict[str, Tensor], output: Any, position: int | None = None,
              row: int = 0) -> Answer:  # fmt: skip
    """The answer in a row of a model's output; it keeps its gradients."""
    if pretrained.head == "classify":
        return Answer("class", output.logits[row])
    if pretrained.head == "span":
        starts, ends = output.start_logits[row], output.end_logits[row]
        first, last = torch.triu_indices(len(starts), len(starts))
        return Answer(
            "span", starts[first] + ends[last], tokens=tuple(batch["input_ids"][row].tolist())
        )
    if pretrained.head == "none":
        for name in ("text_output", "text_model_output"):  # of FLAVA's and TIPSv2's texts
            output = getattr(output, name, None) or output
        states: Any = getattr(output, "last_hidden_state", None)
        pooled = getattr(output, "pooler_output", None)
        if states is None and pooled is not None and pooled.ndim == 2:  # of DPR
            return Answer("embedding", vector=torch.nn.functional.normalize(pooled[row], dim=0))
        reject_if(states is None and sees_ahead(pretrained.model), f"{pretrained.name} {AHEAD}.")
        reject_if(
            states is None or states.ndim != 3,
            f"{pretrained.name} is a {type(pretrained.model).__name__}, whose answer is not shown here; take a model "
            "whose last layer gives tokens, classes or an embedding.",
        )
        # The mean of all tokens but padding, at length 1: their sum will do. Reimers & Gurevych 2019, section 3
        mask = None if "decoder_input_ids" in batch else batch.get("attention_mask")
        real = states[row] if mask is None else states[row] * mask[row, :, None].to(states)
        return Answer("embedding", vector=torch.nn.functional.normalize(real.sum(0), dim=0))
    if position is None:
        position = -1
        if pretrained.head == "masked":
            position = mask_position(pretrained, batch["input_ids"])
        elif pretrained.head == "label":
            special = set(tokenizer_of(pretrained).all_special_ids)
            position = next(
                (
                    at
                    for at, one in enumerate(batch["input_ids"][row].tolist())
                    if one not in special
                ),
                0,
            )
    position = position % output.logits.shape[1]
    # Clone: a view would keep the logits of every position in memory.
    logits = output.logits[row, position].clone()
    kinds: dict[Head, AnswerKind] = {"masked": "mask", "label": "class"}
    return Answer(kinds.get(pretrained.head, "next"), logits, position=position)


def top_candidates(
    pretrained: Pretrained, answer: Answer, count: int = 10
) -> tuple[Candidate, ...]:
    """The `count` likeliest tokens or classes, likeliest first; empty for an embedding."""
    if (shares := answer.probabilities) is None:
        return ()
    best = shares.detach().topk(min(count, len(shares)))
    ids = best.indices.tolist()
    return tuple(map(Candidate, ids, display_names(pretrained, answer, ids), best.values.tolist()))


def display_names(pretrained: Pretrained, answer: Answer, ids: Sequence[int]) -> tuple[str, ...]:
    """The names of classes, or the text of tokens or of parts of the text, by their ids.

    ## marks a token that continues a word, in vocabularies that mark the beginning of words.
    """
    if answer.kind == "class":
        return tuple(str(pretrained.model.config.id2label.get(one, one)) for one in ids)
    if answer.kind == "span":
        decode = tokenizer_of(pretrained).decode
        return tuple(
            str(decode(list(answer.tokens[first : last + 1]))).strip()
            for first, last in map(answer.span, ids)
        )
    return display_tokens(tokenizer_of(pretrained), ids)


def maskable_words(line: Line) -> dict[int, str]:
    """The words of sentence A by the index that `mask_word` takes; PretrainedError when there are none."""
    words: dict[int, list[str]] = {}
    for token, word, segment in zip(line.tokens, line.word, line.segment, strict=True):
        if word is not None and segment == 0:
            words.setdefault(word, []).append(token)
    reject_if(not words, "The text has no word that could be masked; write one or more.")
    return {word: join_pieces(pieces) for word, pieces in words.items()}


def mask_word(pretrained: Pretrained, text: str, word: int) -> str:
    """The text with one word replaced by the mask token, by its index in `Line.word`.

    PretrainedError when the model fills no masks, the text has no such word, or its place in the text is not known.
    """
    mask = getattr(pretrained.tokenizer, "mask_token", None)
    reject_if(
        pretrained.head != "masked" or mask is None,
        f"{pretrained.name} cannot fill masks; take a model of masked words, such as BERT.",
    )
    encoding = tokenized(pretrained, text)
    line = text_line(pretrained.tokenizer, encoding["input_ids"], encoding, (text,))
    places = [at for at, one in enumerate(line.word) if one == word]
    reject_if(not places, f"The text has no word {word}.")
    reject_if(
        not encoding.is_fast,
        f"The tokenizer of {pretrained.name} does not say where its tokens stand in a text; write {mask} there.",
    )
    offsets = encoding.encodings[0].offsets
    start, end = offsets[places[0]][0], offsets[places[-1]][1]
    start = end - len(text[start:end].lstrip())
    return f"{text[:start]}{mask}{text[end:]}"


def mask_position(pretrained: Pretrained, ids: Tensor) -> int:
    """The position of the first mask token; PretrainedError when there is none."""
    token = pretrained.tokenizer.mask_token
    masked = (ids[0] == pretrained.tokenizer.mask_token_id).nonzero()
    reject_if(
        not len(masked), f"{pretrained.name} fills masks: write {token} where a word is missing."
    )
    return int(masked[0])


# Convert the names of classes and tokens to logit numbers, and back.


NUMBER = re.compile(r"(?:.*\s)?#(\d{1,9})", re.DOTALL)
QUOTED, LISTED = 40, 8  # characters of what was typed, and classes, that an error repeats


def output_name(pretrained: Pretrained, answer: Answer, output: int) -> str:
    """The name of a class or token, with its number where the name is ambiguous."""
    name = display_names(pretrained, answer, [output])[0]
    try:
        if output_id(pretrained, answer, name) == output:
            return name
    except PretrainedError:
        pass
    return f"{name} #{output}"


def output_id(pretrained: Pretrained, answer: Answer, text: str) -> int:
    """The class, token or part of the text of a name as `output_name` writes it, or of #number.

    PretrainedError for an unknown name, for a text of several tokens, and for an embedding.
    """
    text, named, quoted = text.strip(), pretrained.name, f"“{text.strip()[:QUOTED]}”"
    by_name = None
    if answer.logits is None:
        raise PretrainedError(
            f"The output of {named} is an embedding: it has no classes and no tokens."
        )
    reject_if(not text, f"Type a {answer.output}.")
    if answer.kind == "class":
        classes = {int(one): str(name) for one, name in pretrained.model.config.id2label.items()}
        matching = (
            [one for one, name in classes.items() if match in (name, name.casefold())]
            for match in (text, text.casefold())
        )
        by_name = next((ones[0] for ones in matching if len(ones) == 1), None)
    elif answer.kind == "span":
        ids, size = _encoded(pretrained, text), len(answer.tokens)
        starts = [at for at in range(size) if answer.tokens[at : at + len(ids)] == tuple(ids)]
        if ids and len(starts) == 1:  # after the parts that begin earlier
            by_name = sum(range(size - starts[0] + 1, size + 1)) + len(ids) - 1
    else:
        by_name = _token(pretrained, text)
    if by_name is not None and by_name < len(answer.logits):
        return by_name
    if number := NUMBER.fullmatch(text):
        return check_output(pretrained, answer, int(number[1]))
    if answer.kind == "class":
        names = display_names(pretrained, answer, range(min(LISTED, len(answer.logits))))
        more = ", …" if len(answer.logits) > LISTED else ""
        raise PretrainedError(
            f"{named} has no class {quoted}. Its {len(answer.logits):,} are "
            f"{', '.join(names)}{more}; a number such as #0 also names one."
        )
    reject_if(
        answer.kind == "span",
        f"{quoted} is not one part of the text that {named} reads. Type words that stand there once, or a number such "
        "as #0.",
    )
    ids, tokenizer = _encoded(pretrained, text), tokenizer_of(pretrained)
    reject_if(
        ids in ([], [tokenizer.unk_token_id]),
        f"{quoted} is not in the vocabulary of {named}. Type another token, or its number, "
        "such as #17.",
    )
    pieces = [*display_tokens(tokenizer, ids[:LISTED]), *(["…"] if len(ids) > LISTED else [])]
    raise PretrainedError(
        f"{quoted} is no token of {named}: its tokenizer cuts it into {len(ids)} "
        f"({', '.join(pieces)}). Type one token, or its number, such as #17."
    )


def check_output(pretrained: Pretrained, answer: Answer, output: int) -> int:
    """The number itself; PretrainedError unless the answer has such a logit."""
    reject_if(
        not 0 <= output < len(answer.logits),
        f"{pretrained.name} has no {answer.output.split()[0]} #{output}; the "
        f"numbers are 0 to {len(answer.logits) - 1:,}.",
    )
    return output


def _token(pretrained: Pretrained, text: str) -> int | None:
    """The token of that name in the vocabulary, else the one that the tokenizer makes of the text."""
    tokenizer, piece = tokenizer_of(pretrained), bare_piece(text)
    spelled = [text]
    if marks_words(tokenizer):
        begins = [f"{start}{text}" for start in STARTS_WORD]
        spelled = (
            [text, piece]
            if piece != text
            else [*begins, text]
            if text.isalnum()
            else [text, *begins]
        )
    for one in spelled:
        number = tokenizer.convert_tokens_to_ids(one)
        if number is not None and tokenizer.convert_ids_to_tokens(number) == one:
            return int(number)
    ids = _encoded(pretrained, text)
    return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None


def _encoded(pretrained: Pretrained, text: str) -> list[int]:
    """The tokens of a text after another word."""
    written = f" {text}" if text.isalnum() else bare_piece(text)
    return list(tokenized(pretrained, written, add_special_tokens=False)["input_ids"])


# The task a pretrained model was built for, by its head and its input type.


TaskKey = Literal["embed", "fill", "classify", "label", "span", "next", "translate", "picture"]


@dataclass(frozen=True)
class ModelTask:
    """A task, what a model needs for it, the lab's own model for it ("" where there is none), and one of the hub."""

    key: TaskKey
    name: str
    _: KW_ONLY
    does: str
    needs: str
    lab_model: str
    hub: str
    megabytes: int


MODEL_TASKS = (
    ModelTask(
        "embed",
        "Compare sentences",
        does="gives each text one vector, so that texts can be compared",
        needs="an encoder without a last layer",
        lab_model="all-MiniLM-L6-v2",
        hub="sentence-transformers/all-mpnet-base-v2",
        megabytes=438,
    ),
    ModelTask(
        "fill",
        "Fill a mask",
        does="predicts the missing word",
        needs="a last layer for masked words",
        lab_model="",
        hub="google-bert/bert-base-uncased",
        megabytes=440,
    ),
    ModelTask(
        "classify",
        "Classify a text",
        does="assigns a text to a class",
        needs="a last layer for classes",
        lab_model="",
        hub="distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        megabytes=268,
    ),
    ModelTask(
        "label",
        "Label tokens",
        does="assigns each token to a class",
        needs="a last layer for the classes of tokens",
        lab_model="",
        hub="dslim/bert-base-NER",
        megabytes=433,
    ),
    ModelTask(
        "span",
        "Answer a question",
        does="finds the part of a text (Sentence B) that answers a question",
        needs="a last layer for the start and the end of an answer",
        lab_model="",
        hub="distilbert/distilbert-base-cased-distilled-squad",
        megabytes=261,
    ),
    ModelTask(
        "next",
        "Continue a text",
        does="predicts the next token",
        needs="a last layer for next tokens",
        lab_model="induction",
        hub="distilbert/distilgpt2",
        megabytes=353,
    ),
    ModelTask(
        "translate",
        "Translate",
        does="reads one sequence and writes another",
        needs="an encoder and a decoder",
        lab_model="numbers",
        hub="google-t5/t5-small",
        megabytes=242,
    ),
    ModelTask(
        "picture",
        "Classify a picture",
        does="assigns a picture to a class",
        needs="patches and a last layer for classes",
        lab_model="digits",
        hub="google/vit-base-patch16-224",
        megabytes=346,
    ),
)


TASKS_OF: dict[Head, dict[Reads, TaskKey]] = {
    "seq2seq": dict.fromkeys(READS, "translate"),
    "masked": dict.fromkeys(READS, "fill"),
    "next": dict.fromkeys(READS, "next"),
    "classify": {"text": "classify", "pair": "classify", "picture": "picture", "sound": "classify"},
    "label": {"text": "label"},
    "span": {"text": "span"},
    "none": {"text": "embed", "picture": "embed"},
}


def task_of(pretrained: Pretrained) -> ModelTask:
    """The model's task; PretrainedError where its head gives no answer that is shown here."""
    key, reads = TASKS_OF[pretrained.head].get(pretrained.reads), pretrained.reads
    reject_if(
        key is None,
        f"{pretrained.name} gives no answer to a {reads} that is shown here; choose another model, such as numbers, "
        "induction or digits.",
    )
    task = next(one for one in MODEL_TASKS if one.key == key)
    heard = {"classify": ("Classify a sound", "assigns a sound to a class")}
    name, does = heard.get(str(key), ("Transcribe speech", "writes the text of a sound"))
    return replace(task, name=name, does=does) if reads == "sound" else task


def cosines(vectors: Sequence[Float[Tensor, " C"]]) -> Float[Tensor, "N N"]:
    """The cosine of each two of N vectors of length 1, −1 to 1."""
    both = torch.stack(list(vectors))
    return both @ both.T


def most_similar(table: Float[Tensor, "N N"], one: int | None = None) -> tuple[int, int]:
    """The indices of the most similar pair, or of `one` and its most similar other; ValueError for fewer than two."""
    if len(table) < 2:
        raise ValueError("There is nothing to compare with; give two or more.")
    others = table.masked_fill(torch.eye(len(table), dtype=torch.bool), -torch.inf)
    if one is not None:
        return one, int(others[one].argmax())
    # Rounding makes the two halves differ in the last bit.
    first, second = sorted(divmod(int(others.argmax()), len(table)))
    return first, second


# A pretrained model behind the decoder interface of `core.models.decoding`: encode a source, then feed one token a row.


# Families whose cache, in the installed transformers, does not give what the whole text gives: they run without it.
WRONG_CACHES = ("minimax", "moshi", "nemotron_h", "zamba2")
# The encoder's states, or the ids themselves where there is no encoder; and which of them are no padding.
Encoded = tuple[Tensor, Bool[Tensor, "B X"]]
Hooks = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class DecoderState:
    """The ids that each row has been fed, and the model's key–value cache, if it has one."""

    ids: Int[Tensor, "B T"]
    cache: Any = None

    def pick(self, rows: Int[Tensor, " R"]) -> Self:
        """Select rows; the cache belongs to this search alone, so it is reordered in place, or made anew (xLSTM's)."""
        cache, same = self.cache, torch.arange(len(self.ids), device=rows.device)
        if not torch.equal(rows, same):
            cache = cache if hasattr(cache, "reorder_cache") else None
            if cache is not None:
                cache.reorder_cache(rows)
        return replace(self, ids=self.ids[rows], cache=cache)


class DecoderAdapter:
    """A decoder for core.models.decoding over a shared model, always in eval mode; each step holds the model's lock."""

    def __init__(
        self, pretrained: Pretrained, before: Sequence[int] = (), hooks: Hooks = nullcontext
    ) -> None:
        """`before` is the prefix of an encoder–decoder's decoder, before the search's first token; `hooks` are of a step."""
        self.pretrained, self.before, self.hooks = pretrained, list(before), hooks
        self.two = pretrained.model.config.is_encoder_decoder
        taken = inspect.signature(pretrained.model.forward).parameters
        # Logits of the last position alone: those of a long prompt would take most of a step's memory.
        self.more: dict[str, Any] = {
            "use_cache": text_config(pretrained.model).model_type not in WRONG_CACHES
        } | ({"logits_to_keep": 1} if "logits_to_keep" in taken else {})
        self.encoder_output: type = dict
        self.positions = "position_ids" in taken

    def encode(self, source: Tensor, source_mask: Bool[Tensor, "B S"]) -> Encoded:
        """Run the encoder, where there is one."""
        model = self.pretrained.model
        if not self.two:
            return source, source_mask
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
        return states, (source_mask if mask else torch.ones(states.shape[:2], dtype=torch.bool))

    def start(self, memory: Encoded) -> DecoderState:
        """The state before the first step; a prompt is fed together with the first token."""
        return DecoderState(
            torch.tensor([self.before], dtype=torch.long) if self.two else memory[0]
        )

    def step(
        self, memory: Encoded, state: DecoderState, tokens: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B V"], DecoderState, None]:
        """The logits of the next token of each row."""
        ids = torch.cat((state.ids, tokens[:, None]), dim=1)
        model, inputs = self.pretrained.model, {**self.more}
        if self.two:
            # A copy, to which Moonshine's decoder adds positions in place.
            inputs["encoder_outputs"] = self.encoder_output(
                last_hidden_state=memory[0].to(model.device, copy=True)
            )
            if self.pretrained.reads == "pair":
                inputs["attention_mask"] = memory[1].long()
        elif self.positions:
            inputs["position_ids"] = torch.arange(ids.shape[1]).expand_as(ids)
        with (
            wrap_errors(f"{self.pretrained.name} cannot continue"),
            self.pretrained.lock,
            self.hooks(),
            torch.inference_mode(),
        ):
            # The inputs that the library's own generate gives: a layer's cache need not count the tokens before.
            inputs = model.prepare_inputs_for_generation(
                ids.to(model.device),
                next_sequence_length=None if state.cache is None else 1,
                cache=state.cache,
                is_first_iteration=state.cache is None,
                **to_device(model, inputs),
            )
            output = model(**inputs)
        return (
            output.logits[:, -1].cpu(),
            DecoderState(ids, getattr(output, "cache", None)),
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
        raise PretrainedError(
            f"{pretrained.name} {AHEAD}."
            if sees_ahead(pretrained.model)
            else f"{pretrained.name} does not generate text{why}; take a language model, such as GPT-2, "
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
    reject_if(
        (room := pretrained.max_tokens - len(prefix)) < 1,
        f"The text fills all {pretrained.max_tokens:,} tokens that {pretrained.name} reads, so it "
        "cannot continue; shorten it.",
    )
    real = torch.ones(source.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    return GenerationStart(
        Prompt(source, real, prefix[-1], text=not seq2seq, prefix_tokens=prefix),
        read,
        room,
        batch if seq2seq else None,
        cut,
    )


def generate_steps(
    pretrained: Pretrained,
    start: GenerationStart,
    settings: SearchSettings,
    hooks: Hooks = nullcontext,
) -> Iterator[Tree]:
    """The search tree after each step; the last one has the hypotheses, best first. ValueError for invalid settings.

    Beam search divides by length^α, as Hugging Face does. `hooks` are entered for each step, under the model's lock.
    """
    max_tokens = min(settings.longest, start.room)
    return search_steps(
        DecoderAdapter(
            pretrained,
            start.prompt.prefix_tokens[:-1] if start.batch is not None else (),
            hooks,
        ),
        start.prompt,
        settings,
        max_tokens,
        eos=end_tokens(pretrained),
        rules=logit_rules(pretrained, len(start.prompt.prefix_tokens), max_tokens),
        lp=length_power,
    )


def generate(pretrained: Pretrained, inputs: ModelInputs, settings: SearchSettings) -> Tree:
    """The whole search for a continuation, the best output first."""
    *_, tree = generate_steps(pretrained, prepare_generation(pretrained, inputs), settings)
    return tree


def score_continuation(
    pretrained: Pretrained, start: GenerationStart, tokens: Sequence[int]
) -> Continuation:
    """The logits and attention of the steps that generate these tokens, from one forward pass.

    Keys of cross maps are the source; keys of causal maps are the prompt and the tokens generated before. There are no
    maps without attention. ValueError for no token.
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
    all_maps = maps_of(pretrained, output, recorder, reading) if pretrained.has_weights else ()
    maps = tuple(
        replace(
            item,
            kind="cross" if item.kind == "cross" else "causal",
            weights=item.weights[:, first:],
            queries=generated,
            mask=None if item.mask is None else item.visible[:, first:],
        )
        for item in sorted(all_maps, key=lambda one: one.kind != "cross")
        if item.kind != "self" or start.batch is None  # the encoder runs before the first step
    )
    trace = AttentionTrace(maps, pretrained.name)
    note, sink = note_of(pretrained, recorder, [one.kind for one in all_maps]), has_sinks(recorder)
    return Continuation(
        output.logits[0, first:].float(), with_sink(trace) if sink else trace, note, sink
    )


def score_path(
    pretrained: Pretrained, inputs: ModelInputs, tokens: tuple[int, ...]
) -> Continuation:
    """The logits and the attention of each step of one output."""
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
