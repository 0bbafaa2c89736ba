"""Generate: a pretrained model goes on with a text or answers one, and every new token shows where it looked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.interpret import steering
from core.interpret.lens import layers_of
from core.interpret.trace import Head, Kind, most_informative_head
from core.models.decoding import Hypothesis, SearchSettings, Tree
from core.pretrained import ModelInputs, Pretrained, PretrainedError, generate
from core.pretrained.load import largest
from core.studies import generate as study
from dashboard.draw import generate as draw

OPENING = (
    "When Mary and John went to the shop, John gave a cake to Mary. Mary"  # the writer is unsure
)
STEERING = "strength", "layer", "source", "towards", "away", "writer", "place"
# of all sessions: searches that are over, names of tokens
FINISHED, NAMES = "generate:finished", "generate:names"
IN_NO_LINK = {"bind": None, "persist_state": None, "label_visibility": "collapsed"}


@dataclass(frozen=True)
class Generation:
    """What is searched for."""

    ref: lab.ModelRef
    inputs: ModelInputs
    settings: SearchSettings


def pick_output(c: "Controls") -> None:
    """Pick the step at which the chosen output parts from the best."""
    leaf, best = c.read("output", **vars(c)).output, set(c.tree.path(c.best))
    own = [step for step, candidate in enumerate(c.tree.path(leaf)) if candidate not in best]
    c.at.pin((leaf, own[0] if own else 0))


def pick_step(c: "Controls") -> None:
    c.at.pin((c.path[-1], c.read("step", **vars(c)).step - 1))


class Controls(lab.Search, page="generate"):
    FIRST, WIDEST, ALPHA, SAMPLES = "Sampling", 8, 1.0, (5, 20)
    kinds: Sequence[Kind]
    outputs: dict[int, str]  # by their last candidates
    tree: Tree
    best: int  # the last candidate of the best output
    path: Sequence[int]
    model: Pretrained
    words: Sequence[str]  # tokens of the text

    longest = lab.Number(
        "New tokens at most",
        20,
        1,
        128,
        slider=True,
        help="The model stops here, or earlier where it ends its text.",
    )
    kind = lab.Segmented[Kind](
        "Takes from",
        lambda c: {kind: {"cross": "Source", "causal": "Earlier output"}[kind] for kind in c.kinds},
        hidden=True,
        old=lambda text, c: {"What was said": "causal"}.get(text, text),
        help="The tokens whose weights are shown: the source, or what the model wrote before.",
        also={"label_visibility": "collapsed"},
    )
    output = lab.Select[int](
        "Output",
        lambda c: c.outputs,
        also=lambda c: IN_NO_LINK | {"on_change": pick_output, "args": (c,)},
        help="The output whose tokens are shown.",
    )
    step = lab.Number[int](
        "Step",
        1,
        1,
        lambda c: len(c.path),
        slider=True,
        key=lambda c: f"step:{len(c.path)}",
        also=lambda c: IN_NO_LINK | {"format": "step %d", "on_change": pick_step, "args": (c,)},
        help="The token of the output that is shown.",
    )
    strength = lab.Number(
        "Strength",
        0.5,
        -8.0,
        8.0,
        step=0.25,
        slider=True,
        help="How much of the direction is added: 1 is as long as the stream itself, 0 is nothing, below 0 is its opposite.",
    )
    layer = lab.Select[int](
        "After layer",
        lambda c: {layer: f"L{layer}" for layer in range(len(layers_of(c.model)))},
        lambda c: 2 * len(layers_of(c.model)) // 3,
        help="The direction is read after this layer, and added there.",
    )
    source = lab.Segmented(
        "Direction",
        {"texts": "Texts minus texts", "head": "Output of a head"},
        help="The mean state at the last token of some texts minus that of others, or what a head writes at a token.",
    )
    towards = lab.Text(
        "Towards", "Mary thanked John\nMary and John", lines=True, help="Texts, one a line."
    ).optional(lambda c: c.source == "texts")
    away = lab.Text(
        "Away from", "John thanked Mary\nJohn and Mary", lines=True, help="Texts, one a line."
    ).optional(lambda c: c.source == "texts")
    writer = lab.Number[int](
        "Head of that layer",
        0,
        0,
        lambda c: largest(c.model.model, 1, "num_attention_heads") - 1,
        help="The head whose output is added.",
    ).optional(lambda c: c.source == "head")
    place = lab.Select[int](
        "At token",
        lambda c: dict(enumerate(lab.numbered(c.words))),
        lambda c: len(c.words) - 1,
        help="The token of the text at which the head's output is read.",
    ).optional(lambda c: c.source == "head")
    at, pin = lab.CellField("at"), lab.CellField("pin")  # a candidate and a step; a cell of the map
    going = lab.SessionValue[tuple[Generation, study.Search] | None](None)


def page() -> None:
    lab.title(
        "Generate: one token after another",
        "What else could come next, and which words does the model take from?",
    )
    choice = lab.choose_model(needs=("generate",), usual=lab.WRITES, text=OPENING, weights=False)
    if choice is not None and choice.pretrained is not None:
        pretrained = choice.pretrained
        try:
            way, first, rest = st.columns([1.3, 2, 0.85], vertical_alignment="bottom")
            more = rest.popover("More", icon=":material/tune:", width="stretch")
            settings = Controls().draw_search(way, first, more).settings
            about = Generation(choice.ref, choice.inputs, settings)
            search = current_search(about, pretrained)
            slot = st.empty()  # the progress takes the place of the results, so that nothing moves
            if not search.done:
                study.run(search, partial(progress, about, pretrained, slot, []))
                if search.done and len(search.tree.candidates) <= 2000:  # give it to all sessions
                    finished = search.start, search.tree
                    lab.measurements(FINISHED, about).setdefault("search", finished)
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
                outputs_view(about, search, pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(lab.plain(str(error)), icon=":material/edit:")


def current_search(about: Generation, pretrained: Pretrained) -> study.Search:
    """The session's search for this: the running one, or a new one.

    PretrainedError when the model cannot continue these inputs.
    """
    of, search = Controls.going.value or (None, None)
    if search is None or of != about:
        finished = lab.measurements(FINISHED, about).get("search")
        start, tree = finished or (generate.prepare_generation(pretrained, about.inputs), Tree())
        steps = None
        if not finished:
            steps = generate.generate_steps(pretrained, start, about.settings)
        search = study.Search(about.settings, start, steps, tree)
        Controls.going.value = about, search
    return search


def progress(
    about: Generation,
    pretrained: Pretrained,
    slot: lab.Place,
    parts: list[lab.Place],
    search: study.Search,
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
    max_tokens = min(about.settings.longest, search.start.room)
    result = generate.score_continuation(pretrained, search.start, best.tokens)
    path, kind = search.tree.path(best.leaf), (result.trace.kinds or ("causal",))[0]
    names = lab.measurements(NAMES, about.ref)  # those that any session has seen
    view = study.step_view(search, pretrained, path, len(best) - 1, result, kind, names)
    with parts[0].container():
        st.progress(
            min(1.0, search.tree.length / max_tokens),
            f"{search.tree.length} of at most {max_tokens} tokens",
        )
        if view.trace.maps:
            layer, head = most_informative_head(view.trace, view.ids, view.tokens)
            st.html(draw.step_strips(view, view.trace.map(layer), head, lab.theme()))
        likeliest(about.settings, view)


@lab.fragment
@lab.input_errors()
def outputs_view(about: Generation, search: study.Search, pretrained: Pretrained) -> None:
    lab.begin(keeps_about=True)
    if not (hypotheses := search.outputs()):
        return
    ref, tree, settings = about.ref, search.tree, about.settings
    texts = [lab.study_of(generate.decode_text, ref, one.tokens) for one in hypotheses]
    pick = Controls.at.pinned((len(tree.candidates), tree.length), about)
    path, step = study.picked_path(tree, hypotheses, Controls.at.pin(pick))
    result = lab.study_of(generate.score_path, ref, about.inputs, tree.tokens(path[-1]))
    text_container = st.container()
    timeline(tree, hypotheses, texts, path, step)
    sentence = st.container()
    kinds = result.trace.kinds or ("causal",)  # a model may have no attention
    kind = Controls.draw("kind", into=lab.HERE, kinds=kinds).kind if len(kinds) > 1 else kinds[0]
    names = lab.measurements(NAMES, ref)
    view = study.step_view(search, pretrained, path, step, result, kind, names)
    with sentence:
        lab.fact(
            draw.token_fact(view.used, view.logits.softmax(-1), view.tokens[step], view.names, step)
        )
    if view.trace.maps:
        picked = attended(about, view, path, text_container)
        results: dict[str, Any] = {"continuation": result}
        cells = draw.script_cells(view, settings, picked)
        if search.done:
            made = lab.recorded(generate.generate, (ref, about.inputs, settings), tree)
            results = {"tree": made, **results}
            cells = [draw.outputs_cell(hypotheses, len(tree.candidates)), *cells]
        lab.as_python(also=cells, **results)
    else:
        st.caption(lab.plain(f"{pretrained.name} has no attention weights, so there is no map."))
        likeliest(settings, view)
    lab.outputs_table(hypotheses, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(
            lab.study_of(generate.decode_text, ref, tuple(view.tokens)) or "nothing",
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
    lab.details(
        "Its score in numbers",
        partial(
            st.latex,
            lab.search_equation(settings, tree, path, step, f"{{{step + 1}}}"),
            width="content",
        ),
        "generate:score",
    )
    lab.details(
        "Steer it: add a direction while it writes",
        partial(steered_view, about, pretrained, search.start.read.tokens),
        "generate:steer",
        opened=any(f"generate:{name}" in st.query_params for name in STEERING),
    )
    st.caption(
        lab.plain(
            draw.conditions(
                ref.name, search, settings, len(lab.tree_spots(tree, path, ranks)), view.note
            )
        ),
        width=460,
    )
    lab.search_sources(settings.strategy, key="generate:source-code")


@lab.fragment
@lab.input_errors()
def steered_view(about: Generation, pretrained: Pretrained, words: Sequence[str]) -> None:
    """Draw the text that follows without and with a direction, the next token's probabilities, and what is added."""
    ref, settings = about.ref, SearchSettings(longest=about.settings.longest)
    controls = Controls(model=pretrained, words=words)
    controls = controls.draw_more("strength", "layer", into=st.container(horizontal=True))
    picture = st.container()
    controls = controls.draw_more(*STEERING[2:], into=lab.HERE)
    if controls.source == "texts":
        texts = ((one or "").strip().splitlines() for one in (controls.towards, controls.away))
        made = lab.Call(steering.mean_difference, (ref, controls.layer, *map(tuple, texts)))
    else:
        head = about.inputs.text, controls.layer, controls.writer, controls.place
        made = lab.Call(steering.head_direction, (ref, *head))
    with picture, st.spinner("Running the model without and with the direction"):
        direction = lab.study_of(made.function, *made.args)
        plain, steered = (
            lab.study_of(steering.steer, ref, about.inputs, made, size, settings)
            for size in (0.0, controls.strength)
        )
        sides = {"Without it": plain, "With it": steered}
        for column, (name, one) in zip(st.columns(2), sides.items(), strict=True):
            written = lab.plain(generate.decode_text(pretrained, one.tokens))
            column.markdown(f"**{name}**\n\n{written}")
        shares = {"with": steered.probabilities, "model": plain.probabilities}
        likeliest = [share.topk(study.LIKELIEST).indices.tolist() for share in shares.values()]
        names = lab.study_of(generate.token_names, ref, (*likeliest[0], *likeliest[1]))
        lab.fact(draw.steered_fact(controls.strength, controls.layer, plain, steered, names))
        lab.draw_chart(
            st,
            lab.bars(shares, names, likeliest[0][0], lab.Ink.of(lab.theme()), study.LIKELIEST),
            alt="The likeliest next tokens with the direction, and without it",
            key="generate:steered",
        )
    lab.caption(draw.STEERING)
    lab.as_python(
        "steered",
        {"generate:steered": draw.STEERING_CHART},
        direction=direction,
        plain=plain,
        steered=steered,
    )


def attended(
    about: Generation, view: study.StepView, path: Sequence[int], text_container: lab.Place
) -> Head:
    """The maps of a step, and in `text_container` the text with the weights of the chosen head."""
    ref, kind = about.ref, view.kind
    usual = most_informative_head(view.trace, view.ids, view.tokens)
    linked, bad = lab.read_pair("head", view.trace.shape)
    first = linked or lab.current_head_of(ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = picked = matrix(about, view, path, *(first or usual))
    with right:
        likeliest(about.settings, view)
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
        lab.caption(
            "Under a word: how much the framed word takes from it; under that: its probability."
        )
    lab.fact(draw.attention_fact(item, head, view.step, view.ids, view.tokens))
    return picked


def matrix(
    about: Generation, view: study.StepView, path: Sequence[int], layer: int, head: int
) -> Head:
    cross = view.kind == "cross"
    is_short = max(len(view.tokens), len(view.ids)) <= 32
    shape, of = view.trace.maps[layer].weights.shape[1:], (about, view.kind)
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
        row_slider=Controls.step.key_of(Controls(path=path)),
        title=f"What each new token takes from the {'source' if cross else 'text'}",
        reads="new token (row) takes from → read (column)",
        fact=f"{len(view.tokens)} new tokens take from {len(view.trace.maps[0].keys)} tokens",
    )
    Controls.pin.pin(picked.pin)
    return picked.layer, picked.head


def likeliest(settings: SearchSettings, view: study.StepView) -> None:
    shares = {"model": view.logits.softmax(-1)}
    if not draw.is_same(view.used, shares["model"]):
        used = "drawn from" if settings.strategy == "sampling" else "allowed"
        shares[used] = view.used
    lab.next_token_bars(
        shares, view.names, view.tokens[view.step], view.step + 1, max_bars=study.LIKELIEST
    )


def pick_candidate(path: Sequence[int], tree: Tree, candidate: int) -> None:
    """Pick the step of the pressed candidate, on the current path if that contains it, else on its own."""
    leaf = path[-1] if candidate in path else candidate
    Controls.at.pin((leaf, tree.candidates[candidate].step))


def timeline(
    tree: Tree,
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    path: Sequence[int],
    step: int,
) -> None:
    slider = st.container()
    controls = Controls(path=path, tree=tree, best=hypotheses[0].leaf)
    if len(hypotheses) > 1:
        which, slider = st.columns([0.4, 0.6], vertical_alignment="center")
        outputs = {
            one.leaf: lab.shorten(text) or "nothing"
            for one, text in zip(hypotheses[:8], texts, strict=False)
        }
        outputs.setdefault(path[-1], "Another path")
        Controls.set(output=path[-1])
        controls = controls.draw_more("output", into=which, outputs=outputs)
    if len(path) > 1:
        Controls.set(step=step + 1, path=path)
        controls.draw_more("step", into=slider)
