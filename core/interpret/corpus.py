"""Every head over a corpus: what is measured of a text, statistics, examples, queries and keys in one plane."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from core.entries import quote
from core.interpret import trace
from core.interpret.circuits import copying_scores, read_heads, read_vocabularies
from core.interpret.evidence import Question, ask, layer_attentions
from core.interpret.patching import rerun_rows
from core.interpret.roles import (
    CLARK,
    MIN_KEYS,
    ROLES,
    XIAO,
    Role,
    RoleSums,
    Text,
    read_text,
    role_sums,
    share_used,
    stack_layers,
)
from core.interpret.trace import Head, Kind, to_numpy
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError, Reading, reject_if
from core.pretrained.finetune import MINILM
from core.pretrained.reading import encode, encode_source
from core.serialization import check_types, read

Source = Literal["own", "training", "texts"]
Split = Literal["lines", "paragraphs"]
MAX_TEXTS = 1_000
DEFAULT_TEXTS = 300


@dataclass(frozen=True)
class CorpusConfig:
    """A model and a corpus; ConfigError for values that cannot be measured.

    `model` is named as in a fine-tuning run. `source` is "own" (the lab's 300 sentences), "training" (what a model of
    the lab was trained on) or "texts": `data`, one text a line or a paragraph, by `split`. At most `count` texts are
    measured. With `ablation`, every head is switched off on every text, which costs a pass a head.
    """

    model: str = MINILM
    source: Source = "own"
    data: str = ""
    split: Split = "lines"
    kind: Literal["self", "causal"] = "self"
    count: Annotated[int, Meta(ge=1, le=MAX_TEXTS)] = DEFAULT_TEXTS
    ablation: bool = False

    def __post_init__(self) -> None:
        check_types(self)

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "CorpusConfig":
        """The config in a dict; ConfigError for an unknown name or an invalid value."""
        return read(data, cls, "A corpus")


ABLATION = "ablation"


@dataclass(frozen=True)
class Measure:
    """A measure of a head: what it is a number of, the rule for its rows (None for roles and ablation), its source."""

    key: str
    name: str
    meaning: str
    unit: str
    rows: Callable[[Float[np.ndarray, "H T S"], Text], Float[np.ndarray, "H T"]] | None
    role: Role | None
    source: str


MEASURES: tuple[Measure, ...] = (
    Measure(
        "entropy",
        "Entropy",
        "how evenly a row's weights are spread",
        "nats",
        lambda weights, text: trace.entropy(weights),
        None,
        CLARK,
    ),
    Measure(
        "distance",
        "Distance",
        "how many tokens lie between a query and its keys, on average",
        "tokens",
        lambda weights, text: (weights * np.abs(text.distance)).sum(-1),
        None,
        "[Vig and Belinkov 2019](https://arxiv.org/abs/1906.04284)",
    ),
    Measure(
        "sink",
        "Sink share",
        "the weight on the first token and on special tokens",
        "weight",
        # What the ordinary keys leave of a row, that of a learned sink, too
        lambda weights, text: (
            1 - weights[..., 1:][..., ~np.array(text.line.special[1:], dtype=bool)].sum(-1)
        ).clip(0, 1),
        None,
        XIAO,
    ),
    *(
        Measure(
            role.key,
            role.name,
            role.meaning,
            "weight" if role.targets else "share of keys",
            None,
            role,
            role.source,
        )
        for role in ROLES
    ),
    Measure(
        ABLATION,
        "Ablation effect",
        "how much the answer changes when the head is switched off",
        "change of the answer",
        None,
        None,
        "[Michel et al. 2019](https://arxiv.org/abs/1905.10650)",
    ),
)
COPYING = Measure(
    "copying",
    "OV copying",
    "whether attending to a token raises its own logit, by the weights alone",
    "Σλ/Σ|λ|",
    None,
    None,
    "[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)",
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
                [measure.rows(item.weights, text)[:, text.ordinary].mean(1) for item in maps]
            )
    return values, roles


# Means over texts, with their 95 % intervals: no map outlives its text.


MAX_TOKENS = 128  # of a text: the bound of the maps in memory
CONFIDENCE = 0.95
MAX_ROWS, CELLS = 96, 8 * MAX_TOKENS**2  # of a batch in which heads are switched off

Values = Float[np.ndarray, "M L H"]


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
        """A measure on each text that could be read (N, L, H), masked where a text cannot show it."""
        if measure not in self.measures:
            return np.ma.masked_all((len(self.values), *self.values[0].shape[1:]))
        at = self.measures.index(measure)
        return np.ma.masked_invalid(np.array([one[at] for one in self.values], float))

    def mean(self, measure: str) -> Float[np.ndarray, "L H"]:
        """The mean of a measure over texts; nan where no text can show it."""
        return self.each(measure).mean(0).filled(np.nan)

    def texts_of(self, measure: str) -> Int[np.ndarray, "L H"]:
        """The number of texts that show a measure."""
        return np.asarray(self.each(measure).count(0))

    def interval(self, measure: str) -> Float[np.ndarray, "L H"]:
        """Half of the 95 % interval of that mean: Student's t times the standard error; nan for fewer than two texts."""
        from scipy.special import stdtrit

        n, error = self.texts_of(measure), self.each(measure).std(0, ddof=1).filled(np.nan)
        return np.asarray(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * error / np.sqrt(n))

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
    kind: Kind = "self",
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
            reading = read_text(short, item, kind)
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
            values[INDEX[ABLATION]] = head_changes(short, item, reading, kind)
        corpus.cut += reading.cut is not None
        corpus.numbers = trace.numbers
        corpus.values.append(values)
        corpus.roles = roles if corpus.roles is None else corpus.roles + roles
        yield corpus


def shorten(pretrained: Pretrained) -> Pretrained:
    """The model with at most 128 tokens of a text."""
    return replace(pretrained, max_tokens=min(pretrained.max_tokens, MAX_TOKENS))


def head_changes(pretrained: Pretrained, inputs: ModelInputs, reading: Reading, kind: Kind
                 ) -> Float[np.ndarray, "L H"]:  # fmt: skip
    """How much the answer changes without each head: 1 − cosine of an embedding, else the change of the probability of
    the likeliest answer. Michel et al. 2019, section 3. nan where the model gives no answer, as without a mask to fill.

    Many heads are switched off in one batch, a row each: as many as keep its maps below those of 8 texts of 128 tokens.
    """
    trace = reading.trace.of(kind)
    heads = [(item.layer, head) for item in trace.maps for head in range(len(item.weights))]
    changes = np.full(trace.shape, np.nan)
    rows = max(1, min(MAX_ROWS, CELLS // max(item.weights[0].size for item in reading.trace.maps)))
    with suppress(PretrainedError):
        baseline = ask(
            pretrained,
            Question(inputs, quantity=None if pretrained.head == "none" else "probability"),
        )
        off = [
            (0, kind, layer, head, torch.zeros(1, len(trace.map(layer).weights), 1))
            for layer, head in heads
        ]
        without = np.array(rerun_rows(baseline, off, rows))
        changes[tuple(np.transpose(heads))] = np.abs(without - baseline.value)
    return changes


def copying(pretrained: Pretrained, kind: Kind, shape: tuple[int, int]) -> Float[np.ndarray, "L H"]:
    """The copying score of each head, −1 to 1; nan where the model has no tokens, or no matrices of single heads."""
    scores = np.full(shape, np.nan)
    with suppress(PretrainedError):
        vocabularies = read_vocabularies(pretrained)
        for heads in read_heads(pretrained):
            if heads.kind == kind and (values := copying_scores(heads, vocabularies)) is not None:
                scores[heads.layer, : len(values)] = to_numpy(values)
    return scores


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
    text, weights, seen = Text(line), item.weights, item.visible.any(0)
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
    """The queries and keys of all layers of a kind, over several texts: one array (H or G, N, D) a layer.

    `tokens` are the N tokens, `positions` their places in their texts, and `texts` the number of its text.
    """

    q: tuple[Float[np.ndarray, "H N D"], ...]
    k: tuple[Float[np.ndarray, "G N D"], ...]
    tokens: tuple[str, ...]
    positions: Int[np.ndarray, " N"]
    texts: Int[np.ndarray, " N"]

    def head(
        self, layer: int, head: int
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N D"]]:
        """The queries of one head, and the keys that they meet."""
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


def nearness(points: JointMap, vectors: HeadVectors, layer: int, head: int) -> float:
    """The correlation of −distance² in the plane with q·k, over all pairs of one text; nan where one is constant."""
    q, k = vectors.head(layer, head)
    same = vectors.texts[:, None] == vectors.texts[None, :]
    distance = ((points.q[:, None] - points.k[None]) ** 2).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(-distance[same], (q @ k.T)[same])[0, 1])


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
    layers = [one for (of, _), one in layer_attentions(pretrained, item).items() if of == kind]
    reject_if(
        not layers,
        f"{pretrained.name} has no layer of this kind whose queries and keys can be read.",
    )
    line = encode_source(pretrained, item)[1]
    if kind == "causal":
        line = encode(pretrained, item)[2] or line  # an encoder–decoder may have to generate it
    q, k = (tuple(to_numpy(getattr(one, name)) for one in layers) for name in "qk")
    places = np.arange(len(line))
    return HeadVectors(q, k, line.tokens, places, np.zeros_like(places))


def join_vectors(parts: Sequence[HeadVectors]) -> HeadVectors:
    """The vectors of all texts, one text after another."""
    q, k = (
        tuple(
            np.concatenate(layer, 1)
            for layer in zip(*(getattr(part, name) for part in parts), strict=True)
        )
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
