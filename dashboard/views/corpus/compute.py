"""The measurement that fits the controls, and the texts that show one head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from core.entries import ConfigError
from core.interpret.corpus import (
    BY_KEY,
    COPYING,
    MEASURES,
    Corpus,
    CorpusConfig,
    HeadVectors,
    MarkedRow,
    Measure,
    TextVectors,
    copying,
    decile_texts,
    first_texts,
    join_vectors,
    largest,
    marked_row,
    nearest_to,
    ranked,
    read_text,
    shorten,
    smallest,
    text_vectors,
)
from core.interpret.corpus_run import config_of, corpora_folder, load, load_inputs, values_of
from core.interpret.roles import ROLES, RoleScores, ranked_heads
from core.interpret.trace import Head, Kind
from core.pretrained import ModelInputs
from core.pretrained.load import maps_bytes
from core.runs.folder import Status
from core.runs.runs import Run, list_runs
from dashboard.server import people
from dashboard.server.cache import measurements, remembered, shared
from dashboard.ui.models import ModelRef, is_small, load_model
from dashboard.ui.threads import one_thread

HERE = Path(__file__).parent
SAVED = HERE / "saved"  # made by `make corpus`
EXAMPLES = 5
MAP_TEXTS, MAP_TOKENS = 40, 480  # of the joint map of queries and keys
VECTORS = (
    "corpus:vectors"  # the texts whose queries and keys were read, by their index, for all sessions
)
VectorsKey = tuple[ModelRef, str, Kind]


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
        return self.corpus.role_scores(self.config.kind)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that some text shows."""
        assert self.corpus.means is not None
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
        acting = [head for head, role in self.scores.head_roles.items() if ROLES[role].acts]
        return max(acting, key=self._role_std, default=next(iter(self.heads.values())))

    def _role_std(self, head: Head) -> float:
        assert self.corpus.means is not None
        index = MEASURES.index(self.role_measure(head))
        count = int(self.corpus.means.count[index][head])
        return (
            float(np.sqrt(self.corpus.means.squares[index][head] / (count - 1)))
            if count > 1
            else 0.0
        )

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

    @property
    def is_missing(self) -> bool:
        return bool(np.isnan(self.mean).all())


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


def find_measurement(config: CorpusConfig, run_id: object) -> Run | None:
    """The measurement of this config: that of the link, else one that came with the lab, else a finished one."""
    linked = people.find_measurement(run_id)
    if linked is not None and _fits(linked, config):
        return linked
    saved = [Run(path) for path in sorted(SAVED.iterdir())] if SAVED.is_dir() else []
    finished = [
        run for run in reversed(list_runs(corpora_folder())) if run.status().state == "finished"
    ]
    return next((run for run in (*saved, *finished) if _fits(run, config)), None)


def _fits(run: Run, config: CorpusConfig) -> bool:
    """Whether a measurement is of this config, or of the same with the ablation."""
    try:
        other = config_of(run)
    except (ConfigError, TypeError):
        return False
    return replace(other, ablation=config.ablation) == config and other.ablation >= config.ablation


def axis_of(measurement: Measurement, ref: ModelRef, measure: Measure) -> Axis:
    """A measure of every head for an axis of the scatter; OV copying is read from the weights."""
    if measure == COPYING:
        scores = shared(_copying, ref, measurement.config.kind, measurement.scores.score.shape[1:])
        return Axis(measure, scores, np.zeros_like(scores))
    return Axis(
        measure, measurement.corpus.mean(measure.key), measurement.corpus.interval(measure.key)
    )


def _copying(ref: ModelRef, kind: Kind, shape: tuple[int, int]) -> np.ndarray:
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return copying(pretrained, kind, shape)


def strongest(
    measurement: Measurement, ref: ModelRef, measure: Measure, head: Head
) -> list[TextExample]:
    """The texts with the largest values, each with its largest row."""
    texts = ranked(measurement.values(measure, head))[:EXAMPLES]
    return _examples(
        measurement, ref, measure, head, [(int(text), None) for text in texts], "largest"
    )


def weakest(
    measurement: Measurement, ref: ModelRef, measure: Measure, head: Head
) -> list[TextExample]:
    """The texts with the smallest values, each with its smallest row."""
    texts = ranked(measurement.values(measure, head))[::-1][:EXAMPLES]
    return _examples(
        measurement, ref, measure, head, [(int(text), None) for text in texts], "smallest"
    )


def typical(
    measurement: Measurement, ref: ModelRef, measure: Measure, head: Head
) -> list[TextExample]:
    """A text at each decile, with the row that is nearest to its value."""
    texts = [(text, share) for share, text in decile_texts(measurement.values(measure, head))]
    return _examples(measurement, ref, measure, head, texts, "nearest")


def _examples(measurement: Measurement, ref: ModelRef, measure: Measure, head: Head,
              texts: Sequence[tuple[int, float | None]], row: str) -> list[TextExample]:  # fmt: skip
    values = measurement.values(measure, head)
    picks = tuple((text, float(values[text])) for text, _ in texts)
    # A measurement under way has other texts each second: they would push all else out of the cache.
    read = _rows if measurement.live else partial(shared, _rows)
    folder = measurement.run.path  # a saved result is found wherever the repository lies
    folder = folder.relative_to(HERE) if folder.is_relative_to(HERE) else folder
    rows = read(ref, str(folder), measurement.config.kind, measure.key, head, picks, row)
    return [
        TextExample(text, value, marked, decile)
        for (text, value), (_, decile), marked in zip(picks, texts, rows, strict=True)
        if marked is not None
    ]


def _rows(ref: ModelRef, path: str, kind: Kind, measure: str, head: Head, picks: tuple[tuple[int, float], ...],
          row: str) -> list[MarkedRow | None]:  # fmt: skip
    """The marked row of each picked text, which the model reads again."""
    pretrained, inputs = shorten(load_model(ref)), load_inputs(Run(HERE / path))
    with one_thread(is_small(pretrained)):
        return [
            marked_row(
                read_text(pretrained, inputs[text], kind),
                kind,
                BY_KEY[measure],
                head,
                {"largest": largest, "smallest": smallest}.get(row, nearest_to(value)),
            )
            for text, value in picks
        ]


def vectors_key(measurement: Measurement, ref: ModelRef) -> VectorsKey:
    return ref, str(measurement.run.path), measurement.config.kind


def texts_of_map(key: VectorsKey) -> Sequence[ModelInputs]:
    """The first texts of a measurement, which the joint map of queries and keys shows."""
    return shared(_texts_of_map, *key[:2])


def _texts_of_map(ref: ModelRef, path: str) -> list[ModelInputs]:
    return first_texts(
        shorten(load_model(ref)), load_inputs(Run(Path(path)))[:MAP_TEXTS], MAP_TOKENS
    )


def read_vectors(key: VectorsKey, text: int) -> TextVectors:
    """The queries and keys of every head on one of them. PretrainedError where the model does not expose them."""
    pretrained = shorten(load_model(key[0]))
    with one_thread(is_small(pretrained)):
        return text_vectors(pretrained, texts_of_map(key)[text], key[2])


def has_vectors(key: VectorsKey) -> bool:
    return remembered(_vectors, *key)


def vectors_of(key: VectorsKey) -> HeadVectors:
    """Those on all these texts; what was not read yet is read now."""
    return shared(_vectors, *key)


def _vectors(*key: Any) -> HeadVectors:
    parts = measurements(VECTORS, key)
    vectors = join_vectors(
        [
            parts[text] if text in parts else read_vectors(key, text)
            for text in range(len(texts_of_map(key)))
        ]
    )
    parts.clear()  # which are as large once more
    return vectors


def token_bytes(ref: ModelRef) -> int:
    """The bytes of all attention maps of one token, which grow with the square of the length."""
    return shared(_token_bytes, ref)


def _token_bytes(ref: ModelRef) -> int:
    return maps_bytes(load_model(ref).model, 1)
