"""Decode: greedy, beam search and sampling on a trained model, with the tree of what it might have said."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models import Seq2Seq
from core.models.decoding import ForcedSteps, SearchSettings, force_tokens, penalty
from core.runs.runs import Run
from core.studies import decode as study
from core.tasks import Example, Task, task_of
from dashboard.draw import decode as draw

T = TypeVar("T")
HALF_TRAINED = Run(lab.EXAMPLE_FOLDER / "example_numbers")
LINKED = "run"  # the query parameter of the run, shared with the other pages of this group
EXAMPLES = {
    "example_numbers": "Number words, half trained",
    "example_run": "Reverse, Transformer",
    "example_recurrent": "Reverse, recurrent",
}


def link_run(c: "Controls") -> None:
    """Name the chosen run in the link."""
    st.query_params[LINKED] = c.read("run_id", **vars(c)).run_id


class Controls(lab.Search, page="decode"):
    FIRST, WIDEST, ALPHA, SAMPLES = "Beam", 16, 0.0, (20, 100)
    names: Mapping[str, str]  # of the runs, by their ids
    first: str  # the id of the run at the start
    run: Run
    task: Task
    examples: list[Example]

    run_id = lab.Select[str](
        "Run",
        lambda c: c.names,
        lambda c: c.first,
        key="run",
        help="The trained model that decodes.",
        # the link has it by another name, and a run that was trained meanwhile goes before the last one
        also=lambda c: {
            "bind": None,
            "persist_state": None,
            "on_change": link_run,
            "args": (c,),
        },
    )
    step = lab.Select(
        "Trained for",
        lambda c: c.run.checkpoint_steps(),
        lambda c: c.run.default_step(),
        text="{:,} steps".format,
        key=lambda c: f"step:{c.run.id}",
        hidden=True,
        help="The training step of the weights.",
    ).optional(lambda c: len(c.run.checkpoint_steps()) > 1)
    place = lab.Select[int](
        "Held-out source",
        lambda c: {
            at: f"{at}: {' '.join(c.task.display_tokens(one)[1])}"
            for at, one in enumerate(c.examples)
        },
        hidden=True,
        help="Its number and its target.",
    )
    source = lab.Text(
        lambda c: "Source" if c.task.form == "pairs" else "Text to continue",
        lambda c: c.start,
        of=lambda c: c.of,
        help="What the model reads; you can type your own.",
    )
    longest = lab.Number(
        "Most tokens",
        lambda c: most_tokens(c)[1],
        1,
        lambda c: most_tokens(c)[0],
        slider=True,
        key=lambda c: f"longest:{most_tokens(c)[0]}",
        hidden=True,
        help="An output without an end mark is cut at this length.",
    )
    head = lab.Select[tuple[int, int]](
        "Head",
        lambda c: c.heads,
        lambda c: c.sharpest,
        text=lambda head: f"L{head[0]}·H{head[1]}",
        key=lambda c: f"head:{c.of}",
        hidden=True,
        help="Layer and head, both from 0; first the head with the sharpest weights.",
        also=lambda c: {"width": lab.room(180)},
    )
    picked = lab.LinkedValue[int | None](None)  # a candidate of the tree
    picked_of = lab.SessionValue[tuple[object, ...]](())  # the search that it is of
    measured = lab.SessionValue[tuple[object, ...]](())  # what strategies were compared of

    @property
    def checkpoint(self) -> study.Checkpoint:
        return study.Checkpoint.of(self.run, self.step or self.run.checkpoint_steps()[0])


def most_tokens(c: Controls) -> tuple[int, int]:
    """The most tokens of an output of the task, and how many it has at first."""
    task = c.task
    return (task.max_target + 1,) * 2 if task.form == "pairs" else (study.LONGEST, 40)


def load(checkpoint: study.Checkpoint) -> tuple[Seq2Seq, Task]:
    """The shared model, never to be changed, and its task; ValueError or ConfigError."""
    return lab.model(study.Checkpoint.load, checkpoint)


def of_model(function: Callable[..., T], checkpoint: study.Checkpoint, *args: Hashable) -> T:
    """function(model, task, *args), cached and shared."""
    return lab.shared(_with_model, function, checkpoint, *args)


def _with_model(function: Callable[..., T], checkpoint: study.Checkpoint, *args: Hashable) -> T:
    return function(*load(checkpoint), *args)


def search(
    run: Run, checkpoint: study.Checkpoint, source: str | int, settings: SearchSettings
) -> study.SearchResult:
    result = of_model(study.decode, checkpoint, source, settings)
    return lab.recorded(study.search_run, (run, checkpoint.step, source, settings), result)


def run_name(run: Run) -> str:
    if run.id in EXAMPLES:
        return f"{EXAMPLES[run.id]} (example)"
    config = run.config()
    return (
        run.name
        if run.name != run.id
        else f"{task_of(config.task).name}, {config.model.kind}, {run.id[9:15]}"
    )


def choose_run(runs: Mapping[str, Run]) -> tuple[Run, str]:
    """The run of the link, of this page or of Train, else the example; and a warning about the link."""
    linked, trouble = st.query_params.get(LINKED), ""
    if linked is not None and linked not in runs:
        trouble = (
            "The run in the link is not on this machine, has no saved weights, or writes no outputs. "
            "Below is the example."
        )
        linked = HALF_TRAINED.id
    if linked:
        Controls.set(run_id=linked)
    last = lab.SessionValue(HALF_TRAINED.id, lab.LAST).value
    first = last if last in runs else HALF_TRAINED.id
    return runs[Controls.read("run_id", names=dict.fromkeys(runs, ""), first=first).run_id], trouble


def draw_controls(runs: Mapping[str, Run], run: Run) -> tuple[Controls, str | int]:
    """The controls, and the source: typed, or the number of a held-out one."""
    run_cell, way, first = st.columns([1.4, 1.2, 1.2])
    names = {name: run_name(one) for name, one in runs.items()}
    controls = Controls.draw("run_id", into=run_cell, names=names, first=run.id, run=run)
    source_cell, other = st.columns([0.72, 0.28], vertical_alignment="bottom")
    other = other.container(horizontal=True)  # one row on a phone, too
    with other.popover("More", icon=":material/tune:", width="stretch"):
        controls = controls.draw_more("step", into=lab.HERE)
        _, task = load(controls.checkpoint)
        controls = controls.draw_search(way, first, lab.HERE, task=task)
    examples = task.held_out(study.HELD_OUT)
    if task.input != "tokens":
        controls = controls.draw_more("place", into=source_cell, examples=examples)
        return controls, int(controls.place)
    start = study.source_text(task, examples[of_model(study.default_example, controls.checkpoint)])
    controls = controls.draw_more(
        "source", into=source_cell, start=start, of=controls.checkpoint.path
    )

    def another() -> None:
        texts = [study.source_text(task, example) for example in examples]
        current = Controls.read("source", **vars(controls)).source
        index = texts.index(current) if current in texts else -1
        Controls.set(source=texts[(index + 1) % len(texts)])

    other.button(
        "Another",
        icon=":material/shuffle:",
        help=f"Show the next of {study.HELD_OUT} held-out sources.",
        key="decode:another",
        on_click=another,
        width="stretch",
    )
    return controls, controls.source


@lab.fragment
@lab.shown_errors(ValueError)
def page() -> None:
    lab.export.begin_before_title()
    lab.title(
        "Decode: which outputs a search finds",
        "Each box is a possible next word and its probability; a search keeps a few.",
        first=False,
    )
    runs = study.decodable_runs((HALF_TRAINED, *lab.EXAMPLE_RUNS))
    run, trouble = choose_run(runs)
    lab.forget_other_runs("decode", run.id)
    if trouble:
        st.warning(lab.plain(trouble))
    controls, source = draw_controls(runs, run)
    checkpoint, settings = controls.checkpoint, controls.settings
    model, task = load(checkpoint)
    result = search(run, checkpoint, source, settings)
    path = picked_path(result, (checkpoint, source, settings))
    steps = lab.recorded(
        study.path_of,
        (run, checkpoint.step, result, path[-1]),
        force_tokens(model, result.prompt, result.tree.tokens(path[-1])),
    )
    cell = draw.outputs_cell(lab.run_code(run.path), checkpoint.step, result, steps)
    ranks = min(
        8, settings.width + 1
    )  # of a step: what the beam keeps, and the first that it drops
    greedy = replace(settings, strategy="greedy")
    plainest = search(run, checkpoint, source, greedy).tree.hypotheses[0]
    lab.fact(draw.fact_text(result, task, settings, plainest))
    lab.tree_view(
        result.tree,
        draw.names_text(task),
        path,
        f"{len(result.tree.candidates)} candidates; the best output is "
        f"{draw.output_text(task, result.tree.hypotheses[0].tokens)}.",
        theme=lab.theme(),
        follow=Controls.picked.value is not None,
        key="decode:tree",
        on_pick=Controls.picked.set,
        ranks=ranks,
    )
    along_path(settings, task, result, path, steps)
    outputs = result.tree.hypotheses
    lab.outputs_table(
        outputs,
        [draw.output_text(task, one.tokens) for one in outputs],
        settings.strategy == "sampling",
        [draw.is_correct(result, task, one) for one in outputs]
        if result.target is not None
        else (),
    )
    visible = len(lab.tree_spots(result.tree, path, ranks))
    words = draw.conditions(result, task, settings, visible)
    lab.caption(lab.plain(f"{run_name(run)}, step {checkpoint.step:,}. {words}"))
    lab.as_python(tree=result.tree, path=steps, also=[cell])
    if task.form == "pairs":
        comparison(task, checkpoint, settings)
    lab.search_sources(settings.strategy, key="decode:source-code")


def picked_path(result: study.SearchResult, of: tuple[object, ...]) -> list[int]:
    """The path to the candidate that was pressed in this tree, else to the end of the best output."""
    if Controls.picked_of.value != of:
        Controls.picked_of.value, Controls.picked.value = of, None
    index = Controls.picked.linked(lab.between(0, len(result.tree.candidates) - 1))
    return result.tree.path(result.tree.hypotheses[0].leaf if index is None else index)


def along_path(
    settings: SearchSettings,
    task: Task,
    result: study.SearchResult,
    path: list[int],
    steps: ForcedSteps,
) -> None:
    tokens = result.tree.tokens(path[-1])
    left, right = st.columns([0.52, 0.48], gap="medium")
    with left:
        attention(result, task, steps, tokens)
    with right:
        # The most probable tokens at the picked step: by the model, and as they are sampled
        logp = steps.logp[-1]
        shares = {"model": logp.exp()}
        if settings.strategy == "sampling":
            shares["drawn from"] = settings.sampling.reshape(logp[None])[0].softmax(-1)
        lab.next_token_bars(shares, draw.names_text(task), tokens[-1], len(steps.logp))
        equation = lab.search_equation(
            settings, result.tree, path, -1, "t", r"\left(\frac{{5 + {}}}{{6}}\right)", penalty
        )
        lab.details(
            "Its score in numbers", partial(st.latex, equation, width="content"), "decode:score"
        )


def attention(
    result: study.SearchResult, task: Task, steps: ForcedSteps, tokens: tuple[int, ...]
) -> None:
    if not steps.source_attention:
        lab.caption(
            "This model has no attention: at each step it reads only the encoder's last state.",
        )
        return
    generated = tuple(draw.names_text(task)[token] for token in tokens)
    keys = (*result.source, *generated[:-1]) if result.prompt.text else result.source
    maps = [
        AttentionMap("cross", layer, np.ascontiguousarray(weights), generated, tuple(keys))
        for layer, weights in enumerate(
            [weights.float().cpu().numpy() for weights in steps.source_attention]
        )
    ]
    # The sharpest head, until another is chosen
    heads = {
        (one.layer, head): float(weights.max(-1).mean())
        for one in maps
        for head, weights in enumerate(one.weights)
    }
    layer, head = sharpest = max(heads, key=heads.__getitem__)
    if len(heads) > 1:
        layer, head = Controls.draw(
            "head",
            into=lab.HERE,
            heads=list(heads),
            sharpest=sharpest,
            of=f"{len(maps)}:{len(maps[0].weights)}",
        ).head
    if task.input == "patches":
        st.markdown("**What each step takes from**")
        source, weights = result.prompt.source[0].tolist(), maps[layer].weights[head]
        grid, ink = task.shape.grid, lab.Ink.of(lab.theme())
        st.html(lab.tiles(source, grid, generated, weights, lab.theme(), ink))
        return
    lab.attention_view(
        AttentionTrace(tuple(maps), "decoded"),
        key="decode:map",
        layer=layer,
        head=head,
        query=len(generated) - 1,
        show="matrix",
        height=420,
        title="What each step takes from",
        fact=f"The attention of {len(generated)} steps to {len(keys)} input tokens",
    )


def comparison(task: Task, checkpoint: study.Checkpoint, settings: SearchSettings) -> None:
    if st.button(
        f"Measure on {study.SOURCES} held-out sources",
        icon=":material/speed:",
        type="tertiary",
        key="decode:measure",
        help=f"It takes one or two seconds, at most {study.SECONDS}.",
    ):
        Controls.measured.value = checkpoint, settings
    if Controls.measured.value != (checkpoint, settings):
        return
    strategies = tuple(dict.fromkeys((replace(settings, strategy="greedy"), settings)))
    with st.spinner("Decoding"):
        count, scores = of_model(study.compare_strategies, checkpoint, strategies)
    optional = {
        name: key
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if getattr(scores[0], key) is not None
    }
    held_out = f"{count} held-out sources"
    lab.table(
        ["strategy", "accuracy", *optional, "log-probability", "tokens"],
        draw.score_rows(strategies, scores, [*optional.values()]),
        caption=f"Means over {held_out}",
        markers=False,
    )
    words = [f"Means over the same {held_out}."]
    if optional:
        words.append(
            f"{' and '.join(optional)}: how much of its target an output has, from 0 to 100."
        )
    if any(one.cut for one in scores):
        longest = task.max_target + 1
        words.append(
            f"Cut at {min(settings.longest or longest, longest)} tokens, before an end token: "
            f"{' and '.join(str(one.cut) for one in scores)} outputs."
        )
    lab.caption(" ".join(words))
    if len(scores) == 2:
        lab.fact(draw.scores_fact(*scores))
