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
from dashboard.views.generate.compute import Going, outputs
from dashboard.widgets.panels import theme
from dashboard.widgets.table import table

SHOWN, LIKELIEST = 8, 10
ALIGNED = 32  # tokens of a source and an answer between which lines are drawn
NO_TOKEN = -1  # the id of a sink
SIDES: dict[Kind, str] = {"cross": "Source", "causal": "What was said"}


@dataclass(frozen=True, eq=False)
class Looked:
    """The step that is looked at: the path's tokens, their names, the model's numbers, and the maps of one kind."""

    now: Going
    pretrained: Pretrained
    path: Sequence[int]
    step: int
    tokens: Sequence[int]
    names: text.Names
    found: Continuation
    trace: AttentionTrace

    @property
    def kind(self) -> Kind:
        return self.trace.maps[0].kind

    @property
    def keys(self) -> tuple[int, ...]:
        """The ids of the maps' columns."""
        begun = self.now.begun
        ids = begun.read.ids if self.kind == "cross" else (*begun.prompt.prefix_tokens, *self.tokens[:-1])
        return (*ids, NO_TOKEN) if self.found.sink else ids


def looked(now: Going, pretrained: Pretrained, path: Sequence[int], step: int, found: Continuation,
           kind: Kind) -> Looked:
    """The step of a path, with the names of all tokens that may be drawn."""
    tokens = now.tree.tokens(path[-1])
    top = found.logits.topk(min(LIKELIEST, found.logits.shape[1])).indices.flatten().tolist()
    weighed = (one.token for one in now.tree.candidates)
    names = token_names(pretrained, [*now.begun.prompt.prefix_tokens, *tokens, *top, *weighed])
    return Looked(now, pretrained, path, step, tokens, names, found, found.trace.of(kind))


def live(now: Going, pretrained: Pretrained, place: st.delta_generator.DeltaGenerator) -> None:
    """What has been said so far, while the search goes on: the newest token, where it looked, what else was likely."""
    best = outputs(now)[0]
    most = min(now.request.settings.longest, now.begun.room)
    found = score_continuation(pretrained, now.begun, best.tokens)
    this = looked(now, pretrained, now.tree.path(best.leaf), len(best) - 1, found, found.trace.kinds[0])
    layer, head = most_informative_head(this.trace, this.keys, this.tokens)
    with place.container():
        st.progress(min(1.0, now.length / most), f"{now.length} of at most {most} tokens")
        reading(this, this.trace.map(layer), head)
        likeliest(this)


def listed(said: Sequence[Hypothesis], texts: Sequence[str], sampled: bool) -> None:
    """Every output with what it is ranked by, the best first."""
    rows = [[shorten(text) or "nothing", number(one.logp), str(len(one)),
             f"{one.samples}" if sampled else number(one.score)]
            for one, text in zip(said[:SHOWN], texts, strict=False)]
    table(["output", "log-probability", "tokens", "drawn" if sampled else "score"], rows,
          caption="Outputs, the best first", markers=False)
    if (more := len(said) - SHOWN) > 0:
        st.caption(f"And {more} more.")


def reading(this: Looked, item: AttentionMap, head: int) -> None:
    """The text as the step looked at it: each token with its weight, the said one in the accent, later ones faint."""
    ink, weights = theme(), item.weights[head, this.step].tolist()
    said, sink = tuple(this.names[token] for token in this.tokens), item.keys[-1:] if this.found.sink else ()
    chance = float(this.found.logits[this.step].softmax(-1)[this.tokens[this.step]])
    label = f"Where head {item.layer_name}·H{head} looked to say {said[this.step]}"
    if this.kind == "cross":
        read = strip(item.keys, weights, ink, label=label)
        begun = tuple(this.names[token] for token in this.now.begun.prompt.prefix_tokens[1:])
        answer = strip((*begun, *said), [None] * (len(begun) + len(said)), ink, label="What is said",
                       now=len(begun) + this.step, chance=chance)
        st.html(f"{STYLE}{read}<div style='height:8px'></div>{answer}")
        return
    first = len(this.now.begun.prompt.prefix_tokens)
    line = (*sink, *item.keys[:first], *said)
    shown: list[float | None] = [*weights[len(weights) - len(sink):], *weights[: first + this.step]]
    shown += [None] * (len(line) - len(shown))
    st.html(STYLE + strip(line, shown, ink, label=label, now=len(sink) + first + this.step, chance=chance))


def matrix(this: Looked, layer: int, head: int) -> tuple[int, int]:
    """All steps of one head, as alignment where they look at a source; the head that is picked, here or among all."""
    side = "the source" if this.kind == "cross" else "what stood before"
    few = max(len(this.tokens), len(this.keys)) <= ALIGNED
    show: Literal["both", "matrix"] = "both" if this.kind == "cross" and few else "matrix"
    seen = attention_view(
        this.trace, key=f"generate:map:{this.kind}", layer=layer, head=head, query=this.step, show=show, height=420,
        link=f"generate:{this.kind}", title=f"Where each new token looked in {side}",
        reads="said (row) after looking at → read (column)",
        fact=f"{len(this.tokens)} new tokens, {len(this.trace.maps[0].keys)} that were read")
    return seen.layer, seen.head


def heads(this: Looked, layer: int, head: int) -> None:
    """Every head, to pick the one that is shown."""
    layers, most = this.trace.shape
    attention_view(this.trace, key=f"generate:grid:{this.kind}", layout="grid", layer=layer, head=head,
                   link=f"generate:{this.kind}", fact=f"{layers} layers of {most} heads")


def likeliest(this: Looked) -> None:
    """The likeliest tokens at the step, by the model and, where the search changes that, as it takes them."""
    logits, token = this.found.logits[this.step], this.tokens[this.step]
    settings = this.now.request.settings
    model = logits.softmax(-1)
    shares: dict[str, Tensor] = {"model": model}
    taken = step_probabilities(this.pretrained, this.now.begun, settings, this.tokens[: this.step], logits)
    if float((taken - model).abs().max()) > 1e-6:
        shares["drawn from" if settings.strategy == "sampling" else "allowed"] = taken
    st.markdown(f"**The likeliest tokens at step {this.step + 1}**")
    st.vega_lite_chart(spec=bars(shares, this.names, token, Ink.of(theme()), LIKELIEST))
    if len(shares) > 1:
        st.caption(f"Faint is the model's own probability; full is what the search goes by ({list(shares)[1]}).")
