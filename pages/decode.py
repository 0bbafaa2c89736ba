"""Decode: greedy, beam search and sampling on a trained model, with the tree of what it might have said."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models import Seq2Seq
from core.models.decoding import (
    EOS,
    ForcedSteps,
    Hypothesis,
    SearchSettings,
    force_tokens,
    penalty,
)
from core.runs.runs import Run
from core.studies.decode import (
    HELD_OUT,
    LONGEST,
    SECONDS,
    SOURCES,
    Checkpoint,
    Score,
    SearchResult,
    compare_strategies,
    decodable_runs,
    decode,
    default_example,
    source_text,
)
from core.tasks import Task, task_of
from core.tokens import token_text

T = TypeVar("T")


RUN = "decode:run"
HALF_TRAINED = Run(lab.EXAMPLE_FOLDER / "example_numbers")
LINKED = "run"  # the query parameter of the run, shared with the other pages of this group
EXAMPLES = {
    "example_numbers": "Number words, half trained",
    "example_run": "Reverse, Transformer",
    "example_recurrent": "Reverse, recurrent",
}


class Controls(lab.Search, page="decode"):
    FIRST, WIDEST, ALPHA, SAMPLES = "Beam", 16, 0.0, (20, 100)

    step = lab.Select(
        "Trained for",
        lambda values: values.run.checkpoint_steps(),
        lambda values: values.run.default_step(),
        text="{:,} steps".format,
        key=lambda values: f"step:{values.run.id}",
        hidden=True,
        help="The training step of the weights.",
    ).optional(lambda values: len(values.run.checkpoint_steps()) > 1)
    place = lab.Select[int](
        "Held-out source",
        lambda values: {
            at: f"{at}: {' '.join(values.task.display_tokens(one)[1])}"
            for at, one in enumerate(values.examples)
        },
        hidden=True,
        help="Its number and its target.",
    )
    source = lab.Text(
        lambda values: "Source" if values.task.form == "pairs" else "Text to continue",
        lambda values: values.start,
        of=lambda values: values.of,
        help="What the model reads; you can type your own.",
    )
    longest = lab.Number(
        "Most tokens",
        lambda values: most_tokens(values)[1],
        1,
        lambda values: most_tokens(values)[0],
        slider=True,
        key=lambda values: f"longest:{most_tokens(values)[0]}",
        hidden=True,
        help="An output without an end mark is cut at this length.",
    )
    head = lab.Select[tuple[int, int]](
        "Head",
        lambda values: values.heads,
        lambda values: values.sharpest,
        text=lambda head: f"L{head[0]}·H{head[1]}",
        key=lambda values: f"head:{values.of}",
        hidden=True,
        help="Layer and head, both from 0; first the head with the sharpest weights.",
        also=lambda values: {"width": lab.room(180)},
    )


def most_tokens(values: lab.Values) -> tuple[int, int]:
    """The most tokens of an output of the task, and how many it has at first."""
    task = values.task
    return (task.max_target + 1,) * 2 if task.form == "pairs" else (LONGEST, 40)


def load(checkpoint: Checkpoint) -> tuple[Seq2Seq, Task]:
    """The shared model, never to be changed, and its task; ValueError or ConfigError."""
    return lab.model(Checkpoint.load, checkpoint)


def study(function: Callable[..., T], checkpoint: Checkpoint, *args: Hashable) -> T:
    """function(model, task, *args), cached and shared."""
    return lab.shared(_with_model, function, checkpoint, *args)


def _with_model(function: Callable[..., T], checkpoint: Checkpoint, *args: Hashable) -> T:
    return function(*load(checkpoint), *args)


key = "decode:{}".format  # a widget's key, which is also its name in the link


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
            "The run in the link is not on this machine, has no saved weights, or has no decoder. "
            "Below is the example."
        )
        st.session_state.pop(RUN, None)
        linked = HALF_TRAINED.id
    candidates = (
        linked,
        st.session_state.get(RUN),
        st.session_state.get(lab.LAST),
        HALF_TRAINED.id,
    )
    run_id = next(name for name in candidates if name and name in runs)
    st.session_state[RUN] = run_id
    return runs[run_id], trouble


def draw_controls(runs: Mapping[str, Run], run: Run) -> lab.Values:
    """The run, its checkpoint, the source (typed, or the index of a held-out one), and the settings of the search."""
    run_cell, way, first = st.columns([1.4, 1.2, 1.2])
    run_cell.selectbox(
        "Run",
        list(runs),
        format_func=lambda name: run_name(runs[name]),
        key=RUN,
        on_change=lab.guarded(RUN, lambda: st.query_params.update({LINKED: st.session_state[RUN]})),
        help="The trained model that decodes.",
    )
    source_cell, other, rest = st.columns([0.72, 0.14, 0.14], vertical_alignment="bottom")
    with rest.popover("More", icon=":material/tune:", width="stretch"):
        step = Controls.draw("step", into=lab.HERE, run=run).step
        checkpoint = Checkpoint.of(run, step or run.checkpoint_steps()[0])
        task = load(checkpoint)[1]
        settings = lab.draw_search(Controls, way, first, lab.HERE, task=task)
    return lab.Values(
        run=run,
        checkpoint=checkpoint,
        source=_source(checkpoint, task, source_cell, other),
        settings=settings,
    )


def _source(checkpoint: Checkpoint, task: Task, cell: Any, beside: Any) -> str | int:
    examples = task.held_out(HELD_OUT)
    if task.input != "tokens":
        return int(Controls.draw("place", into=cell, examples=examples, task=task).place)
    start = source_text(task, examples[study(default_example, checkpoint)])
    typed = Controls.draw("source", into=cell, task=task, start=start, of=checkpoint.path).source

    def another() -> None:
        texts = [source_text(task, example) for example in examples]
        current = st.session_state.get("decode:source")
        index = texts.index(current) if current in texts else -1
        st.session_state["decode:source"] = texts[(index + 1) % len(texts)]

    beside.button(
        "Another",
        icon=":material/shuffle:",
        help=f"Show the next of {HELD_OUT} held-out sources.",
        key=key("another"),
        on_click=another,
        width="stretch",
    )
    return str(typed)


# What the page computes as Python.


def script(controls: lab.Values, result: SearchResult, path: list[int]) -> lab.Script:
    steps = force_tokens(load(controls.checkpoint)[0], result.prompt, result.tree.tokens(path[-1]))
    return lab.Script(
        (
            lab.Cell(
                "A search of one source by a trained model: every candidate that it considered, and its outputs.",
                f"""
from core.models.decoding import SearchSettings
from core.runs.runs import open_run
from core.studies.decode import decode

model, task = open_run({lab.path_code(controls.run.path)}).model({controls.checkpoint.step})  # the weights of that step
settings = {lab.source_of(controls.settings)}
result = decode(model, task, {controls.source!r}, settings)  # a source to read, or the number of a held-out one
prompt, tree = result.prompt, result.tree
for output in tree.hypotheses:
    print(task.separator.join(map(str, task.target_vocab.decode(output.tokens))), output.logp)
""",
                """
import altair as alt
import pandas as pd

rows = [(one.step, task.target_vocab.tokens[one.token], one.total, one.fate) for one in tree.candidates]
alt.Chart(pd.DataFrame(rows, columns=["step", "token", "total", "fate"])).mark_text().encode(
    x="step:O", y="total", text="token", color="fate")
""",
                "decode:tree",
            ),
            lab.Cell(
                "The attention of each step of one path through the tree, and the likeliest tokens at its last step.",
                f"""
from core.models.decoding import force_tokens

tokens = tree.tokens({path[-1]})  # the path to that candidate
steps = force_tokens(model, prompt, tokens)
weights = [layer.numpy() for layer in steps.source_attention]  # (H, T, S) a layer
probabilities = steps.logp[-1].exp()  # of every token after the others
print([(task.target_vocab.tokens[index], float(probabilities[index])) for index in probabilities.topk(3).indices])
""",
                """
from dashboard.show import show_maps

names = [str(task.target_vocab.tokens[token]) for token in tokens]
show_maps({"Layer 0, head 0": weights[0][0]}, names, [str(key) for key in range(weights[0].shape[-1])])
"""
                if steps.source_attention
                else "",
                "decode:map",
            ),
        ),
        {
            "[(one.token, one.step, one.logp, one.total) for one in tree.candidates]": np.array(
                [(one.token, one.step, one.logp, one.total) for one in result.tree.candidates]
            ),
            "[output.score for output in tree.hypotheses]": np.array(
                [one.score for one in result.tree.hypotheses]
            ),
            "probabilities": steps.logp[-1].exp().numpy(),
            **{
                f"weights[{layer}]": each.float().numpy()
                for layer, each in enumerate(steps.source_attention)
            },
        },
    )


# The page's sentences and equations, with the numbers of the search.


def names_text(task: Task) -> list[str]:
    return [
        "end" if i == EOS else token_text(token) for i, token in enumerate(task.target_vocab.tokens)
    ]


def output_text(task: Task, tokens: Sequence[int]) -> str:
    words = task.target_vocab.decode(tokens)
    glue = " " if any(len(word) > 1 for word in words) or task.separator else ""
    return glue.join(words) or "nothing"


def _quoted(task: Task, one: Hypothesis) -> str:
    return lab.plain(lab.shorten(output_text(task, one.tokens)))


def is_correct(result: SearchResult, task: Task, one: Hypothesis) -> bool:
    return tuple(task.target_vocab.decode(one.tokens)) == result.target


def _verdict(result: SearchResult, task: Task, one: Hypothesis) -> str:
    if result.target is None:
        return ""
    return ", which is correct" if is_correct(result, task, one) else ", which is wrong"


def _probability(logp: float) -> str:
    return lab.number(math.exp(logp))


def fact_text(
    result: SearchResult, task: Task, settings: SearchSettings, greedy: Hypothesis
) -> str:
    best = result.tree.hypotheses[0]
    output = f"**{_quoted(task, best)}**{_verdict(result, task, best)}"
    chance = _probability(best.logp)
    if settings.strategy == "greedy":
        weak = min(
            (result.tree.candidates[index] for index in result.tree.path(best.leaf)),
            key=lambda one: one.logp,
        )
        return (
            f"The most probable token at each step gives {output}, with a total probability of "
            f"{chance}; the least certain token is {lab.plain(names_text(task)[weak.token])}, with "
            f"{_probability(weak.logp)}."
        )
    usual = (
        f"{_quoted(task, greedy)}{_verdict(result, task, greedy)}, with {_probability(greedy.logp)}"
    )
    other = f"greedy decoding gives {'the same' if best.tokens == greedy.tokens else usual}."
    if settings.strategy == "beam":
        return f"A beam of {settings.width} gives {output}, with probability {chance}; {other}"
    samples = sum(one.samples for one in result.tree.hypotheses)
    return (
        f"{best.samples} of {samples} samples {'is' if samples == 1 else 'are'} {output}; the model gives it "
        f"{chance}; {other}"
    )


def strategy_name(settings: SearchSettings) -> str:
    return {
        "greedy": "Greedy",
        "beam": f"Beam of {settings.width}, α {settings.length_penalty:g}",
        "sampling": f"Most frequent of {settings.samples} samples, T {settings.temperature:g}",
    }[settings.strategy]


def scores_fact(greedy: Score, other: Score) -> str:
    probable = "more probable" if other.logp > greedy.logp + 1e-3 else "no more probable"
    change = 100 * (other.sequence_accuracy - greedy.sequence_accuracy)
    points = f"{abs(change):.0f} points {'higher' if change > 0 else 'lower'}"
    accuracy = "the same" if abs(change) < 0.5 else points
    return (
        f"The outputs of this search are {probable} than those of greedy decoding (log-probability "
        f"{lab.number(other.logp)} and {lab.number(greedy.logp)}). Their accuracy is {accuracy}: "
        f"{lab.percent(other.sequence_accuracy)} "
        f"and {lab.percent(greedy.sequence_accuracy)}."
    )


# The page Decode: the tree, the sentence about it, and everything about the candidate that is picked.


PICKED, OF, COMPARED = "decode:picked", "decode:picked-of", "decode:measured"


@lab.fragment
@lab.shown_errors(ValueError)
def page() -> None:
    lab.export.begin_before_title()
    lab.title(
        "Decode: which outputs a search finds",
        "A model could write many outputs. A search tries some, and takes one.",
        first=False,
    )
    runs = decodable_runs((HALF_TRAINED, *lab.EXAMPLE_RUNS))
    run, trouble = choose_run(runs)
    lab.forget_other_runs("decode", run.id)
    if trouble:
        st.warning(lab.plain(trouble))
    controls = draw_controls(runs, run)
    result = study(decode, controls.checkpoint, controls.source, controls.settings)
    _, task = load(controls.checkpoint)
    path = _picked_path(controls, result)
    lab.add_script(partial(script, controls, result, path))
    names = names_text(task)
    lab.tree_view(
        result.tree,
        names,
        path,
        f"{len(result.tree.candidates)} candidates; the best output is "
        f"{output_text(task, result.tree.hypotheses[0].tokens)}.",
        theme=lab.theme(),
        follow=st.session_state[PICKED] is not None,
        key="decode:tree",
        on_pick=lambda: st.session_state.update(
            {PICKED: st.session_state["decode:tree"].get("pick")}
        ),
    )
    plainest = study(
        decode, controls.checkpoint, controls.source, replace(controls.settings, strategy="greedy")
    ).tree.hypotheses[0]
    lab.fact(fact_text(result, task, controls.settings, plainest))
    outputs = result.tree.hypotheses
    lab.outputs_table(
        outputs,
        [output_text(task, one.tokens) for one in outputs],
        controls.settings.strategy == "sampling",
        [is_correct(result, task, one) for one in outputs] if result.target is not None else (),
    )
    count, visible = len(result.tree.candidates), len(lab.tree_spots(result.tree, path))
    more = f" {count - visible} of them are not shown." if count > visible else ""
    unknown = f" Not in the vocabulary, read as <unk>: {', '.join(result.unknown)}."
    target = "" if result.target is None else f" Target: {task.separator.join(result.target)}."
    lab.caption(
        lab.plain(
            f"{run_name(controls.run)}, step {controls.checkpoint.step:,}. {count:,} candidates computed in "
            f"{lab.duration(result.seconds)} on one core.{more} Each number is the probability of a token "
            "after those before it. Solid boxes can be continued, or end an output"
            + " and take no place in the beam" * (controls.settings.strategy == "beam")
            + f"; dashed ones were dropped.{target}{unknown if result.unknown else ''}"
        ),
    )
    _along_path(controls, result, path)
    _comparison(controls)
    lab.search_sources(controls.settings.strategy, key="decode:source-code")


def _picked_path(controls: lab.Values, result: SearchResult) -> list[int]:
    """The path to the candidate that was pressed in this tree, else to the end of the best output."""
    if st.session_state.get(OF) != controls:
        st.session_state[OF], st.session_state[PICKED] = controls, None
        lab.take_link(PICKED, lab.between(0, len(result.tree.candidates) - 1))
    index = st.session_state.get(PICKED)
    if not isinstance(index, int) or not 0 <= index < len(result.tree.candidates):
        index = None
    lab.write_link(PICKED, None if index is None else str(index))
    return result.tree.path(result.tree.hypotheses[0].leaf if index is None else index)


def _along_path(controls: lab.Values, result: SearchResult, path: list[int]) -> None:
    model, task = load(controls.checkpoint)
    tokens = result.tree.tokens(path[-1])
    steps = force_tokens(model, result.prompt, tokens)
    left, right = st.columns([0.52, 0.48], gap="medium")
    with left:
        _attention(result, task, steps, tokens)
    with right:
        # The most probable tokens at the picked step: by the model, and as they are sampled
        settings = controls.settings
        logp = steps.logp[-1]
        shares = {"model": logp.exp()}
        if settings.strategy == "sampling":
            shares["drawn from"] = settings.sampling.reshape(logp[None])[0].softmax(-1)
        lab.next_token_bars(shares, names_text(task), tokens[-1], len(steps.logp))
        st.latex(
            lab.search_equation(
                settings, result.tree, path, -1, "t", r"\left(\frac{{5 + {}}}{{6}}\right)", penalty
            ),
            width="content",
        )


def _attention(result: SearchResult, task: Task, steps: ForcedSteps, tokens: Sequence[int]) -> None:
    if not steps.source_attention:
        lab.caption(
            "This model has no attention: at each step it reads only the encoder's last state.",
        )
        return
    generated = tuple(names_text(task)[token] for token in tokens)
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
        st.markdown("**What each step attends to**")
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
        title="What each step attends to",
        fact=f"The attention of {len(generated)} steps to {len(keys)} input tokens",
    )


def _comparison(controls: lab.Values) -> None:
    _, task = load(controls.checkpoint)
    if task.form != "pairs":
        return
    measured = (controls.checkpoint, controls.settings)
    if st.button(
        f"Measure on {SOURCES} held-out sources",
        icon=":material/speed:",
        type="tertiary",
        key="decode:measure",
        help=f"It takes one or two seconds, at most {SECONDS}.",
    ):
        st.session_state[COMPARED] = measured
    if st.session_state.get(COMPARED) != measured:
        return
    strategies = tuple(
        dict.fromkeys((replace(controls.settings, strategy="greedy"), controls.settings))
    )
    with st.spinner("Decoding"):
        count, scores = study(compare_strategies, controls.checkpoint, strategies)
    optional = {
        name: key
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if getattr(scores[0], key) is not None
    }
    overlap = f" {' and '.join(optional)}: how much of its target an output has, from 0 to 100."
    held_out = f"{count} held-out sources"
    lab.table(
        ["strategy", "accuracy", *optional, "log-probability", "tokens"],
        [
            [
                strategy_name(settings),
                lab.percent(one.sequence_accuracy),
                *(lab.number(getattr(one, key)) for key in optional.values()),
                lab.number(one.logp),
                lab.number(one.tokens),
            ]
            for settings, one in zip(strategies, scores, strict=True)
        ],
        caption=f"Means over {held_out}",
        markers=False,
    )
    longest = task.max_target + 1
    cut = (
        f" Cut at {min(controls.settings.longest or longest, longest)} tokens, before an end token: "
        f"{' and '.join(str(one.cut) for one in scores)} outputs."
    )
    lab.caption(
        f"Means over the same {held_out}.{overlap if optional else ''}"
        f"{cut if any(one.cut for one in scores) else ''}",
    )
    if len(scores) == 2:
        lab.fact(scores_fact(*scores))
