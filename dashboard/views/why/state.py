"""What the page shows: the kept measurement, or the two runs that the link names, read from their folders."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.attention import ConfigError
from core.training import Run, Status, find_run
from dashboard.runtime.cache import shared
from dashboard.views.why import bottleneck
from dashboard.views.why.compute import Learned, Sentence, sentence
from dashboard.views.why.controls import Setting

RUNS, LAST = "runs", "why:last"
Pair = tuple[Run, Run]


@dataclass(frozen=True)
class Part:
    """One of the two runs: how it stands, what it has learned, at which step, after how many seconds of training."""

    run: Run
    status: Status
    learned: Learned
    step: int
    seconds: float


@dataclass(frozen=True)
class Shown:
    """All that one look needs, read once; without parts it is the kept measurement."""

    setting: Setting
    learned: tuple[Learned, ...]
    sentence: Sentence | None
    parts: tuple[Part, ...] = ()

    @property
    def live(self) -> bool:
        return any(not part.status.ended for part in self.parts)

    @property
    def name(self) -> str:
        return ".".join(part.run.id for part in self.parts) or "kept"


def asked_pair() -> tuple[Pair | None, str]:
    """The runs a link names, else those this session saw last; and words when the link's are not there."""
    asked, last = st.query_params.get(RUNS), st.session_state.get(LAST)
    if asked is None and last is not None and _pair(last) is not None:
        st.query_params[RUNS] = asked = last
    st.session_state[LAST] = asked
    pair = None if asked is None else _pair(asked)
    if asked is None or pair is not None:
        return pair, ""
    return None, "The runs in the link are not on this machine, or are no such pair. Below is the kept measurement."


def _pair(text: str) -> Pair | None:
    found = [find_run(name) for name in text.split(".")]
    if len(found) != 2 or None in found:
        return None
    try:
        configs = [run.config() for run in found if run is not None]
    except (ConfigError, TypeError, ValueError, KeyError):
        return None
    kinds = [(config.task.key, config.model.kind, config.model.attention is None) for config in configs]
    return tuple(found) if kinds == [("numbers", "recurrent", True), ("numbers", "recurrent", False)] else None


def leave() -> None:
    """Back to the kept measurement."""
    st.query_params.pop(RUNS, None)
    st.session_state.pop(LAST, None)


def kept() -> bottleneck.Result:
    """The measurement of `make bottleneck`; shared by all sessions."""
    return shared(bottleneck.load)


def look(pair: Pair | None) -> Shown:
    """Read the runs' folders as they are now."""
    if pair is None:
        result = kept()
        return Shown(result.setting, result.learned, result.sentence)
    parts, records = [], {}
    for run in pair:
        config, found = run.config(), run.records()
        learned = Learned.of(config, found)
        records[learned.model] = (run, found)
        parts.append(Part(run, run.status(), learned, found[-1].step if found else 0,
                          found[-1].trained if found else 0.0))
    return Shown(Setting.of(pair[1].config()), tuple(part.learned for part in parts), sentence(records), tuple(parts))
