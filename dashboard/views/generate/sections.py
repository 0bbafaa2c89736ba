"""The parts of the page: the live text, the outputs, the text as one step looked at it, and the likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st
from torch import Tensor

from core.decoding import Hypothesis
from core.pretrained import Pretrained
from core.pretrained.generate import Continuation, score_continuation, step_probabilities, token_names
from core.pretrained.induction_scores import most_informative_head
from core.trace import AttentionMap, AttentionTrace, Kind
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.token_bars import bars
from dashboard.charts.tokens import shorten
from dashboard.components.attention_view import attention_view
from dashboard.views.generate import text
from dashboard.views.generate.charts import STYLE, strip
from dashboard.views.generate.compute import Search, outputs
from dashboard.widgets.panels import theme
from dashboard.widgets.table import table

SHOWN, LIKELIEST = 8, 10
ALIGNED = 32  # tokens of a source and an answer between which lines are drawn
NO_TOKEN = -1  # the id of a sink
SIDES: dict[Kind, str] = {"cross": "Source", "causal": "What was said"}


@dataclass(frozen=True, eq=False)
class StepView:
    """The step that is looked at: the path's tokens, their names, the model's numbers, and the maps of one kind."""

    search: Search
    pretrained: Pretrained
    path: Sequence[int]
    step: int
    tokens: Sequence[int]
    names: text.Names
    continuation: Continuation
    trace: AttentionTrace

    @property
    def kind(self) -> Kind:
        return self.trace.maps[0].kind

    @property
    def keys(self) -> tuple[int, ...]:
        """The ids of the maps' columns."""
        start = self.search.start
        ids = start.read.ids if self.kind == "cross" else (*start.prompt.prefix_tokens, *self.tokens[:-1])
        return (*ids, NO_TOKEN) if self.continuation.sink else ids


def step_view(search: Search, pretrained: Pretrained, path: Sequence[int], step: int, continuation: Continuation,
           kind: Kind) -> StepView:
    """The step of a path, with the names of all tokens that may be drawn."""
    tokens = search.tree.tokens(path[-1])
    top = continuation.logits.topk(min(LIKELIEST, continuation.logits.shape[1])).indices.flatten().tolist()
    candidates = (one.token for one in search.tree.candidates)
    names = token_names(pretrained, [*search.start.prompt.prefix_tokens, *tokens, *top, *candidates])
    return StepView(search, pretrained, path, step, tokens, names, continuation, continuation.trace.of(kind))


def progress_view(search: Search, pretrained: Pretrained, place: st.delta_generator.DeltaGenerator) -> None:
    """What has been said so far, while the search goes on: the newest token, where it looked, what else was likely."""
    best = outputs(search)[0]
    most = min(search.controls.settings.longest, search.start.room)
    continuation = score_continuation(pretrained, search.start, best.tokens)
    path, kind = search.tree.path(best.leaf), continuation.trace.kinds[0]
    view = step_view(search, pretrained, path, len(best) - 1, continuation, kind)
    layer, head = most_informative_head(view.trace, view.keys, view.tokens)
    with place.container():
        st.progress(min(1.0, search.length / most), f"{search.length} of at most {most} tokens")
        reading(view, view.trace.map(layer), head)
        likeliest(view)


def outputs_table(hypotheses: Sequence[Hypothesis], texts: Sequence[str], sampled: bool) -> None:
    """Every output with what it is ranked by, the best first."""
    rows = [[shorten(text) or "nothing", number(one.logp), str(len(one)),
             f"{one.samples}" if sampled else number(one.score)]
            for one, text in zip(hypotheses[:SHOWN], texts, strict=False)]
    table(["output", "log-probability", "tokens", "drawn" if sampled else "score"], rows,
          caption="Outputs, the best first", markers=False)
    if (more := len(hypotheses) - SHOWN) > 0:
        st.caption(f"And {more} more.")


def reading(view: StepView, item: AttentionMap, head: int) -> None:
    """The text as the step looked at it: each token with its weight, the said one in the accent, later ones faint."""
    ink, weights = theme(), item.weights[head, view.step].tolist()
    generated = tuple(view.names[token] for token in view.tokens)
    sink = item.keys[-1:] if view.continuation.sink else ()
    chance = float(view.continuation.logits[view.step].softmax(-1)[view.tokens[view.step]])
    label = f"Where head {item.layer_name}·H{head} looked to say {generated[view.step]}"
    if view.kind == "cross":
        read = strip(item.keys, weights, ink, label=label)
        start = tuple(view.names[token] for token in view.search.start.prompt.prefix_tokens[1:])
        answer = strip((*start, *generated), [None] * (len(start) + len(generated)), ink, label="What is said",
                       now=len(start) + view.step, chance=chance)
        st.html(f"{STYLE}{read}<div style='height:8px'></div>{answer}")
        return
    first = len(view.search.start.prompt.prefix_tokens)
    line = (*sink, *item.keys[:first], *generated)
    shown: list[float | None] = [*weights[len(weights) - len(sink):], *weights[: first + view.step]]
    shown += [None] * (len(line) - len(shown))
    st.html(STYLE + strip(line, shown, ink, label=label, now=len(sink) + first + view.step, chance=chance))


def matrix(view: StepView, layer: int, head: int) -> tuple[int, int]:
    """All steps of one head, as alignment where they look at a source; the head that is picked, here or among all."""
    side = "the source" if view.kind == "cross" else "what stood before"
    few = max(len(view.tokens), len(view.keys)) <= ALIGNED
    show: Literal["both", "matrix"] = "both" if view.kind == "cross" and few else "matrix"
    seen = attention_view(
        view.trace, key=f"generate:map:{view.kind}", layer=layer, head=head, query=view.step, show=show, height=420,
        link=f"generate:{view.kind}", title=f"Where each new token looked in {side}",
        reads="said (row) after looking at → read (column)",
        fact=f"{len(view.tokens)} new tokens, {len(view.trace.maps[0].keys)} that were read")
    return seen.layer, seen.head


def heads(view: StepView, layer: int, head: int) -> None:
    """Every head, to pick the one that is shown."""
    layers, most = view.trace.shape
    attention_view(view.trace, key=f"generate:grid:{view.kind}", layout="grid", layer=layer, head=head,
                   link=f"generate:{view.kind}", fact=f"{layers} layers of {most} heads")


def likeliest(view: StepView) -> None:
    """The likeliest tokens at the step, by the model and, where the search changes that, as it takes them."""
    logits, token = view.continuation.logits[view.step], view.tokens[view.step]
    settings = view.search.controls.settings
    model = logits.softmax(-1)
    shares: dict[str, Tensor] = {"model": model}
    taken = step_probabilities(view.pretrained, view.search.start, settings, view.tokens[: view.step], logits)
    if float((taken - model).abs().max()) > 1e-6:
        shares["drawn from" if settings.strategy == "sampling" else "allowed"] = taken
    st.markdown(f"**The likeliest tokens at step {view.step + 1}**")
    st.vega_lite_chart(spec=bars(shares, view.names, token, Ink.of(theme()), LIKELIEST))
    if len(shares) > 1:
        st.caption(f"Faint is the model's own probability; full is what the search goes by ({list(shares)[1]}).")
