"""Generate: a pretrained model goes on with a text or answers one, and every new token shows where it looked."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.interpret.trace import (
    Head,
    Kind,
    most_informative_head,
)
from core.models.decoding import Hypothesis, SearchSettings, Tree
from core.pretrained import ModelInputs, Pretrained, PretrainedError
from core.pretrained.generate import (
    Continuation,
    GenerationStart,
    decode_text,
    generate,
    generate_steps,
    prepare_generation,
    score_continuation,
    score_path,
    step_probabilities,
    token_names,
)
from dashboard.draw import generate as draw

# The settings of the search, the search of this session, and one step of it with its attention.


OPENING = (
    "When Mary and John went to the shop, John gave a cake to Mary. Mary"  # the writer is unsure
)


class Controls(lab.Search, page="generate"):
    FIRST, WIDEST, ALPHA, SAMPLES = "Sampling", 8, 1.0, (5, 20)
    kinds: Sequence[Kind]

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
        lambda c: {kind: {"cross": "Source", "causal": "Earlier output"}[kind] for kind in c.kinds},
        hidden=True,
        old=lambda text, c: {"What was said": "causal"}.get(text, text),
        help="The tokens whose weights are shown: the source, or what the model wrote before.",
        also={"label_visibility": "collapsed"},
    )
    at, pin = lab.CellField("at"), lab.CellField("pin")  # a candidate and a step; a cell of the map
    going = lab.SessionValue["Search | None"](None)


@dataclass(frozen=True)
class Generation:
    ref: lab.ModelRef
    inputs: ModelInputs
    settings: SearchSettings


# seconds until an unfinished search is drawn, and at least between two drawings
PATIENCE, BETWEEN = 0.35, 0.2
SHARE = 4  # the time between two drawings is at least this many times that of one drawing
# of all sessions: searches that are over, names of tokens
FINISHED, NAMES = "generate:finished", "generate:names"


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


def run(search: Search, show: Callable[[Search], None]) -> None:
    """Take the remaining steps, and `show` the search from time to time once it takes longer than PATIENCE.

    A widget that is used meanwhile stops this between two steps; the next run of the page continues from there.
    """
    due = time.monotonic() + PATIENCE
    while not search.stopped and search.advance():
        if (start := time.monotonic()) >= due:
            show(search)
            end = time.monotonic()
            due = end + max(BETWEEN, SHARE * (end - start))


def step_view(
    search: Search,
    pretrained: Pretrained,
    path: Sequence[int],
    step: int,
    read: Continuation,
    kind: Kind,
) -> draw.StepView:
    start, settings = search.start, search.controls.settings
    tokens, prefix = search.tree.tokens(path[-1]), start.prompt.prefix_tokens
    top = read.logits.topk(min(draw.LIKELIEST, read.logits.shape[1])).indices.flatten().tolist()
    used = step_probabilities(pretrained, start, settings, tokens[:step], read.logits[step])
    top += used.topk(2).indices.tolist()
    candidates = (one.token for one in search.tree.candidates)
    names = lab.measurements(NAMES, search.controls.ref)  # those that any session has seen
    names |= token_names(
        pretrained, [one for one in (*prefix, *tokens, *top, *candidates) if one not in names]
    )
    ids = start.read.ids if kind == "cross" else (*prefix, *tokens[:-1])
    return draw.StepView(
        step=step,
        kind=kind,
        prefix=prefix,
        tokens=tokens,
        trace=read.trace.of(kind),
        logits=read.logits[step],
        used=used,
        names=names,
        ids=(*ids, -1) if read.sink else ids,  # a sink is no token
        sink=read.sink,
        note=read.note,
    )


# The page Generate: the continuation of a text, step by step, and the attention of each new token.


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
                run(search, partial(progress, pretrained, slot, []))
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
                outputs_view(search, pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(lab.plain(str(error)), icon=":material/edit:")


def progress(
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
            st.html(draw.step_strips(view, view.trace.map(layer), head, lab.theme()))
        likeliest(search, view)


@lab.fragment
@lab.input_errors()
def outputs_view(search: Search, pretrained: Pretrained) -> None:
    lab.begin(keeps_about=True)
    if not (hypotheses := search.outputs()):
        return
    ref, tree, settings = search.controls.ref, search.tree, search.controls.settings
    texts = [lab.study_of(decode_text, ref, one.tokens) for one in hypotheses]
    pick = Controls.at.pinned((len(tree.candidates), tree.length), search.controls)
    path, step = picked_path(tree, hypotheses, Controls.at.pin(pick))
    result = lab.study_of(score_path, ref, search.controls.inputs, tree.tokens(path[-1]))
    text_container = st.container()
    timeline(search, hypotheses, texts, path, step)
    sentence = st.container()
    kinds = result.trace.kinds or ("causal",)  # a model may have no attention
    kind = Controls.draw("kind", into=lab.HERE, kinds=kinds).kind if len(kinds) > 1 else kinds[0]
    view = step_view(search, pretrained, path, step, result, kind)
    with sentence:
        lab.fact(
            draw.token_fact(view.used, view.logits.softmax(-1), view.tokens[step], view.names, step)
        )
    if view.trace.maps:
        picked = attended(search, view, len(path), text_container)
        results: dict[str, Any] = {"continuation": result}
        cells = draw.script_cells(view, settings, picked)
        if search.done:
            about = (ref, search.controls.inputs, settings)
            results = {"tree": lab.recorded(generate, about, tree), **results}
            cells = [draw.outputs_cell(hypotheses, len(tree.candidates)), *cells]
        lab.as_python(also=cells, **results)
    else:
        st.caption(lab.plain(f"{pretrained.name} has no attention weights, so there is no map."))
        likeliest(search, view)
    lab.outputs_table(hypotheses, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(
            lab.study_of(decode_text, ref, tuple(view.tokens)) or "nothing",
            language=None,
            wrap_lines=True,
        )
    if differ := draw.outputs_fact(settings, hypotheses, texts):
        lab.fact(differ)
    # The tree of all candidates; fewer of a step once there are so many steps
    ranks = 8 if search.tree.length <= 40 else 4
    lab.tree_view(
        tree,
        view.names,
        path,
        f"{len(tree.candidates)} candidates; the best output is {texts[0] or 'nothing'}.",
        theme=lab.theme(),
        follow=Controls.at.in_link,
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


def attended(
    search: Search, view: draw.StepView, steps: int, text_container: DeltaGenerator
) -> Head:
    """The maps of a step, and in `text_container` the text with the weights of the chosen head."""
    ref, kind = search.controls.ref, view.kind
    usual = most_informative_head(view.trace, view.ids, view.tokens)
    linked, bad = lab.read_pair("head", view.trace.shape)
    first = linked or lab.current_head_of(ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = picked = matrix(search, view, steps, *(first or usual))
    with right:
        likeliest(search, view)
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
    item = view.trace.map(layer)
    with text_container:
        if bad:
            st.warning(bad)
        st.html(draw.step_strips(view, item, head, lab.theme()))
    lab.fact(draw.attention_fact(item, head, view.step, view.ids, view.tokens))
    return picked


def matrix(search: Search, view: draw.StepView, steps: int, layer: int, head: int) -> Head:
    cross = view.kind == "cross"
    is_short = max(len(view.tokens), len(view.ids)) <= 32
    shape, of = view.trace.maps[layer].weights.shape[1:], (search.controls, view.kind)
    picked = lab.attention_view(
        view.trace,
        key=f"generate:map:{view.kind}",
        pin=Controls.pin.pinned(shape, of),
        layer=layer,
        head=head,
        query=view.step,
        show="both" if cross and is_short else "matrix",
        height=420,
        link=f"generate:{view.kind}",
        row_slider=slider_key(steps),
        title=f"Where each new token attends in {'the source' if cross else 'the text before it'}",
        reads="new token (row) attends to → read (column)",
        fact=f"{len(view.tokens)} new tokens attend to {len(view.trace.maps[0].keys)} tokens",
    )
    Controls.pin.pin(picked.pin)
    return picked.layer, picked.head


def likeliest(search: Search, view: draw.StepView) -> None:
    shares = {"model": view.logits.softmax(-1)}
    if not draw.is_same(view.used, shares["model"]):
        sampled = search.controls.settings.strategy == "sampling"
        shares["drawn from" if sampled else "allowed"] = view.used
    lab.next_token_bars(
        shares, view.names, view.tokens[view.step], view.step + 1, max_bars=draw.LIKELIEST
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


# The session's search, and the picked output and step, which tree, timeline and link share.


def pick_step(candidate: int, step: int) -> None:
    Controls.at.pin((candidate, step))


def current_search(controls: Generation, pretrained: Pretrained) -> Search:
    """The session's search for these controls: the running one, or a new one.

    PretrainedError when the model cannot continue these inputs.
    """
    search = Controls.going.value
    if search is None or search.controls != controls:
        steps, tree = None, Tree()
        if (finished := lab.measurements(FINISHED, controls).get("search")) is not None:
            start, tree = finished
        else:
            start = prepare_generation(pretrained, controls.inputs)
            steps = generate_steps(pretrained, start, controls.settings)
        search = Controls.going.value = Search(controls, start, steps, tree)
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
            on_change=lab.guarded("generate:output", pick_output),
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


def pick_output(tree: Tree, first: int) -> None:
    """Pick the step at which the chosen output parts from the best."""
    leaf, best = st.session_state["generate:output"], set(tree.path(first))
    own = [step for step, candidate in enumerate(tree.path(leaf)) if candidate not in best]
    pick_step(leaf, own[0] if own else 0)
