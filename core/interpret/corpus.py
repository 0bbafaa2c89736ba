"""Every head over a corpus: what is measured of a text, statistics, examples, queries and keys in one plane.

A corpus is a run: the texts of a config, and the folder that a worker fills. `attention-lab corpus FOLDER` measures one
from a shell, by default MiniLM on the lab's sentences.
"""

import csv
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import typer
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core import command_line
from core.entries import ConfigError, quote, refuse_if
from core.files import CORPORA, read_object, runs_folder, write_atomically
from core.interpret import trace
from core.interpret.circuits import copying_scores, read_heads, read_vocabularies
from core.interpret.evidence import Quantity, Question, ask, layer_attentions, quantity_values
from core.interpret.patching import rerun_answers
from core.interpret.roles import (
    CLARK,
    MIN_KEYS,
    ROLES,
    SENTENCES,
    XIAO,
    Role,
    RoleScores,
    RoleSums,
    Text,
    ranked_heads,
    read_text,
    role_sums,
    share_used,
    stack_layers,
)
from core.interpret.trace import Head, Kind, to_numpy
from core.pretrained import (
    LAB_MODELS,
    Answer,
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    encode,
    encode_source,
    load_folder,
    reject_if,
)
from core.pretrained.finetune import LAB, MINILM, folder_of, name_of, own_rows, resolve
from core.runs.folder import Status
from core.runs.runs import Run, new_id
from core.runs.worker import work as work_on
from core.seeding import seeded_generator
from core.serialization import check_types, read
from core.tasks import TaskConfig, make_task, reading
from core.tasks.translation import Digits, digits

Source = Literal["own", "training", "texts"]
Split = Literal["lines", "paragraphs"]
MAX_TEXTS = 1_000
DEFAULT_TEXTS = 300


@dataclass(frozen=True)
class MeasurementConfig:
    """What a worker measures of a model; ConfigError for values that cannot be measured. `job` names it in run.json."""

    job: ClassVar[str]
    more: ClassVar[dict[str, Any]] = {}  # values with which a measurement holds all of this one
    model: str

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The config in a dict; ConfigError for an unknown name or an invalid value."""
        return read(data, cls, f"A measurement ({cls.job})")

    @classmethod
    def of(cls, run: Run) -> Self:
        """The measurement's config; ConfigError when the file does not describe one."""
        return cls.from_json(run.metadata().get(cls.job))

    def fits(self, run: Run) -> bool:
        """Whether a measurement is of this config, or holds more."""
        try:
            return self.of(run) in (self, replace(self, **self.more))
        except (ConfigError, TypeError):
            return False

    def prepare(self, folder: Path) -> dict[str, Any]:
        """What run.json says of it, after the files that a worker reads; ConfigError where there is nothing to measure."""
        raise NotImplementedError

    def create(self, path: Path | None = None) -> Run:
        """A new measurement under a fresh id, or exactly at `path`. PretrainedError without the model."""
        folder_of(self.model)
        run = Run(path or corpora_folder() / new_id())
        run.create(**{self.job: asdict(self)}, **self.prepare(run.path))
        return run


@dataclass(frozen=True)
class CorpusConfig(MeasurementConfig):
    """A model and a corpus; ConfigError for values that cannot be measured.

    `model` is named as in a fine-tuning run. `source` is "own" (the lab's 300 sentences), "training" (what a model of
    the lab was trained on) or "texts": `data`, one text a line or a paragraph, by `split`. At most `count` texts are
    measured. With `ablation`, every head is switched off on every text, which costs a pass a head.
    """

    job = "corpus"
    more = {"ablation": True}
    model: str = MINILM
    source: Source = "own"
    data: str = ""
    split: Split = "lines"
    kind: Literal["self", "causal"] = "self"
    count: Annotated[int, Meta(ge=1, le=MAX_TEXTS)] = DEFAULT_TEXTS
    ablation: bool = False

    def __post_init__(self) -> None:
        check_types(self)

    def prepare(self, folder: Path) -> dict[str, Any]:
        inputs, notes = inputs_of(self)
        lines = "".join(f"{to_json(item)}\n" for item in inputs)
        write_atomically(folder / INPUTS, lines.encode())
        return {
            "texts": len(inputs),
            "notes": notes,
            "measures": [one.key for one in MEASURES],
            "roles": [one.key for one in ROLES],
        }


ABLATION, ABLATION_LOGIT = "ablation", "ablation_logit"
MICHEL = "[Michel et al. 2019](https://arxiv.org/abs/1905.10650)"


@dataclass(frozen=True)
class Measure:
    """A measure of a head: what it is a number of, the rule for its rows (None for roles and ablation), its source."""

    key: str
    name: str
    _: KW_ONLY
    meaning: str
    unit: str
    rows: Callable[[Float[np.ndarray, "H T S"], Text], Float[np.ndarray, "H T"]] | None
    role: Role | None
    source: str


MEASURES: tuple[Measure, ...] = (
    Measure(
        "entropy",
        "Entropy",
        meaning="how evenly weights are spread",
        unit="nats",
        rows=lambda weights, text: trace.entropy(weights),
        role=None,
        source=CLARK,
    ),
    Measure(
        "distance",
        "Distance",
        meaning="tokens between query and key",
        unit="tokens",
        rows=lambda weights, text: (weights * np.abs(text.distance)).sum(-1),
        role=None,
        source="[Vig and Belinkov 2019](https://arxiv.org/abs/1906.04284)",
    ),
    Measure(
        "sink",
        "Sink share",
        meaning="the weight on the first token and on special tokens",
        unit="weight",
        # What the ordinary keys leave of a row, that of a learned sink, too
        rows=lambda weights, text: (
            1 - weights[..., 1:][..., ~np.array(text.line.special[1:], dtype=bool)].sum(-1)
        ).clip(0, 1),
        role=None,
        source=XIAO,
    ),
    *(
        Measure(
            role.key,
            role.name,
            meaning=role.meaning,
            unit="weight" if role.targets else "share of keys",
            rows=None,
            role=role,
            source=role.source,
        )
        for role in ROLES
    ),
    Measure(
        ABLATION,
        "Ablation effect",
        meaning="what the answer loses when the head is switched off",
        unit="loss of the answer",
        rows=None,
        role=None,
        source=MICHEL,
    ),
    Measure(
        ABLATION_LOGIT,
        "Ablation effect on the logit",
        meaning="what the logit of the answer loses when the head is switched off",
        unit="loss of the logit",
        rows=None,
        role=None,
        source=MICHEL,
    ),
)
COPYING = Measure(
    "copying",
    "OV copying",
    meaning="whether attending to a token raises its own logit, by the weights alone",
    unit="Σλ/Σ|λ|",
    rows=None,
    role=None,
    source="[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)",
)
AXES = (*MEASURES, COPYING)
INDEX = {measure.key: index for index, measure in enumerate(MEASURES)}
BY_KEY = {measure.key: measure for measure in AXES}


def measure_text(reading: Reading, kind: Kind) -> tuple[Float[np.ndarray, "M L H"], RoleSums]:
    """Every measure of every head on one text, in the order of MEASURES, and the sums of its roles.

    nan where a text cannot show a measure, where a layer lacks a head, and for the ablation, which is measured apart.
    """
    maps, text = reading.trace.of(kind).maps, Text(reading.lines(kind)[0])
    roles = role_sums(reading, kind)
    values = np.full((len(MEASURES), *roles.score.shape[1:]), np.nan)
    values[[INDEX[role.key] for role in ROLES]] = roles.scores(kind, ()).score
    for measure in MEASURES:
        if measure.rows is not None and text.ordinary.any():
            values[INDEX[measure.key]] = stack_layers(
                [measure.rows(item.shares, text)[:, text.ordinary].mean(1) for item in maps]
            )
    return values, roles


# Means over texts, with their 95 % intervals: no map outlives its text.


MAX_TOKENS = 128  # of a text: the bound of the maps in memory
CONFIDENCE = 0.95
QUANTITIES: tuple[Quantity, ...] = ("probability", "logit")
MAX_ROWS, CELLS = 96, 8 * MAX_TOKENS**2  # of a batch in which heads are switched off

Values = Float[np.ndarray, "M L H"]


def half_interval(values: np.ndarray, words: Sequence[Sequence[str]] = ()) -> np.ndarray:
    """Half of the 95 % interval of a mean over the first axis, without what is masked: Student's t times the standard
    error; nan of fewer than two values.

    Values that share a word of a list (`words`: a list a row, each with the word of every value) are not independent.
    Each word is left out once, and the variances of the lists are added up, which is no less than what is left after
    their overlap: the jackknife of MacKinnon, Nielsen and Webb 2024 (arXiv 2406.08880), with Satterthwaite's (1946) degrees
    of freedom.
    """
    from scipy.special import stdtrit

    values = np.ma.asarray(values)
    n, mean = values.count(0), values.mean(0)
    variance, freedom = np.ma.filled(values.var(0, ddof=1), np.nan) / n, n - 1
    if lists := [np.array(each) for each in words if len({*each}) > 1]:
        left = [[values[each != word].mean(0) for word in np.unique(each)] for each in lists]
        parts = [(1 - 1 / len(one)) * ((np.ma.array(one) - mean) ** 2).sum(0) for one in left]
        variance = np.ma.array(parts).sum(0)
        squares = [part**2 / (len(one) - 1) for part, one in zip(parts, left, strict=True)]
        # A variance of 0 has no degrees of freedom
        freedom = np.ma.filled(variance**2 / np.ma.array(squares).sum(0), 1)
    return np.asarray(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(variance))


@dataclass(eq=False)
class Corpus:
    """The measures of every head over the texts so far.

    `values` are those of each text that could be read, and `measures` their order. `failed` are the places of the
    others, `error` says why of the first; `cut` counts texts of which a part was left out. `seconds` is the mean time
    of a text in the last worker.
    """

    roles: RoleSums | None = None
    numbers: tuple[int, ...] = ()
    texts: int = 0
    cut: int = 0
    failed: list[int] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    values: list[Values] = field(default_factory=list)
    measures: Sequence[str] = tuple(INDEX)

    @property
    def read(self) -> int:
        """The number of texts that could be read."""
        return self.texts - len(self.failed)

    def each(self, measure: str) -> np.ma.MaskedArray:
        """A measure on each text that could be read (N, L, H), masked where a text cannot show it.

        An ablation effect is what the answer loses without the head, above 0 where the head helps.
        """
        # Before there was that of the logit, the ablation was measured without its sign
        needed = ABLATION_LOGIT if measure == ABLATION else measure
        if measure not in self.measures or needed not in self.measures:
            return np.ma.masked_all((len(self.values), *self.values[0].shape[1:]))
        values, logits = (
            np.array([one[self.measures.index(name)] for one in self.values], float)
            for name in (measure, needed)
        )
        if needed == ABLATION_LOGIT:
            # Measured is a change; here, as everywhere, above 0 the head helps. 1 − cosine of an embedding, which has
            # no logit, is a loss already
            values = np.where(np.isnan(logits), values, 0.0 - values)
        return np.ma.masked_invalid(values)

    def mean(self, measure: str) -> Float[np.ndarray, "L H"]:
        """The mean of a measure over texts; nan where no text can show it."""
        return self.each(measure).mean(0).filled(np.nan)

    def texts_of(self, measure: str) -> Int[np.ndarray, "L H"]:
        """The number of texts that show a measure."""
        return np.asarray(self.each(measure).count(0))

    def interval(self, measure: str) -> Float[np.ndarray, "L H"]:
        """Half of the 95 % interval of that mean; nan for fewer than two texts."""
        return half_interval(self.each(measure))

    def values_of(self, measure: str, head: Head) -> Float[np.ndarray, " N"]:
        """A measure of one head on each text so far; nan where a text cannot show it or could not be read."""
        values = np.full(self.texts, np.nan, dtype=np.float32)
        if self.read:
            read = np.setdiff1d(np.arange(self.texts), self.failed)
            values[read] = self.each(measure)[:, *head].filled(np.nan)
        return values


def measure_texts(
    pretrained: Pretrained,
    inputs: Sequence[ModelInputs],
    kind: Kind | None = None,
    ablation: bool = False,
    corpus: Corpus | None = None,
) -> Iterator[Corpus]:
    """The corpus after each further text, in order; a text that cannot be read is one of its failed ones.

    At most 128 tokens of a text are read, so that no more than the maps of 128 tokens are in memory. PretrainedError
    when the model has no attention of that kind.
    """
    short, corpus = shorten(pretrained), corpus or Corpus()
    for item in inputs:
        corpus.texts += 1
        try:
            reading = read_text(short, item, kind or "self")
            kind = kind or reading.trace.kinds[0]
        except PretrainedError as error:
            corpus.failed.append(corpus.texts - 1)
            corpus.error = corpus.error or str(error)
            yield corpus
            continue
        trace = reading.trace.of(kind)
        kinds = " and ".join(one for one in reading.trace.kinds if one != "cross")
        reject_if(
            not trace.maps,
            f"{pretrained.name} has no attention of kind {quote(kind)}; it has {kinds or 'only cross'}.",
        )
        values, roles = measure_text(reading, kind)
        if ablation:
            values[[INDEX[ABLATION], INDEX[ABLATION_LOGIT]]] = head_changes(
                short, item, reading, kind
            )
        corpus.cut += reading.cut is not None
        corpus.numbers = trace.numbers
        corpus.values.append(values)
        corpus.roles = roles if corpus.roles is None else corpus.roles + roles
        yield corpus


def shorten(pretrained: Pretrained) -> Pretrained:
    """The model with at most 128 tokens of a text."""
    return replace(pretrained, max_tokens=min(pretrained.max_tokens, MAX_TOKENS))


def head_changes(pretrained: Pretrained, inputs: ModelInputs, reading: Reading, kind: Kind
                 ) -> Float[np.ndarray, "2 L H"]:  # fmt: skip
    """How the answer changes without each head: the probability and the logit of the likeliest answer without the head
    less with it, below 0 where the head helps; `Corpus.each` turns the sign. Of an embedding 1 − cosine, and no logit.
    Michel et al. 2019, section 3. nan where the model gives no answer, as without a mask to fill.

    Many heads are switched off in one batch, a row each: as many as keep its maps below those of 8 texts of 128 tokens.
    """
    trace = reading.trace.of(kind)
    heads = [(item.layer, head) for item in trace.maps for head in range(len(item.weights))]
    changes = np.full((2, *trace.shape), np.nan)
    rows = max(1, min(MAX_ROWS, CELLS // max(item.weights[0].size for item in reading.trace.maps)))
    with suppress(PretrainedError):
        baseline = ask(pretrained, Question(inputs))
        off = [
            (0, kind, layer, head, torch.zeros(1, len(trace.map(layer).weights), 1))
            for layer, head in heads
        ]

        def measured(answer: Answer) -> list[float]:
            if answer.logits is None:
                return [1 - float(baseline.target_value(answer)), np.nan]
            return [float(quantity_values(answer, one)[baseline.id]) for one in QUANTITIES]

        without = np.array([*map(measured, rerun_answers(baseline, off, rows))])
        changes[:, *np.transpose(heads)] = (without - measured(baseline.answer)).T
    return changes


@dataclass(frozen=True, eq=False)
class Axis:
    """One measure of every head (L, H): the means over texts, and half of their 95 % intervals (0 where exact)."""

    key: str
    mean: Float[np.ndarray, "L H"]
    half: Float[np.ndarray, "L H"]

    @property
    def measure(self) -> Measure:
        return BY_KEY[self.key]


def copying(pretrained: Pretrained, kind: Kind, shape: tuple[int, int]) -> Axis:
    """The copying score of every head, −1 to 1, from the weights alone.

    nan where the model has no tokens, or no matrices of single heads.
    """
    scores = np.full(shape, np.nan)
    with suppress(PretrainedError):
        vocabularies = read_vocabularies(pretrained)
        for heads in read_heads(pretrained):
            if heads.kind == kind and (values := copying_scores(heads, vocabularies)) is not None:
                scores[heads.layer, : len(values)] = to_numpy(values)
    return Axis(COPYING.key, scores, np.zeros(shape))


DECILES = tuple(step / 10 for step in range(1, 10))


@dataclass(frozen=True, eq=False)
class MarkedRow:
    """One row of a head's map on one text: its weights, the key with most of them, and the keys that a role expects.

    `value` is the measure of this row alone; nan where the measure has no rows.
    """

    line: Line
    query: int
    key: int
    weights: Float[np.ndarray, " T"]
    expected: Bool[np.ndarray, " T"]
    value: float


def ranked(values: Float[np.ndarray, " N"]) -> Int[np.ndarray, " K"]:
    """The texts that show a measure, the one with the largest value first."""
    order = np.argsort(-values, kind="stable")
    return np.asarray(order[~np.isnan(values[order])])


def decile_texts(values: Float[np.ndarray, " N"]) -> list[tuple[float, int]]:
    """For each decile from 0.1 to 0.9 the text whose value is nearest to it; each text once."""
    texts: dict[int, float] = {}
    for share in () if np.isnan(values).all() else DECILES:
        texts.setdefault(int(np.nanargmin(np.abs(values - np.nanquantile(values, share)))), share)
    return [(share, text) for text, share in texts.items()]


def marked_row(
    reading: Reading, kind: Kind, measure: Measure, head: tuple[int, int], near: float
) -> MarkedRow | None:
    """The row whose measure is nearest to a value, the largest for infinity; None where no row counts.

    Of a measure that has no rows, as the ablation, a row's largest weight.
    """
    item, (line, _) = reading.trace.of(kind).maps[head[0]], reading.lines(kind)
    text, weights, seen = Text(line), item.shares, item.visible.any(0)
    expected, counts = np.zeros_like(seen), text.ordinary
    if measure.role is None:
        rows = measure.rows(weights, text) if measure.rows else weights.max(-1)
    elif measure.role.targets is None:
        rows = share_used(weights, seen.sum(-1))
        counts = counts & (seen.sum(-1) >= MIN_KEYS)
    else:
        expected = measure.role.targets(text) & seen
        rows = (weights * expected).sum(-1)
        counts = counts & expected.any(-1) & (seen.sum(-1) > 1)
    values = np.where(counts, rows[head[1]], np.nan)
    if np.isnan(values).all():
        return None
    query = int(np.nanargmin(np.abs(values - np.clip(near, np.nanmin(values), np.nanmax(values)))))
    row = weights[head[1], query]
    return MarkedRow(line, query, int(row.argmax()), row, expected[query], float(values[query]))


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """The queries and keys of the layers of a kind that have them, over several texts: an array (H or G, N, D) a layer.

    `tokens` are the N tokens, `positions` their places in their texts, and `texts` the number of its text.
    """

    q: Mapping[int, Float[np.ndarray, "H N D"]]
    k: Mapping[int, Float[np.ndarray, "G N D"]]
    tokens: tuple[str, ...]
    positions: Int[np.ndarray, " N"]
    texts: Int[np.ndarray, " N"]

    def head(
        self, layer: int, head: int
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N D"]]:
        """The queries of one head, and the keys that they meet. PretrainedError for a layer without softmax."""
        reject_if(
            layer not in self.q,
            "This layer has no softmax, so it has no queries and keys. Take a head of a layer with attention.",
        )
        group = head // (len(self.q[layer]) // len(self.k[layer]))
        return self.q[layer][head], self.k[layer][group]


@dataclass(frozen=True, eq=False)
class JointMap:
    """Queries and keys (N, 2) in the plane of most variance, and the share of variance of each axis.

    `scale` multiplied the queries and divided the keys, which leaves every product q·k as it is.
    """

    q: Float[np.ndarray, "N 2"]
    k: Float[np.ndarray, "N 2"]
    share: tuple[float, float]
    scale: float


class HeadPlane(NamedTuple):
    """The joint map of one head, and the correlation of −distance² in it with q·k, over all pairs of one text; nan where
    one is constant."""

    points: JointMap
    near: float


def head_plane(vectors: HeadVectors, layer: int, head: int) -> HeadPlane:
    """The queries and keys of one head in the plane of most variance, and how well nearness in it shows q·k."""
    q, k = vectors.head(layer, head)
    points = joint_map(q, k)
    same = vectors.texts[:, None] == vectors.texts[None, :]
    distance = ((points.q[:, None] - points.k[None]) ** 2).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return HeadPlane(points, float(np.corrcoef(-distance[same], (q @ k.T)[same])[0, 1]))


def head_vectors(
    pretrained: Pretrained, inputs: Sequence[ModelInputs], kind: Kind, max_tokens: int
) -> HeadVectors:
    """The queries and keys of every head on these texts, until they have `max_tokens` tokens.

    PretrainedError where they are not recorded.
    """
    return join_vectors(
        [
            text_vectors(pretrained, item, kind)
            for item in first_texts(pretrained, inputs, max_tokens)
        ]
    )


def first_texts(
    pretrained: Pretrained, inputs: Sequence[ModelInputs], max_tokens: int
) -> list[ModelInputs]:
    """The first texts, until the model reads `max_tokens` tokens of them."""
    sizes = (len(encode_source(pretrained, item)[1]) for item in inputs)
    before = takewhile(lambda tokens: tokens < max_tokens, accumulate(sizes, initial=0))
    return [item for _, item in zip(before, inputs, strict=False)]


def text_vectors(pretrained: Pretrained, item: ModelInputs, kind: Kind) -> HeadVectors:
    """The queries and keys of every head on one text. PretrainedError where they are not recorded."""
    attentions = layer_attentions(pretrained, item)
    layers = {layer: one for (of, layer), one in attentions.items() if of == kind}
    reject_if(
        not layers,
        f"{pretrained.name} has no layer of this kind whose queries and keys can be read.",
    )
    line = encode_source(pretrained, item)[1]
    if kind == "causal":
        line = encode(pretrained, item)[2] or line  # an encoder–decoder may have to generate it
    q, k = ({layer: to_numpy(getattr(one, name)) for layer, one in layers.items()} for name in "qk")
    places = np.arange(len(line))
    return HeadVectors(q, k, line.tokens, places, np.zeros_like(places))


def join_vectors(parts: Sequence[HeadVectors]) -> HeadVectors:
    """The vectors of all texts, one text after another."""
    q, k = (
        {
            layer: np.concatenate([getattr(part, name)[layer] for part in parts], 1)
            for layer in parts[0].q
        }
        for name in "qk"
    )
    return HeadVectors(
        q,
        k,
        tuple(token for part in parts for token in part.tokens),
        np.concatenate([part.positions for part in parts]),
        np.repeat(np.arange(len(parts)), [len(part.tokens) for part in parts]),
    )


def joint_map(q: Float[np.ndarray, "N D"], k: Float[np.ndarray, "N D"]) -> JointMap:
    """The first two principal components of queries and keys together.

    Both are made to overlap first without changing any weight: keys are moved to the mean of the queries, which adds
    the same number to all scores of a query, and both get the same standard deviation.
    """
    q, k = q.astype(np.float64), k.astype(np.float64)
    stds = [float(one.std(0).mean()) for one in (q, k)]
    scale = (stds[1] / stds[0]) ** 0.5 if min(stds) > 0 else 1.0
    q, k = q * scale, k / scale
    both = np.concatenate([q, k - k.mean(0) + q.mean(0)])
    both -= both.mean(0)
    _, sizes, axes = np.linalg.svd(both, full_matrices=False)
    # One sign, whatever the library takes
    axes = axes[:2] * np.where(axes[:2].sum(1, keepdims=True) < 0, -1, 1)
    points, total = both @ axes.T, float((sizes**2).sum()) or 1.0
    first, second = (float(size**2) / total for size in sizes[:2])
    return JointMap(points[: len(q)], points[len(q) :], (first, second), scale)


# The texts of a corpus: the lab's own sentences, the training data of its models, or a person's lines.


LONGEST = 1_000  # characters of a text


@cache
def own_texts() -> tuple[str, ...]:
    """The lab's 300 English texts: 150 sentences, the 30 on which roles are measured, and 120 messages."""
    sentences = Path(__file__).with_name("sentences.txt").read_text("utf-8").splitlines()
    messages = [row[0] for row in csv.reader(own_rows("classify").splitlines()[1:])]
    return tuple(dict.fromkeys((*SENTENCES, *sentences, *messages)))


def split_texts(data: str, split: Split) -> tuple[list[str], list[str]]:
    """The different texts in a file, one a line or a paragraph, and sentences about those that were cut or left out.

    ConfigError when there is none.
    """
    parts = re.split(
        r"\n\s*\n" if split == "paragraphs" else r"\n", reading.validate_text(data, "text")
    )
    texts = [text for part in parts if (text := " ".join(part.split()))]
    different = list(dict.fromkeys(text[:LONGEST] for text in texts))
    return different, [
        f"{count:,} of the texts {'is' if count == 1 else 'are'} {why}"
        for count, why in (
            (
                sum(len(text) > LONGEST for text in texts),
                f"longer than {LONGEST:,} characters; the rest of them is left out.",
            ),
            (len(texts) - len(different), "there already and left out."),
        )
        if count
    ]


def inputs_of(config: CorpusConfig) -> tuple[tuple[ModelInputs, ...], tuple[str, ...]]:
    """The inputs of a corpus, at most `config.count`, and sentences about what is left out.

    ConfigError when there is none.
    """
    if config.source == "training":
        return tuple(islice(_training(config.model), config.count)), ()
    texts, notes = (
        (list(own_texts()), [])
        if config.source == "own"
        else split_texts(reading.read(config.data), config.split)
    )
    if config.source == "texts" and len(texts) > config.count:
        notes.append(f"There are {len(texts):,} texts; the first {config.count:,} are measured.")
    return tuple(map(ModelInputs, texts[: config.count])), tuple(notes)


def has_training_data(model: str) -> bool:
    """Whether the training data of a model can be made again."""
    return model.startswith(LAB) and (LAB_MODELS / model.removeprefix(LAB) / "run.json").is_file()


def _training(model: str) -> Iterator[ModelInputs]:
    """Training examples of one of the lab's models, from its own task, by a fixed seed."""
    refuse_if(
        not has_training_data(model),
        f"The training data of {model} is not here; take the lab's sentences or texts of your own.",
    )
    trained = read_object(LAB_MODELS / model.removeprefix(LAB) / "run.json")["config"]
    task = make_task(TaskConfig.from_json(trained["task"]))
    if isinstance(task, Digits):
        yield from (
            ModelInputs(picture=Array.of(to_numpy(digits()[0][index])))
            for index in task.sides[False]
        )
        return
    generator, separator = seeded_generator(0, "corpus"), task.separator
    while True:
        example = task.draw(generator, held_out=False)
        source = task.text_of([token for token in example.source if not token.startswith("<")])
        yield ModelInputs(
            source, target=separator.join(example.target) if task.form == "pairs" else None
        )


def to_json(inputs: ModelInputs) -> str:
    """One input as a line of JSON; a picture as its pixels."""
    picture = inputs.picture and inputs.picture.numpy().round(4).tolist()
    values = {"text": inputs.text, "target": inputs.target, "picture": picture}
    return json.dumps({name: value for name, value in values.items() if value}, ensure_ascii=False)


def from_json(line: str) -> ModelInputs:
    """The input in a line of `to_json`."""
    values = json.loads(line)
    if picture := values.get("picture"):
        values["picture"] = Array.of(np.asarray(picture, dtype=np.float32))
    return ModelInputs(**values)


SAVE_SECONDS = 0.25
STATISTICS, VALUES, INPUTS = "statistics.safetensors", "values.f32", "inputs.jsonl"
SUMS = "roles."  # before the names of their arrays


def corpora_folder() -> Path:
    """The folder of measurements, within that of runs, whose list they stay out of."""
    return runs_folder() / CORPORA


def load_inputs(run: Run) -> tuple[ModelInputs, ...]:
    """The texts of a measurement, in order."""
    return tuple(map(from_json, (run.path / INPUTS).read_text("utf-8").split("\n")[:-1]))


def work(
    run: Run, stop: Callable[[], bool], on_text: Callable[[Corpus], None] = lambda corpus: None
) -> tuple[str, str]:
    """Measure the texts that are left; returns the final state and its message."""
    config, inputs, corpus = CorpusConfig.of(run), load_inputs(run), load(run)
    keys = [one.key for one in MEASURES]
    if run.metadata()["measures"] != keys:  # by an older version
        corpus = Corpus()
        run.update_metadata(measures=keys, roles=[one.key for one in ROLES])
    pretrained = load_folder(folder_of(config.model), name_of(config.model))
    saved, before, began = 0.0, corpus.texts, time.monotonic()
    with open(run.path / VALUES, "ab") as file:
        # The texts after the last saved statistics are measured again.
        file.truncate(sum(4 * values.size for values in corpus.values))
        corpus.values.clear()  # of which the file holds all
        for _ in measure_texts(pretrained, inputs[before:], config.kind, config.ablation, corpus):
            corpus.seconds = (time.monotonic() - began) / (corpus.texts - before)
            if corpus.values:
                file.write(corpus.values.pop().astype("<f4").tobytes())
            on_text(corpus)
            if time.monotonic() - saved > SAVE_SECONDS:
                file.flush()
                save_statistics(run, corpus)
                saved = time.monotonic()
            if stop():
                break
    save_statistics(run, corpus)
    if not corpus.read and corpus.texts:
        return "failed", f"No text could be read. {corpus.error}"
    if corpus.texts < len(inputs):
        return (
            "stopped",
            f"Stopped after {corpus.texts:,} of {len(inputs):,} texts, which are saved.",
        )
    return "finished", f"Measured {corpus.texts:,} texts."


def save_statistics(run: Run, corpus: Corpus) -> None:
    """Replace the statistics by those of the texts so far."""
    run.require()
    not_facts = {"roles", "values", "measures"}
    facts = {name: value for name, value in vars(corpus).items() if name not in not_facts}
    arrays = {
        f"{SUMS}{name}": value
        for name, value in (vars(corpus.roles) if corpus.roles else {}).items()
    }
    write_atomically(run.path / STATISTICS, save(arrays, {"facts": json.dumps(facts)}))


def load(run: Run) -> Corpus:
    """The statistics so far; empty before the first text, and where the files cannot be read.

    Measures and roles that were added since are unmeasured in it.
    """
    try:
        keys, measures = (run.metadata()[name] for name in ("roles", "measures"))
        with safe_open(run.path / STATISTICS, "np") as file:
            corpus = Corpus(**json.loads(file.metadata()["facts"]), measures=measures)
            sums = {
                name.removeprefix(SUMS): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118
                if name.startswith(SUMS)
            }
        corpus.numbers = tuple(corpus.numbers)
        if sums:
            # In the order of today, zero for what is new
            at = [keys.index(role.key) if role.key in keys else len(keys) for role in ROLES]
            corpus.roles = RoleSums(
                **{name: np.concatenate([one, 0 * one[:1]])[at] for name, one in sums.items()}
            )
            shape = corpus.read, len(measures), *corpus.roles.score.shape[1:]
            corpus.values = list(np.memmap(run.path / VALUES, "<f4", "r", shape=shape))
        return corpus
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return Corpus()


# A measurement as it was read: the measures of its heads, and the texts that show one head.


SAVED = Path(__file__).parents[1] / "studies" / "data" / "corpora"  # made by `make corpus`
EXAMPLES = 5
MAP_TEXTS, MAP_TOKENS = 40, 480  # of the joint map of queries and keys


@dataclass(frozen=True, eq=False)
class AnyMeasurement:
    """A measurement's folder as it was read: its config, how far it is, and how much there is to measure."""

    run: Run
    config: Any  # of its own kind
    status: Status
    count: int

    @property
    def live(self) -> bool:
        return not self.status.ended


@dataclass(frozen=True, eq=False)
class Measurement(AnyMeasurement):
    """A measurement of a corpus, with the statistics so far."""

    config: CorpusConfig
    corpus: Corpus

    @property
    def done(self) -> int:
        return self.corpus.texts

    @cached_property
    def scores(self) -> RoleScores:
        assert self.corpus.roles is not None
        return self.corpus.roles.scores(self.config.kind, self.corpus.numbers)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that some text shows."""
        return tuple(one for one in MEASURES if self.corpus.texts_of(one.key).any())

    @cached_property
    def heads(self) -> dict[str, Head]:
        """The heads by name, in the order of the model."""
        return {
            self.scores.name(head): head
            for head in sorted(ranked_heads(self.corpus.mean(MEASURES[0].key)))
        }

    @cached_property
    def default_head(self) -> Head:
        """The head whose own role, one that acts, differs most from text to text; the first one where none acts."""
        spread = [self.corpus.each(role.key).var(0, ddof=1).filled(0) for role in ROLES]
        acting = {
            head: spread[role][head]
            for head, role in self.scores.head_roles.items()
            if ROLES[role].acts
        }
        return max(acting, key=acting.__getitem__, default=next(iter(self.heads.values())))

    def role_measure(self, head: Head) -> Measure:
        """The measure of the head's role; of a head without a role the first measure."""
        index = self.scores.head_roles.get(head)
        return MEASURES[0] if index is None else BY_KEY[ROLES[index].key]


@dataclass(frozen=True, eq=False)
class HeadValues:
    """A measure of one head on each text (N,), nan where it shows none; its mean, and half of the 95 % interval."""

    values: Float[np.ndarray, " N"]
    mean: float
    half: float

    @property
    def count(self) -> int:
        """The number of texts that show the measure."""
        return int((~np.isnan(self.values)).sum())


@dataclass(frozen=True, eq=False)
class TextExample:
    """One text with one marked row: the text's place in the corpus, its value, and the decile that it stands for."""

    text: int
    value: float
    row: MarkedRow
    decile: float | None = None


def read_measurement(run: Run) -> Measurement:
    """The measurement of every head on every text, as its worker left it; ConfigError for a folder without one."""
    # The status before the statistics, so that those of an ended one are all
    return Measurement(
        run, CorpusConfig.of(run), run.status(), int(run.metadata().get("texts", 0)), load(run)
    )


def means(measurement: Measurement, measure: str) -> Axis:
    """A measure of every head, as means over the texts with half of their 95 % intervals."""
    corpus = measurement.corpus
    return Axis(measure, corpus.mean(measure), corpus.interval(measure))


def head_values(measurement: Measurement, measure: str, head: Head) -> HeadValues:
    """A measure of one head on every text, and its mean."""
    corpus = measurement.corpus
    mean, half = (float(each(measure)[head]) for each in (corpus.mean, corpus.interval))
    return HeadValues(corpus.values_of(measure, head), mean, half)


def text_examples(
    pretrained: Pretrained, run: Run, measure: str, head: Head, view: str, texts: int
) -> list[TextExample]:
    """The texts that show a measure of a head, each with one row of its map.

    Of the first `texts` of the measurement the five with the largest values and their largest rows ("strongest"), those
    with the smallest ("weakest"), or one text at each decile, with the row nearest to its value ("typical").
    """
    measurement, short = read_measurement(run), shorten(pretrained)
    kind, inputs = measurement.config.kind, load_inputs(run)
    values = measurement.corpus.values_of(measure, head)[:texts]
    order = ranked(values)[:: -1 if view == "weakest" else 1]
    examples = []
    for decile, text in (
        decile_texts(values)
        if view == "typical"
        else [(None, int(one)) for one in order[:EXAMPLES]]
    ):
        value, one = float(values[text]), read_text(short, inputs[text], kind)
        near = {"strongest": np.inf, "weakest": -np.inf}.get(view, value)
        if (row := marked_row(one, kind, BY_KEY[measure], head, near)) is not None:
            examples.append(TextExample(text, value, row, decile))
    return examples


def texts_of_map(pretrained: Pretrained, run: Run) -> list[ModelInputs]:
    """The first texts of a measurement, which the joint map of queries and keys shows."""
    return first_texts(shorten(pretrained), load_inputs(run)[:MAP_TEXTS], MAP_TOKENS)


def map_vectors(pretrained: Pretrained, run: Run) -> HeadVectors:
    """The queries and keys of every head on the first texts of a measurement."""
    texts, kind = load_inputs(run)[:MAP_TEXTS], CorpusConfig.of(run).kind
    return head_vectors(shorten(pretrained), texts, kind, MAP_TOKENS)


# Measure a corpus from a shell: `attention-lab corpus FOLDER`, by default MiniLM on the lab's sentences.


app = command_line.new_app(__doc__)


@app.command()
def corpus(
    folder: Path,
    model: Annotated[
        str, typer.Option(help="minilm, a model of the lab, a folder, or a hub name")
    ] = MINILM,
    source: Source = "own",
    data: Annotated[Path | None, typer.Option(help="a text file, for --source texts")] = None,
    split: Split = "lines",
    kind: Annotated[
        str, typer.Option(help="attention of an encoder (self), or of a decoder (causal)")
    ] = "self",
    count: int = DEFAULT_TEXTS,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="switch off every head on every text")
    ] = False,
    *,
    set: command_line.Pairs,
) -> None:
    """Measure every head of a model on a corpus; --set changes a setting, as count=50."""
    torch.set_num_threads(1)
    CorpusConfig.from_json(
        {
            "model": resolve(model),
            "source": source,
            "split": split,
            "kind": kind,
            "count": count,
            "ablation": ablation,
            **command_line.text_of(data),
            **command_line.settings(set),
        }
    ).create(folder)
    raise typer.Exit(0 if work_on(folder) == "finished" else 1)
