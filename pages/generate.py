"""Generate: a pretrained model goes on with a text or answers one, and every new token shows where it looked."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
    """What is searched for, and what is added meanwhile."""

    ref: lab.ModelRef
    inputs: ModelInputs
    settings: SearchSettings
    direction: tuple[Callable[..., Any], tuple[Any, ...]] | None = None  # what makes it
    strength: float = 0.0


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
    going, steering = (lab.SessionValue[dict[Generation, study.Search]]({}) for _ in range(2))


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
            searches = current_searches(Controls.going, [about], pretrained)
            with run_in_sight(searches, partial(best_so_far, about, pretrained)):
                lab.fragment_unless_measuring(
                    partial(outputs_view, about, searches[about], pretrained)
                )
        except (PretrainedError, ValueError) as error:
            st.info(lab.plain(str(error)), icon=":material/edit:")


def current_searches(
    going: lab.SessionValue[dict[Generation, study.Search]],
    abouts: Sequence[Generation],
    pretrained: Pretrained,
) -> dict[Generation, study.Search]:
    """The session's searches for these: the running ones, or new ones.

    PretrainedError when the model cannot continue these inputs.
    """
    going.value = {
        about: going.value.get(about) or new_search(about, pretrained) for about in abouts
    }
    return going.value


def new_search(about: Generation, pretrained: Pretrained) -> study.Search:
    finished = lab.measurements(FINISHED, about).get("search")
    start, tree = finished or (generate.prepare_generation(pretrained, about.inputs), Tree())
    hooks: generate.Hooks = nullcontext
    if made := about.direction:
        direction = lab.study_of(made[0], *made[1])
        hooks = partial(steering.add_direction, pretrained, direction, about.strength)
    steps = generate.generate_steps(pretrained, start, about.settings, hooks)
    return study.Search(about.settings, start, None if finished else steps, tree)


def run_in_sight(
    searches: dict[Generation, study.Search],
    show: Callable[[study.Search], object],
    key: str = "generate",
) -> lab.Place:
    """Run searches on, with their progress and Stop; the place of the results, with Continue where they were stopped.

    The progress takes the place of the results, so that nothing moves.
    """
    slot, parts, all_of = st.empty(), list[lab.Place](), searches.values()
    most = sum(min(one.settings.longest, one.start.room) for one in all_of)

    def stop(stopped: bool) -> None:
        for one in all_of:
            one.stopped = stopped

    def progress(search: study.Search) -> None:
        lab.leave_fragment()
        if not parts:
            left, right = slot.container().columns([0.86, 0.14])
            parts.append(left.empty())
            right.button(
                "Stop",
                icon=":material/stop:",
                key=f"{key}:stop",
                on_click=partial(stop, True),
                width="stretch",
            )
        length = sum(one.tree.length for one in all_of)
        with parts[0].container():
            st.progress(min(1.0, length / most), f"{length} of at most {most} tokens")
            show(search)

    for about, one in searches.items():
        study.run(one, progress)
        if one.done and len(one.tree.candidates) <= 2000:  # give it to all sessions
            lab.measurements(FINISHED, about).setdefault("search", (one.start, one.tree))
    place = slot.container()
    if not all(one.done for one in all_of):
        with place.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"Stopped after {sum(one.tree.length for one in all_of)} tokens.")
            st.button(
                "Continue",
                icon=":material/play_arrow:",
                key=f"{key}:go-on",
                on_click=partial(stop, False),
            )
    return place


def best_so_far(about: Generation, pretrained: Pretrained, search: study.Search) -> None:
    """The best output so far: its newest token with the attention, and likely tokens."""
    best = search.outputs()[0]
    result = generate.score_continuation(pretrained, search.start, best.tokens)
    path, kind = search.tree.path(best.leaf), (result.trace.kinds or ("causal",))[0]
    names = lab.measurements(NAMES, about.ref)  # those that any session has seen
    view = study.step_view(search, pretrained, path, len(best) - 1, result, kind, names)
    if view.trace.maps:
        layer, head = most_informative_head(view.trace, view.ids, view.tokens)
        st.html(draw.step_strips(view, view.trace.map(layer), head, lab.theme()))
    likeliest(about.settings, view)


@lab.input_errors()
def outputs_view(about: Generation, search: study.Search, pretrained: Pretrained) -> None:
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
                pretrained.name,
                search,
                settings,
                len(lab.tree_spots(tree, path, ranks)),
                view.note,
            )
        ),
        width=460,
    )
    lab.search_sources(settings.strategy, key="generate:source-code")


@lab.input_errors()
def steered_view(about: Generation, pretrained: Pretrained, words: Sequence[str]) -> None:
    """Draw the text that follows without and with a direction, the next token's probabilities, and what is added."""
    ref, settings = about.ref, SearchSettings(longest=about.settings.longest)
    controls = Controls(model=pretrained, words=words)
    controls = controls.draw_more("strength", "layer", into=st.container(horizontal=True))
    picture = st.container()
    controls = controls.draw_more(*STEERING[2:], into=lab.HERE)
    texts = ((one or "").strip().splitlines() for one in (controls.towards, controls.away))
    head = about.inputs.text, controls.layer, controls.writer, controls.place
    made = (
        (steering.mean_difference, (ref, controls.layer, *map(tuple, texts)))
        if controls.source == "texts"
        else (steering.head_direction, (ref, *head))
    )
    abouts = [
        Generation(ref, about.inputs, settings),
        Generation(ref, about.inputs, settings, made, controls.strength),
    ]
    with picture:
        searches = current_searches(Controls.steering, abouts, pretrained)
        with run_in_sight(searches, lambda search: None, "generate:steered"):
            plain, moved = (
                steered(one, search, lab.Call(*made)) for one, search in searches.items()
            )
            sides = {"Without it": plain, "With it": moved}
            for column, (name, one) in zip(st.columns(2), sides.items(), strict=True):
                written = lab.plain(generate.decode_text(pretrained, one.tokens))
                column.markdown(f"**{name}**\n\n{written}")
            shares = {"with": moved.probabilities, "model": plain.probabilities}
            likeliest = [one.topk(study.LIKELIEST).indices.tolist() for one in shares.values()]
            names = lab.study_of(generate.token_names, ref, (*likeliest[0], *likeliest[1]))
            lab.fact(draw.steered_fact(controls.strength, controls.layer, plain, moved, names))
            lab.draw_chart(
                st,
                lab.bars(shares, names, likeliest[0][0], lab.Ink.of(lab.theme()), study.LIKELIEST),
                alt="The likeliest next tokens with the direction, and without it",
                key="generate:steered",
            )
    lab.caption(draw.STEERING)
    if all(search.done for search in searches.values()):
        lab.as_python(
            "steered",
            {"generate:steered": draw.STEERING_CHART},
            direction=lab.study_of(made[0], *made[1]),
            plain=plain,
            steered=moved,
        )


def steered(about: Generation, search: study.Search, made: lab.Call) -> steering.SteeredText:
    """What a search has written so far, and the probabilities of its first token."""
    given = about.ref, about.inputs, made, about.strength
    text = steering.SteeredText(
        search.outputs()[0].tokens if search.tree.length else (),
        lab.study_of(steering.next_probabilities, *given),
    )
    return lab.recorded(steering.steer, (*given, about.settings), text)


def attended(
    about: Generation, view: study.StepView, path: Sequence[int], text_container: lab.Place
) -> Head:
    """The maps of a step, and in `text_container` the text with the weights of the chosen head."""
    ref, kind = about.ref, view.kind
    usual = most_informative_head(view.trace, view.ids, view.tokens)
    linked, bad = lab.read_pair("head", view.trace.shape)
    first = linked or lab.current_head_of(ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    cross, shape = kind == "cross", view.trace.maps[(first or usual)[0]].weights.shape[1:]
    with left:
        pinned = lab.attention_view(
            view.trace,
            key=f"generate:map:{kind}",
            pin=Controls.pin.pinned(shape, (about, kind)),
            layer=(first or usual)[0],
            head=(first or usual)[1],
            query=view.step,
            show="both" if cross and max(len(view.tokens), len(view.ids)) <= 32 else "matrix",
            height=420,
            link=f"generate:{kind}",
            row_slider=Controls.step.key_of(Controls(path=path)),
            title=f"What each new token takes from the {'source' if cross else 'text'}",
            reads="new token (row) takes from → read (column)",
            fact=f"{len(view.tokens)} new tokens take from {len(view.trace.maps[0].keys)} tokens",
        )
        Controls.pin.pin(pinned.pin)
        layer, head = picked = pinned.layer, pinned.head
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
