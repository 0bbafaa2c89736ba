"""Cost and speed: what each kernel takes as the text grows, measured here, and the weights that some imply."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import streamlit as st
import torch

import dashboard.page as lab
from core.attention import Choice, ConfigError
from core.attention.cost import CPU, CUDA, Progress, devices, race
from core.studies import efficient as study
from core.tokens import labels, tokenize
from dashboard.draw import efficient as draw

MAX_KERNELS = 6  # curves in one figure
PARAMS = (
    "efficient:params"  # what the kernels' own parameters begin with, in the session and the link
)


def limits_help(device: str) -> str:
    most = study.limits(device)
    return (
        f"A length is not measured where a call would need more than {lab.byte_size(most.bytes)} of memory or take "
        f"longer than {most.seconds:g} s."
    )


class Controls(lab.Fields, page="efficient"):
    kernels = lab.MultiSelect(
        f"Up to {MAX_KERNELS} kernels",
        {name: item.name for name, item in study.ENTRIES.items()},
        study.USUAL,
        max_options=MAX_KERNELS,
        help="A kernel is a way to compute attention. Each is one line of both figures.",
    )
    window = lab.SelectSlider(
        "Window of local and block-sparse",
        (16, 32, 64, 128, 256),
        study.Conditions.window,
        help="How many keys a query sees on each side.",
    )
    longest = lab.Select(
        "Measure here up to",
        (512, 1024, 2048, 4096, 8192),
        study.Conditions.longest,
        text="{:,} tokens".format,
        help=lambda _: limits_help(devices()[0]),
    )
    causal = lab.Select(
        "A query sees",
        {False: "every key", True: "keys before"},
        help="Every key, or only its own and those before it (a causal mask).",
    )
    backward = lab.Select(
        "Pass",
        {False: "forward", True: "and backward"},
        help="Training also runs a backward pass, which computes gradients.",
    )
    device = lab.Select(
        "Device",
        lambda _: devices(),
        text=lambda name: torch.cuda.get_device_name() if name == CUDA else "CPU",
        help="Where the kernels run.",
    ).optional(lambda _: len(devices()) > 1)
    sentence = lab.Text(
        "Sentence", "The animal was too tired .", span=2, help="Each word is one token."
    )
    head = lab.Select("Head", range(study.HEADS), help="The head that is drawn.")
    features = lab.Select(
        "Random features",
        (4, 16, 64, 256, 1024),
        64,
        help=study.ENTRIES["performer"].params[0].help,
    )
    few = lab.Select(
        "Rank, landmarks",
        (1, 2, 3, 4, 6, 8),
        3,
        help="The number of projected keys in Linformer and of landmarks in Nyström.",
    )
    implied_causal = lab.Toggle(
        "Causal",
        help="Hides later keys. Linformer and Nyström cannot do this and are left out.",
    )
    pin = lab.CellField()
    # what was measured here; the race that goes on, when it began, and its reports
    result = lab.SessionValue[study.Result | None](None)
    race = lab.SessionValue[tuple[study.Conditions, float, Iterator[Progress]] | None](None)


def page() -> None:
    lab.title(
        "Cost and speed",
        "What a longer text costs: each line is one way (kernel) to compute attention.",
    )
    lab.take_built("efficient", adopt, axes=("kernel",))
    lab.fragment_unless_measuring(benchmark)
    implied_weights()
    lab.details("Equations, papers and the code that just ran", sources, "efficient:sources")


def adopt(built: lab.Built) -> None:
    """Measure the kernel that was built elsewhere beside the usual ones."""
    kernels = dict.fromkeys(["exact", *(one.key for one in built.values()), *study.USUAL])
    Controls.set(kernels=[*kernels][:MAX_KERNELS])
    for choice in built.values():  # each kernel's parameters are its own, whichever are picked
        st.session_state.update(lab.choice_state(PARAMS, choice))


def benchmark() -> None:
    chosen, picture = draw_controls()
    with picture:
        measure()
        here = Controls.result.value
        result = here or lab.cached(study.load_result)
        if here:
            lab.recorded(study.measure, (here.conditions,), here)
        kernels = [choice.key for choice in chosen.kernels if result.of(choice.key)]
        growths = [lab.computed(study.growth_of, result, kernel) for kernel in kernels]
        if sentence := draw.fact_text(growths):
            lab.fact(sentence)
        if growths:
            figures(growths)
            lab.caption(draw.summary(result, growths))
        else:
            st.info("Pick a kernel to see its curves.", icon=":material/speed:")
        if not result.conditions.covers(chosen):
            lab.caption("These curves were measured before, with other controls. Press Measure.")
    lab.details("How this was measured", partial(conditions, result, here is None), "efficient:how")
    if growths:
        code = {
            "efficient:ms": draw.CURVES.format("seconds"),
            "efficient:MB": draw.CURVES.format("bytes"),
        }
        lab.as_python("benchmark", code, growths=growths)
    lab.details("All numbers of each kernel", partial(table, result, growths), "efficient:table")


def table(result: study.Result, growths: list[study.Growth]) -> None:
    lab.table(
        (
            "kernel",
            "tokens T",
            "time",
            "grows as",
            "FLOPs",
            "grow as",
            "peak memory",
            "grows as",
            "by formula",
            "measured up to",
            "error",
            "faster than fused",
        ),
        draw.table_rows(result, growths),
        markers=False,
        caption="Time, FLOPs and memory of each kernel at the longest length that all reach",
    )


def draw_controls() -> tuple[study.Conditions, st.delta_generator.DeltaGenerator]:
    """Draw the controls; returns what they say, and the place between them for the figures."""
    grid = st.grid(4 + (len(devices()) > 1), min_column_width=120, vertical_alignment="bottom")
    controls = Controls.draw("longest", "causal", "backward", "device", into=grid)
    picture = st.container()
    with lab.settings_panel("Kernels"):
        controls, choices = controls.draw_more("kernels", "window", into=lab.HERE), list[Choice]()
        for item in map(study.ENTRIES.__getitem__, controls.kernels):
            lab.paragraph(f"**{item.name}:** {item.meaning}")
            # A table's length follows the longest text.
            choices.append(
                Choice.of(item.key, **lab.params_of(item, key=PARAMS, exclude=(study.TABLE,)))
            )
    conditions = study.Conditions(
        tuple(choices),
        controls.longest,
        controls.causal,
        controls.backward,
        controls.window,
        controls.device or CPU,
    )
    with grid:
        st.button(
            "Measure",
            icon=":material/timer:",
            type="primary",
            width="stretch",
            key="efficient:measure",
            on_click=start,
            args=(conditions,),
            disabled=not conditions.configs()[0],
            help=limits_help(conditions.device),
        )
    with picture:
        for sentence in conditions.configs()[1]:
            st.info(lab.plain(sentence), icon=":material/block:")
    return conditions, picture


def conditions(result: study.Result, saved: bool) -> None:
    lab.caption(draw.conditions(result, saved))
    lab.caption(
        "Error: |output − exact output| / |exact output| on random q, k, v. Linear kernels and Performer compute "
        "another function than softmax attention, so theirs is large: it says how different, not how good."
    )


def start(chosen: study.Conditions) -> None:
    possible = tuple(choice for choice in chosen.kernels if choice.key in chosen.configs()[0])
    chosen = replace(chosen, kernels=possible)
    Controls.race.value = chosen, time.time(), study.start_race(chosen)


def measure() -> None:
    """Measure what remains of the race that was started; its points so far become the result."""
    if Controls.race.value is None:
        return
    chosen, began, reports = Controls.race.value
    try:
        values = lab.measure_with_progress(
            "efficient:progress",
            (chosen, began),
            range(chosen.reports),
            lambda _: next(reports).points,
            "rounds",
            math.inf,
        )
    except RuntimeError as error:  # such as where memory is short
        Controls.race.value = None
        st.error(lab.plain(str(error)))
        return
    if points := tuple(chain.from_iterable(values.values())):
        Controls.result.value = study.Result(chosen, points, study.machine(chosen.device))
    if len(values) == chosen.reports:
        Controls.race.value = None


def figures(growths: list[study.Growth]) -> None:
    # Name, unit, size of the unit, and how a number is written
    both = (
        ("Time", "ms", 1e-3, lab.duration),
        ("Peak memory", "MB", 1e6, lab.byte_size),
    )
    for column, (name, unit, size, write) in zip(st.columns(2, gap="medium"), both, strict=True):
        lines = draw.lines_of(growths, unit, size)
        lab.draw_chart(
            column,
            draw.log_log(name, unit, lines, lab.theme()),
            draw.draw_rows(lines, write, size),
            theme=None,
            key=f"efficient:{unit}",
            width="stretch",
            alt=f"{name} against the number of tokens, both logarithmic, one line for each kernel",
        )


def sources() -> None:
    lab.entries_panel(study.ENTRIES.values())
    lab.source_panel(race)


@lab.fragment
def implied_weights() -> None:
    st.markdown(
        "## Implied weights\n\nLinear and low-rank kernels compute no weights. These are the weights that "
        "would give their outputs, next to the weights of exact attention."
    )
    controls = Controls.draw("sentence", "head", "features", "few", "implied_causal")
    head, causal = controls.head, controls.implied_causal
    tokens = tokenize(controls.sentence).tokens[:48]
    if not tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return
    choices = [
        Choice("exact"),
        Choice("linear"),
        Choice.of("performer", features=controls.features),
        Choice.of("linformer", rank=controls.few),
        Choice.of("nystrom", landmarks=controls.few),
        Choice("retention"),
    ]
    implied, errors = [], []
    for choice in choices:
        try:
            implied.append(lab.cached(study.implied, choice, tokens, causal))
        except ConfigError as error:
            errors.append(str(error))
    tiles = [
        lab.Tile(
            study.ENTRIES[each.kernel].name,
            "softmax"
            if each.kernel == "exact"
            else f"implied, differs by {lab.share_text(each.mean_error)}",
            each.weights[head],
        )
        for each in implied
    ]
    sizes = {
        "performer": f" with {controls.features} features",
        "linformer": f" of rank {controls.few}",
        "nystrom": f" with {controls.few} landmarks",
    }
    sentence = draw.implied_fact(implied, sizes)
    lab.linked_maps(Controls.pin, "maps", tiles, labels(tokens), fact=sentence, height=190)
    lab.as_python("implied", weights=implied)
    lab.fact(sentence)
    lab.caption(
        " ".join(
            [
                f"Token vectors and projections of {study.D_MODEL} numbers are random (seed {study.SEED}) "
                "and the same for all. Implied weights: the kernel's output is these weights times the "
                "values. “Differs by”: the mean difference from the weights of exact attention.",
                *errors,
            ]
        ),
    )
