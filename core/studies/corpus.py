"""A measurement of every head over a corpus, the measures of its heads, and the texts that show one head."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from core.entries import ConfigError
from core.interpret.corpus import (
    BY_KEY,
    MEASURES,
    Corpus,
    CorpusConfig,
    MarkedRow,
    Measure,
    decile_texts,
    first_texts,
    marked_row,
    ranked,
    read_text,
    shorten,
)
from core.interpret.corpus_run import config_of, load, load_inputs, values_of
from core.interpret.roles import ROLES, RoleScores, ranked_heads
from core.interpret.trace import Head
from core.pretrained import ModelInputs, Pretrained
from core.runs.folder import Status
from core.runs.runs import Run

SAVED = Path(__file__).with_name("data") / "corpora"  # made by `make corpus`
EXAMPLES = 5
MAP_TEXTS, MAP_TOKENS = 40, 480  # of the joint map of queries and keys


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measurement's folder as it was read: its config, how far it is, and the statistics so far."""

    run: Run
    config: CorpusConfig
    status: Status
    corpus: Corpus
    count: int

    @property
    def live(self) -> bool:
        return not self.status.ended

    @cached_property
    def scores(self) -> RoleScores:
        assert self.corpus.roles is not None
        return self.corpus.roles.scores(self.config.kind, self.corpus.numbers)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that some text shows."""
        return tuple(
            one for one, count in zip(MEASURES, self.corpus.means.count, strict=True) if count.any()
        )

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
        means = self.corpus.means

        def variance(head: Head) -> float:
            at = MEASURES.index(self.role_measure(head)), *head
            return float(means.squares[at] / max(means.count[at] - 1, 1))

        acting = [head for head, role in self.scores.head_roles.items() if ROLES[role].acts]
        return max(acting, key=variance, default=next(iter(self.heads.values())))

    def role_measure(self, head: Head) -> Measure:
        """The measure of the head's role; of a head without a role the first measure."""
        index = self.scores.head_roles.get(head)
        return MEASURES[0] if index is None else BY_KEY[ROLES[index].key]

    def values(self, measure: Measure, head: Head) -> np.ndarray:
        """One measure of one head on each text (N,); nan where a text cannot show it."""
        return values_of(self.run, self.corpus, measure.key, head)


@dataclass(frozen=True, eq=False)
class Axis:
    """One measure of every head (L, H): the means over texts, and half of their 95 % intervals (0 where exact)."""

    measure: Measure
    mean: np.ndarray
    half: np.ndarray


@dataclass(frozen=True, eq=False)
class TextExample:
    """One text with one marked row: the text's place in the corpus, its value, and the decile that it stands for."""

    text: int
    value: float
    row: MarkedRow
    decile: float | None = None


def read_measurement(run: Run) -> Measurement:
    """Read a measurement's folder; ConfigError when it describes none."""
    status = run.status()  # before the statistics, so that those of an ended one are all
    return Measurement(run, config_of(run), status, load(run), int(run.metadata().get("texts", 0)))


def fits(run: Run, config: CorpusConfig) -> bool:
    """Whether a measurement is of this config, or of the same with the ablation."""
    try:
        other = config_of(run)
    except (ConfigError, TypeError):
        return False
    return replace(other, ablation=config.ablation) == config and other.ablation >= config.ablation


def text_examples(
    pretrained: Pretrained, folder: str, measure: str, head: Head, view: str, texts: int
) -> list[TextExample]:
    """Of the first `texts` of the measurement in a folder those that show a measure of a head, with one row each.

    The five with the largest values and their largest rows ("strongest"), those with the smallest ("weakest"), or one
    text at each decile, with the row nearest to its value ("typical").
    """
    measurement, short = read_measurement(Run(Path(folder))), shorten(pretrained)
    kind, inputs = measurement.config.kind, load_inputs(measurement.run)
    values = measurement.values(BY_KEY[measure], head)[:texts]
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


def texts_of_map(pretrained: Pretrained, folder: str) -> list[ModelInputs]:
    """The first texts of a measurement, which the joint map of queries and keys shows."""
    return first_texts(shorten(pretrained), load_inputs(Run(Path(folder)))[:MAP_TEXTS], MAP_TOKENS)
