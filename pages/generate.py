"""Generate: a pretrained model goes on with a text or answers one, and every new token shows where it looked."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from torch import Tensor

import dashboard.page as lab
from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Head,
    Kind,
    induction,
    most_informative_head,
    to_numpy,
)
from core.models.decoding import Hypothesis, SearchSettings, Tree
from core.pretrained import ModelInputs, Pretrained, PretrainedError
from core.pretrained.generate import (
    Continuation,
    GenerationStart,
    decode_text,
    generate_steps,
    prepare_generation,
    score_continuation,
    score_path,
    step_probabilities,
    token_names,
)

# The settings of the search, the search of this session, and one step of it with its attention.


OPENING = (
    "When Mary and John went to the shop, John gave a cake to Mary. Mary"  # the writer is unsure
)


class Controls(lab.Search, page="generate"):
    FIRST, WIDEST, ALPHA, SAMPLES = "Sampling", 8, 1.0, (5, 20)

    longest = lab.Number(
        "New tokens at most",
        20,
        1,
        128,
        slider=True,
        help="The model stops here, or earlier where it ends its text.",
    )
    kind = lab.Segmented[Kind](
        "Attends to",
        lambda values: {
            kind: {"cross": "Source", "causal": "Earlier output"}[kind] for kind in values.kinds
        },
        hidden=True,
        old=lambda text, values: {"What was said": "causal"}.get(text, text),
        help="The tokens whose weights are shown: the source, or what the model wrote before.",
        also={"label_visibility": "collapsed"},
    )


@dataclass(frozen=True)
class Generation:
    ref: lab.ModelRef
    inputs: ModelInputs
    settings: SearchSettings


PATIENCE, BETWEEN = (
    0.35,
    0.2,
)  # seconds until an unfinished search is drawn, and at least between two drawings
SHARE = 4  # the time between two drawings is at least this many times that of one drawing
LIKELIEST = 10  # tokens that are named at a step
FINISHED, NAMES = (
    "generate:finished",
    "generate:names",
)  # of all sessions: searches that are over, names of tokens


@dataclass(eq=False)
class Search:
    """A search of this session: its tree so far, and the steps that are left (None once there are none)."""

    controls: Generation
    start: GenerationStart
    steps: Iterator[Tree] | None
    tree: Tree = field(default_factory=Tree)
    seconds: float = 0.0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self) -> bool:
        """One step more; False when there is none left. ValueError for a setting out of bounds."""
        with self.lock:
            if self.steps is None:
                return False
            started = time.monotonic()
            try:
                self.tree = next(self.steps)
            except StopIteration:
                self.steps = None
            finally:
                self.seconds += time.monotonic() - started
            return self.steps is not None

    @property
    def done(self) -> bool:
        return self.steps is None

    def outputs(self) -> list[Hypothesis]:
        return self.tree.outputs(self.done)


def run(search: Search, draw: Callable[[Search], None]) -> None:
    """Take the remaining steps, and `draw` the search from time to time once it takes longer than PATIENCE.

    A widget that is used meanwhile stops this between two steps; the next run of the page continues from there.
    """
    due = time.monotonic() + PATIENCE
    while not search.stopped and search.advance():
        if (start := time.monotonic()) >= due:
            draw(search)
            end = time.monotonic()
            due = end + max(BETWEEN, SHARE * (end - start))


@dataclass(frozen=True, eq=False)
class StepView:
    """One step of a path: its tokens, the model's logits and what the search makes of them, and the maps of one kind.

    `ids` are those of the maps' columns; `names` those of the tokens that were read, tried and written, and of the
    likeliest ones of each step.
    """

    search: Search
    path: Sequence[int]
    step: int
    kind: Kind
    tokens: tuple[int, ...]
    trace: AttentionTrace
    logits: Tensor
    used: Tensor
    names: Mapping[int, str]
    ids: tuple[int, ...]
    sink: bool
    note: str | None


def step_view(
    search: Search,
    pretrained: Pretrained,
    path: Sequence[int],
    step: int,
    read: Continuation,
    kind: Kind,
) -> StepView:
    start, settings = search.start, search.controls.settings
    tokens, prefix = search.tree.tokens(path[-1]), start.prompt.prefix_tokens
    top = read.logits.topk(min(LIKELIEST, read.logits.shape[1])).indices.flatten().tolist()
    used = step_probabilities(pretrained, start, settings, tokens[:step], read.logits[step])
    top += used.topk(2).indices.tolist()
    candidates = (one.token for one in search.tree.candidates)
    names = lab.measurements(NAMES, search.controls.ref)  # those that any session has seen
    names |= token_names(
        pretrained, [one for one in (*prefix, *tokens, *top, *candidates) if one not in names]
    )
    ids = start.read.ids if kind == "cross" else (*prefix, *tokens[:-1])
    return StepView(
        search=search,
        path=path,
        step=step,
        kind=kind,
        tokens=tokens,
        trace=read.trace.of(kind),
        logits=read.logits[step],
        used=used,
        names=names,
        ids=(*ids, -1) if read.sink else ids,  # a sink is no token
        sink=read.sink,
        note=read.note,
    )


# What the page computes as Python.


def script(view: StepView, hypotheses: Sequence[Hypothesis], head: Head) -> lab.Script:
    controls, step, done = view.search.controls, view.step, view.search.done
    shown = next((at for at, one in enumerate(hypotheses) if one.leaf == view.path[-1]), None)
    tokens = f"tree.hypotheses[{shown}].tokens"
    if shown is None or not done:
        tokens = lab.source_of(list(view.tokens))
    results = {
        "tokens": np.array(view.tokens),
        "weights": view.trace.head(*head),
        "[item.weights for item in trace.maps]": np.array(
            [item.weights for item in view.trace.maps]
        ),
        "model_share": to_numpy(view.logits.softmax(-1)),
        "search_share": to_numpy(view.used),
    }
    if done:
        results["[output.logp for output in tree.hypotheses]"] = np.array(
            [one.logp for one in hypotheses]
        )
        results["len(tree.candidates)"] = np.array(len(view.search.tree.candidates))
    return lab.Script(
        (
            lab.model_cell(controls.ref, controls.inputs, reads=False),
            lab.Cell(
                "The search for a continuation; the best output first.",
                f"""
from core.models.decoding import SearchSettings
from core.pretrained.generate import decode_text, generate, prepare_generation, score_continuation
from core.pretrained.generate import step_probabilities, token_names

settings = {lab.source_of(controls.settings)}
tree = generate(model, inputs, settings)
for output in tree.hypotheses:
    print(f"{{output.logp:.3f}} {{decode_text(model, output.tokens)}}")
""",
            ),
            lab.Cell(
                "The logits and the attention of each step of one output.",
                f"""
tokens = {tokens}
start = prepare_generation(model, inputs)
continuation = score_continuation(model, start, tokens)  # logits (T, V)
trace = continuation.trace.of({view.kind!r})  # a row for each new token
weights = trace.head({head[0]}, {head[1]})  # (T, S)
""",
                f"""
from dashboard.show import show

show(trace, layer={head[0]}, head={head[1]}, query={step})
""",
                f"generate:map:{view.kind}",
            ),
            lab.Cell(
                "The likeliest tokens of one step, by the model and as the search uses them.",
                f"""
logits = continuation.logits[{step}]
model_share = logits.softmax(-1)
search_share = step_probabilities(model, start, settings, tokens[:{step}], logits)
""",
                f"""
import altair as alt
import pandas as pd

best = model_share.topk({LIKELIEST}).indices.tolist()
names = token_names(model, best)
bars = pd.DataFrame({{"token": [names[one] for one in best], "probability": model_share[best].numpy()}})
alt.Chart(bars).mark_bar().encode(x="probability:Q", y=alt.Y("token:N", sort=None))
""",
                "The likeliest next tokens of this step",
            ),
        ),
        results,
    )


# The page's sentences and equations, with the numbers of the search.


def token_fact(used: Tensor, own: Tensor, token: int, names: Mapping[int, str], step: int) -> str:
    """The token with its probability as used; the model's own of it where the search changed that."""
    same = is_same(used, own)
    first, second = used.topk(2).indices.tolist()
    rank = int((used > used[token]).sum()) + 1
    other = second if rank == 1 else first
    likely, chance = lab.plain(names[other]), lab.share_text(float(used[other]))
    more = (
        "; no other token is allowed."
        if not used[other]
        else f"; the next most likely, “{likely}”, has {chance}."
        if rank == 1
        else f", its {ordinal(rank)} choice; its first is “{likely}”, with {chance}."
    )
    alone = (
        ""
        if same
        else f" At temperature 1 and with every token allowed: {lab.share_text(float(own[token]))}."
    )
    return (
        f"At step {step + 1} the {'model' if same else 'search'} gives **{lab.plain(names[token])}** "
        f"{lab.share_text(float(used[token]))}{more}{alone}"
    )


def is_same(used: Tensor, own: Tensor) -> bool:
    return float((used - own).abs().max()) <= 1e-6


def ordinal(rank: int) -> str:
    """A rank in words: second, third, 4th, 21st, …"""
    ending = "th" if 10 < rank % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return {2: "second", 3: "third"}.get(rank, f"{rank:,}{ending}")


def attention_fact(
    item: AttentionMap, head: int, step: int, keys: Sequence[int], tokens: Sequence[int]
) -> str:
    row = item.weights[head, step]
    best, even = int(np.argmax(row)), 1 / float(item.visible[0, step].sum())
    out = (
        f"Head {item.layer_name}·H{head} puts {lab.share_text(row[best])} of its weight on "
        f":primary[{lab.plain(item.keys[best])}]; uniform attention would put {lab.share_text(even)}."
    )
    if item.kind == "cross" or (scored := induction(item, keys, tokens)) is None:
        return out
    steps = "the one step" if scored.steps == 1 else f"the {scored.steps} steps"
    return (
        f"{out} Over {steps} whose new token occurred before, it puts {lab.share_text(scored.heads[head])} on that earlier "
        f"token; uniform attention would put {lab.share_text(scored.uniform)}."
    )


def outputs_fact(
    settings: SearchSettings, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
) -> str:
    """How the outputs of all samples, or of a beam, differ; "" for one output."""
    count, samples = len(hypotheses), sum(one.samples for one in hypotheses)
    if settings.strategy == "sampling" and samples > 1:
        different = "the same text" if count == 1 else f"{count} different texts"
        return f"{samples} samples give {different}."
    if settings.strategy != "beam" or count < 2:
        return ""
    best, likeliest = hypotheses[0], max(hypotheses, key=lambda one: one.logp)
    if likeliest is best:
        return f"A beam of {settings.width} ranks the most likely of its {count} outputs first."
    return (
        f"A beam of {settings.width} ranks “{lab.plain(lab.shorten(texts[0]))}” first although another output is "
        f"more likely (log-probability {lab.number(likeliest.logp)}, here {lab.number(best.logp)}), because "
        f"it is longer: {len(best)} tokens instead of {len(likeliest)}."
    )


def caption(search: Search, visible: int, note: str | None) -> str:
    tree, settings, room = search.tree, search.controls.settings, search.start.room
    hidden = len(tree.candidates) - visible
    more = f" {hidden:,} of them are not in the tree." if hidden else ""
    timed = (
        f" in {lab.duration(search.seconds)}, {search.tree.length / search.seconds:,.0f} steps per second"
        if search.seconds
        else ""
    )  # none where another session searched
    short = (
        f" The model has positions for {len(search.start.prompt.prefix_tokens) + room} tokens, "
        f"so it writes at most {room}."
        if room < settings.longest
        else ""
    )
    share = "model's probability of the token after the tokens before it"
    if settings.strategy == "sampling":
        share = "probability with which the token is drawn after the tokens before it"
    return (
        f"{search.controls.ref.name}, fp32; {len(tree.candidates):,} candidates scored{timed}."
        f"{more} A number in the tree is the {share}; dashed ones were dropped.{short}{' ' + note if note else ''}"
    )


# The page Generate: the continuation of a text, step by step, and the attention of each new token.


GOING = "generate:going"
LINKED = "at"  # the query parameter of the pair of a candidate and a step

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:3px 2px;font-size:14px;line-height:18px}
.lab-strip span{border-radius:4px;padding:2px 5px;text-align:center;white-space:pre}
.lab-strip small{display:block;font-size:11px;line-height:13px;min-height:13px;font-variant-numeric:tabular-nums}
</style>"""
GAP = "<span>…</span>"  # in place of those that are not


def page() -> None:
    lab.title(
        "Generate: one token after another",
        "A model writes a text. See what else it could write next, and where it looks.",
    )
    choice = lab.choose_model(needs=("generate",), usual=lab.WRITES, text=OPENING, weights=False)
    if choice is not None and choice.pretrained is not None:
        pretrained = choice.pretrained
        try:
            way, first, rest = st.columns([1.3, 2, 0.85], vertical_alignment="bottom")
            more = rest.popover("More", icon=":material/tune:", width="stretch")
            settings = Controls().draw_search(way, first, more).settings
            search = current_search(Generation(choice.ref, choice.inputs, settings), pretrained)
            slot = st.empty()  # the progress takes the place of the results, so that nothing moves
            if not search.done:
                run(search, partial(_progress, pretrained, slot, []))
                if search.done and len(search.tree.candidates) <= 2000:  # give it to all sessions
                    lab.measurements(FINISHED, search.controls).setdefault(
                        "search", (search.start, search.tree)
                    )
            with slot.container():
                if not search.done:
                    with st.container(horizontal=True, vertical_alignment="center"):
                        st.markdown(f"Stopped after {search.tree.length} tokens.")
                        st.button(
                            "Continue",
                            icon=":material/play_arrow:",
                            key="generate:go-on",
                            on_click=partial(setattr, search, "stopped", False),
                        )
                _outputs(search, pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(lab.plain(str(error)), icon=":material/edit:")


def _progress(
    pretrained: Pretrained, slot: DeltaGenerator, parts: list[DeltaGenerator], search: Search
) -> None:
    """Draw a button to stop, and the best output so far: its newest token with the attention, and likely tokens.

    `parts` holds their place from the first time on.
    """
    if not parts:
        left, right = slot.container().columns([0.86, 0.14])
        parts.append(left.empty())
        right.button(
            "Stop",
            icon=":material/stop:",
            key="generate:stop",
            on_click=partial(setattr, search, "stopped", True),
            width="stretch",
        )
    best = search.outputs()[0]
    max_tokens = min(search.controls.settings.longest, search.start.room)
    result = score_continuation(pretrained, search.start, best.tokens)
    path, kind = search.tree.path(best.leaf), (result.trace.kinds or ("causal",))[0]
    view = step_view(search, pretrained, path, len(best) - 1, result, kind)
    with parts[0].container():
        st.progress(
            min(1.0, search.tree.length / max_tokens),
            f"{search.tree.length} of at most {max_tokens} tokens",
        )
        if view.trace.maps:
            layer, head = most_informative_head(view.trace, view.ids, view.tokens)
            st.html(step_strips(view, view.trace.map(layer), head, lab.theme()))
        _likeliest(view)


@lab.fragment
@lab.input_errors()
def _outputs(search: Search, pretrained: Pretrained) -> None:
    lab.begin(keeps_about=True)
    if not (hypotheses := search.outputs()):
        return
    ref, tree, settings = search.controls.ref, search.tree, search.controls.settings
    texts = [lab.study_of(decode_text, ref, one.tokens) for one in hypotheses]
    pick = lab.read_linked("generate", LINKED, (len(tree.candidates), tree.length), search.controls)
    path, step = picked_path(tree, hypotheses, lab.write_linked("generate", LINKED, pick))
    result = lab.study_of(score_path, ref, search.controls.inputs, tree.tokens(path[-1]))
    text_container = st.container()
    timeline(search, hypotheses, texts, path, step)
    sentence = st.container()
    kinds = result.trace.kinds or ("causal",)  # a model may have no attention
    kind = Controls.draw("kind", into=lab.HERE, kinds=kinds).kind if len(kinds) > 1 else kinds[0]
    view = step_view(search, pretrained, path, step, result, kind)
    with sentence:
        lab.fact(
            token_fact(view.used, view.logits.softmax(-1), view.tokens[step], view.names, step)
        )
    if view.trace.maps:
        _attended(view, hypotheses, text_container)
    else:
        st.caption(lab.plain(f"{pretrained.name} has no attention weights, so there is no map."))
        _likeliest(view)
    lab.outputs_table(hypotheses, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(
            lab.study_of(decode_text, ref, tuple(view.tokens)) or "nothing",
            language=None,
            wrap_lines=True,
        )
    if differ := outputs_fact(settings, hypotheses, texts):
        lab.fact(differ)
    # The tree of all candidates; fewer of a step once there are so many steps
    ranks = 8 if search.tree.length <= 40 else 4
    lab.tree_view(
        tree,
        view.names,
        path,
        f"{len(tree.candidates)} candidates; the best output is {texts[0] or 'nothing'}.",
        theme=lab.theme(),
        follow=LINKED in st.query_params,
        key="generate:tree",
        on_pick=partial(pick_candidate, tuple(path), tree),
        step=step,
        ranks=ranks,
    )
    st.latex(lab.search_equation(settings, tree, path, step, f"{{{step + 1}}}"), width="content")
    st.caption(
        lab.plain(caption(search, len(lab.tree_spots(tree, path, ranks)), view.note)),
        width=460,
    )
    lab.search_sources(settings.strategy, key="generate:source-code")


def _attended(
    view: StepView, hypotheses: Sequence[Hypothesis], text_container: DeltaGenerator
) -> None:
    """The maps of a step, and in `text_container` the text with the weights of the chosen head."""
    ref, kind = view.search.controls.ref, view.kind
    usual = most_informative_head(view.trace, view.ids, view.tokens)
    linked, bad = lab.read_pair("head", view.trace.shape)
    first = linked or lab.current_head_of(ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = picked = _matrix(view, *(first or usual))
    with right:
        _likeliest(view)
        lab.attention_view(
            view.trace,
            key=f"generate:grid:{kind}",
            layout="grid",
            layer=(first or usual)[0],
            head=(first or usual)[1],
            link=f"generate:{kind}",
            fact="{} layers of {} heads".format(*view.trace.shape),
        )
    chosen = first or picked != usual
    if chosen:
        lab.choose_head(ref, kind, picked)
    lab.write_pair("head", picked if chosen else None)
    lab.add_script(partial(script, view, hypotheses, picked))
    item = view.trace.map(layer)
    with text_container:
        if bad:
            st.warning(bad)
        st.html(step_strips(view, item, head, lab.theme()))
    lab.fact(attention_fact(item, head, view.step, view.ids, view.tokens))


def _matrix(view: StepView, layer: int, head: int) -> tuple[int, int]:
    cross = view.kind == "cross"
    is_short = max(len(view.tokens), len(view.ids)) <= 32
    shape, of = view.trace.maps[layer].weights.shape[1:], (view.search.controls, view.kind)
    picked = lab.attention_view(
        view.trace,
        key=f"generate:map:{view.kind}",
        pin=lab.read_linked("generate", "pin", shape, of),
        layer=layer,
        head=head,
        query=view.step,
        show="both" if cross and is_short else "matrix",
        height=420,
        link=f"generate:{view.kind}",
        row_slider=slider_key(len(view.path)),
        title=f"Where each new token attends in {'the source' if cross else 'the text before it'}",
        reads="new token (row) attends to → read (column)",
        fact=f"{len(view.tokens)} new tokens attend to {len(view.trace.maps[0].keys)} tokens",
    )
    lab.write_linked("generate", "pin", picked.pin)
    return picked.layer, picked.head


def _likeliest(view: StepView) -> None:
    shares = {"model": view.logits.softmax(-1)}
    if not is_same(view.used, shares["model"]):
        sampled = view.search.controls.settings.strategy == "sampling"
        shares["drawn from" if sampled else "allowed"] = view.used
    lab.next_token_bars(
        shares, view.names, view.tokens[view.step], view.step + 1, max_bars=LIKELIEST
    )


# Text as tokens, shaded by the weights of one step; the new token in the accent, later ones faint.


def strip(
    tokens: Sequence[str],
    weights: Sequence[float | None],
    theme: lab.Theme,
    *,
    label: str,
    now: int | None = None,
    chance: float | None = None,
) -> str:
    """HTML of the tokens; a weight is None where no attention is possible.

    `now` is the index of the new token, with its `chance`; later tokens are faint. Of very many tokens, only those with
    some weight are shown.
    """
    ink, cells = lab.Ink.of(theme), list[str]()
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        below, style, small = "", "", weight is not None and weight < 0.005
        if small and len(tokens) > 256:
            cells += [] if cells[-1:] == [GAP] else [GAP]
            continue
        if index == now:
            style = f"box-shadow:inset 0 0 0 2px {ink.pick};color:{ink.pick};font-weight:600"
            below = "" if chance is None else lab.share_text(chance)
        elif now is not None and index > now:
            style = "opacity:.7"
        elif weight is not None:
            ground = lab.shade(weight, theme)
            style = f"background:{ground};color:{lab.text_on(ground, theme)}"
            below = "" if small else lab.share_text(weight)
        cells.append(f'<span style="{style}">{escape(token)}<small>{below}</small></span>')
    return f'<div class="lab-strip" role="img" aria-label="{escape(label)}">{"".join(cells)}</div>'


def step_strips(view: StepView, item: AttentionMap, head: int, theme: lab.Theme) -> str:
    """HTML of the text at a step: each token with its weight, the new one in the accent, later ones faint."""
    weights: list[float | None] = item.weights[head, view.step].tolist()
    generated = tuple(view.names[token] for token in view.tokens)
    prefix = view.search.start.prompt.prefix_tokens
    chance = float(view.used[view.tokens[view.step]])
    label = f"Where head {item.layer_name}·H{head} attends to write {generated[view.step]}"
    read = ""
    if view.kind == "cross":
        read = f"{strip(item.keys, weights, theme, label=label)}<div style='height:8px'></div>"
        before, shares, label = tuple(view.names[token] for token in prefix[1:]), [], "The output"
    else:
        sink = item.keys[-1:] if view.sink else ()
        before = (*sink, *item.keys[: len(prefix)])
        shares = [*weights[len(weights) - len(sink) :], *weights[: len(prefix) + view.step]]
    line = (*before, *generated)
    shares += [None] * (len(line) - len(shares))
    now = len(before) + view.step
    return f"{STYLE}{read}{strip(line, shares, theme, label=label, now=now, chance=chance)}"


# The session's search, and the picked output and step, which tree, timeline and link share.


def pick_step(candidate: int, step: int) -> None:
    lab.write_linked("generate", LINKED, (candidate, step))


def current_search(controls: Generation, pretrained: Pretrained) -> Search:
    """The session's search for these controls: the running one, or a new one.

    PretrainedError when the model cannot continue these inputs.
    """
    search: Search | None = st.session_state.get(GOING)
    if search is None or search.controls != controls:
        steps, tree = None, Tree()
        if (finished := lab.measurements(FINISHED, controls).get("search")) is not None:
            start, tree = finished
        else:
            start = prepare_generation(pretrained, controls.inputs)
            steps = generate_steps(pretrained, start, controls.settings)
        search = st.session_state[GOING] = Search(controls, start, steps, tree)
    return search


def picked_path(
    tree: Tree, hypotheses: Sequence[Hypothesis], pick: lab.Pair | None
) -> tuple[list[int], int]:
    """The best output through the picked candidate, or the path to it if it was dropped; and the picked step.

    With nothing picked the first step of the best output.
    """
    if pick is None:
        return tree.path(hypotheses[0].leaf), 0
    paths = (tree.path(one.leaf) for one in hypotheses)
    path = next((path for path in paths if pick[0] in path), None) or tree.path(pick[0])
    return path, min(pick[1], len(path) - 1)


def pick_candidate(path: Sequence[int], tree: Tree) -> None:
    """Pick the step of the pressed candidate, on the current path if that contains it, else on its own."""
    candidate = st.session_state["generate:tree"].get("pick")
    if isinstance(candidate, int) and 0 <= candidate < len(tree.candidates):
        leaf = path[-1] if candidate in path else candidate
        pick_step(leaf, tree.candidates[candidate].step)


def timeline(
    search: Search,
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    path: Sequence[int],
    step: int,
) -> None:
    slider = st.container()
    if len(hypotheses) > 1:
        which, slider = st.columns([0.4, 0.6], vertical_alignment="center")
        labels = {
            one.leaf: lab.shorten(text) or "nothing"
            for one, text in zip(hypotheses[:8], texts, strict=False)
        }
        labels.setdefault(path[-1], "Another path")
        st.session_state["generate:output"] = path[-1]
        which.selectbox(
            "Output",
            list(labels),
            key="generate:output",
            label_visibility="collapsed",
            help="The output whose tokens are shown.",
            on_change=lab.guarded("generate:output", _pick_output),
            args=(search.tree, hypotheses[0].leaf),
            format_func=lambda leaf: labels[leaf],
        )
    if len(path) > 1:
        name = slider_key(len(path))
        st.session_state[name] = step + 1
        slider.slider(
            "Step",
            1,
            len(path),
            key=name,
            on_change=lab.guarded(name, lambda: pick_step(path[-1], st.session_state[name] - 1)),
            format="step %d",
            label_visibility="collapsed",
            help="The token of the output that is shown.",
        )


def slider_key(steps: int) -> str:
    return f"generate:step:{steps}"


def _pick_output(tree: Tree, first: int) -> None:
    """Pick the step at which the chosen output parts from the best."""
    leaf, best = st.session_state["generate:output"], set(tree.path(first))
    own = [step for step, candidate in enumerate(tree.path(leaf)) if candidate not in best]
    pick_step(leaf, own[0] if own else 0)
