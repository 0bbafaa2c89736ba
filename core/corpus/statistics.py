"""Running means over texts, with their 95 % intervals: no map outlives its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int

from core.corpus.measures import ABLATION, INDEX, measure_text
from core.entries import quote
from core.interpret.evidence import Question, ask
from core.interpret.trace import Kind
from core.pretrained.answers import answer_of
from core.pretrained.base import ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.reading import forward, read
from core.roles.scores import RoleScores, RoleSums

MOST_TOKENS = 128  # of a text: the bound of the maps in memory
CONFIDENCE = 0.95
MOST_ROWS, CELLS = 96, 8 * MOST_TOKENS**2  # of a batch in which heads are switched off

Values = Float[np.ndarray, "M L H"]


@dataclass(eq=False)
class RunningMean:
    """The mean of arrays of one shape and the sum of their squared deviations, nan left out (Welford 1962)."""

    count: Int[np.ndarray, "*S"]
    mean: Float[np.ndarray, "*S"]
    squares: Float[np.ndarray, "*S"]

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> RunningMean:
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape))

    def add(self, values: Float[np.ndarray, "*S"]) -> None:
        valid = ~np.isnan(values)
        self.count += valid
        change = np.where(valid, values - self.mean, 0.0)
        self.mean += change / np.maximum(self.count, 1)
        self.squares += change * np.where(valid, values - self.mean, 0.0)

    @property
    def half_width(self) -> Float[np.ndarray, "*S"]:
        """Half of the mean's 95 % interval: Student's t times the standard error; nan for fewer than two values."""
        from scipy.special import stdtrit

        n = np.where(self.count > 1, self.count, np.nan)
        half: np.ndarray = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * np.sqrt(
            self.squares / (n - 1) / n
        )
        return half


@dataclass(frozen=True, eq=False)
class TextRecord:
    """What one text adds: every measure of every head, and the sums of roles; neither where it could not be read.

    `numbers` are the model's own numbers of the layers, `cut` says that a part of the text was left out.
    """

    values: Values | None = None
    roles: RoleSums | None = None
    numbers: tuple[int, ...] = ()
    cut: bool = False
    error: str = ""


@dataclass(eq=False)
class Corpus:
    """The measures of every head over the texts so far.

    `failed` are the places of texts that could not be read, `error` says why of the first; `cut` counts texts of which
    a part was left out. `seconds` is the mean time of a text in the last worker.
    """

    means: RunningMean | None = None
    roles: RoleSums | None = None
    numbers: tuple[int, ...] = ()
    texts: int = 0
    cut: int = 0
    failed: list[int] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    def add(self, record: TextRecord) -> None:
        self.texts += 1
        self.cut += record.cut
        if record.values is None or record.roles is None:
            self.failed.append(self.texts - 1)
            self.error = self.error or record.error
            return
        if self.means is None:
            self.means, self.numbers = RunningMean.of(record.values.shape), record.numbers
        self.means.add(record.values)
        self.roles = record.roles if self.roles is None else self.roles + record.roles

    @property
    def read(self) -> int:
        """The number of texts that could be read."""
        return self.texts - len(self.failed)

    def mean(self, measure: str) -> Float[np.ndarray, "L H"]:
        """The mean of a measure over texts; nan where no text can show it."""
        assert self.means is not None
        index = INDEX[measure]
        mean: np.ndarray = np.where(self.means.count[index] > 0, self.means.mean[index], np.nan)
        return mean

    def texts_of(self, measure: str) -> Int[np.ndarray, "L H"]:
        """The number of texts that show a measure."""
        assert self.means is not None
        count: np.ndarray = self.means.count[INDEX[measure]]
        return count

    def interval(self, measure: str) -> Float[np.ndarray, "L H"]:
        """Half of the 95 % interval of that mean."""
        assert self.means is not None
        half: np.ndarray = self.means.half_width[INDEX[measure]]
        return half

    def role_scores(self, kind: Kind) -> RoleScores:
        """The roles' scores over all rows of all texts, as `score_roles` gives them."""
        assert self.roles is not None
        return self.roles.scores(kind, self.numbers)


def measure_texts(pretrained: Pretrained, inputs: Sequence[ModelInputs], kind: Kind = "self",
                  ablation: bool = False) -> Iterator[TextRecord]:  # fmt: skip
    """One record a text, in order; a text that cannot be read gives a record with its error.

    At most 128 tokens of a text are read, so that no more than the maps of 128 tokens are in memory. PretrainedError
    when the model has no attention of that kind.
    """
    short = shorten(pretrained)
    for item in inputs:
        try:
            reading = read_text(short, item, kind)
        except PretrainedError as error:
            yield TextRecord(error=str(error))
            continue
        if kind not in reading.trace.kinds:
            kinds = (
                " and ".join(one for one in reading.trace.kinds if one != "cross") or "only cross"
            )
            raise PretrainedError(
                f"{pretrained.name} has no attention of kind {quote(kind)}; it has {kinds}."
            )
        values, roles = measure_text(reading, kind)
        if ablation:
            values[INDEX[ABLATION]] = head_changes(short, item, reading, kind)
        yield TextRecord(values, roles, reading.trace.of(kind).numbers, reading.cut is not None)


def shorten(pretrained: Pretrained) -> Pretrained:
    """The model with at most 128 tokens of a text."""
    return replace(pretrained, max_tokens=min(pretrained.max_tokens, MOST_TOKENS))


def read_text(pretrained: Pretrained, inputs: ModelInputs, kind: Kind) -> Reading:
    """The model's reading of one text; for an encoder alone, its decoder reads the same text instead of writing one."""
    if pretrained.reads == "pair" and kind == "self" and inputs.target is None:
        inputs = replace(inputs, target=inputs.text)
    return read(pretrained, inputs)


def head_changes(pretrained: Pretrained, inputs: ModelInputs, reading: Reading, kind: Kind
                 ) -> Float[np.ndarray, "L H"]:  # fmt: skip
    """How much the answer changes without each head: 1 − cosine of an embedding, else the change of the probability of
    the likeliest answer. Michel et al. 2019, section 3. nan where the model gives no answer, as without a mask to fill.

    Many heads are switched off in one batch, a row each: as many as keep its maps below those of 8 texts of 128 tokens.
    """
    trace = reading.trace.of(kind)
    heads = [(item.layer, head) for item in trace.maps for head in range(len(item.weights))]
    changes = np.full(trace.shape, np.nan)
    most = max(1, min(MOST_ROWS, CELLS // max(item.weights[0].size for item in reading.trace.maps)))
    with suppress(PretrainedError):
        baseline = ask(
            pretrained,
            Question(inputs, quantity=None if pretrained.head == "none" else "probability"),
        )
        for start in range(0, len(heads), most):
            part = heads[start : start + most]
            batch = {
                name: values.expand(len(part), *values.shape[1:])
                for name, values in baseline.batch.items()
            }
            off = [
                (row, kind, layer, head, torch.zeros(1, len(trace.map(layer).weights), 1))
                for row, (layer, head) in enumerate(part)
            ]
            output, _ = forward(pretrained, batch, patches=off)
            for row, head in enumerate(part):
                value = float(baseline.target_value(answer_of(pretrained, batch, output, row=row)))
                changes[head] = abs(value - baseline.value)
    return changes
