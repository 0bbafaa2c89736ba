"""Cache and decoding: what a decoder stores of each token, what that saves, and how much memory it takes."""

from collections.abc import Mapping
from functools import partial
from html import escape

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import Attention, Choice
from core.models.cards import (
    FORMS,
    MODELS,
    WINDOW,
    ModelCard,
    Step,
    cache_bytes,
    decoding_step,
    intensity,
)
from core.pretrained.hf_conversion import SEEDED, TRAINED, load_lab_decoder
from core.studies import decode as study
from core.studies.efficient import machine
from core.tokens import token_text

# The controls of each part of the page.


LENGTHS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens
MAX_FORMS = 6  # curves in one figure

key = "cache:{}".format  # a widget's key, which is also its name in the link


class Controls(lab.Fields, page="cache"):
    prompt = lab.Text(
        "Prompt",
        study.PROMPT,
        help=f"Each word is one token; the first {study.MAX_PROMPT} are read. The model knows 250 words, "
        "and continues what occurred before.",
    )
    step = lab.Number(
        "Step",
        3,
        0,
        study.STEPS,
        slider=True,
        help="Step 0 reads the whole prompt (prefill); each later step reads one new token.",
    )
    head = lab.Select[tuple[int, int]](
        "Head",
        lambda values: values.decoding.heads,
        lambda values: values.decoding.sharpest_head(),
        text=lambda head: f"L{head[0]}·H{head[1]}",
        help="Layer and head, both from 0. First the head with the sharpest weights.",
    )
    writer = lab.Select(
        "Model that writes",
        {SEEDED: "4 layers of 512, seeded", TRAINED: "2 layers of 64, trained"},
        span=3,
        help="A decoder with random weights, whose text means nothing, or the lab's own trained "
        "one, which is smaller.",
    )
    count = lab.Number(
        "Tokens to write",
        48,
        8,
        study.MAX_TOKENS,
        8,
        slider=True,
        span=3,
        help=f"How many tokens are written after the prompt. On this machine at most {study.LIMIT:g} s.",
    )
    model = lab.Select(
        "Model's sizes",
        {key: f"{model.name}, {model.year}" for key, model in MODELS.items()},
        "llama2",
        span=2,
        help="A published model: its heads, their size, its layers.",
    )
    bytes = lab.Select(
        "Bytes a number",
        {2: "2 (bf16)", 1: "1 (fp8)", 4: "4 (fp32)"},
        span=2,
        help="How many bytes each stored number takes.",
    )
    curves = lab.MultiSelect(
        f"Up to {MAX_FORMS} curves",
        {name: form.name for name, form in FORMS.items()},
        [form for form in FORMS if form != "keys_as_values"],
        max_options=MAX_FORMS,
        help=f"Ways to store keys and values. The window is {WINDOW:,} tokens long.",
    )
    form = lab.Select(
        "Stored as",
        {"own": "as published", **{name: form.name for name, form in FORMS.items()}},
        span=2,
        help="How keys and values are stored: as in the published model, or in another form.",
    )
    length = lab.SelectSlider(
        "Tokens so far",
        LENGTHS,
        8192,
        text="{:,}".format,
        span=2,
        help="The length of each sequence.",
    )
    batch = lab.SelectSlider(
        "Sequences at once",
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        8,
        span=2,
        help="The batch: each step writes one token for each of these sequences.",
    )
    # Memory and speed are those of an H100.
    bandwidth = lab.Number(
        "Memory, GB/s",
        3350,
        1,
        100_000,
        50,
        span=2,
        help="Bytes that the machine reads from memory in a second; 3,350 for an H100.",
    )
    speed = lab.Number(
        "Speed, TFLOP/s",
        989,
        1,
        100_000,
        10,
        span=2,
        help="Operations a second, in 10¹²; 989 in bf16 for an H100.",
    )
    lengths = lab.Text(
        "Lengths of the sequences",
        "90, 37, 12, 61, 25",
        span=4,
        help=f"Up to {study.MAX_SEQUENCES} numbers of tokens, at most {study.LONGEST_SEQUENCE}, with commas between.",
    )
    page = lab.SelectSlider(
        "Tokens a page",
        (8, 16, 32, 64),
        16,
        span=2,
        help="How many tokens' keys and values one page of memory holds.",
    )


# What the page computes as Python: a step of decoding, the race, the cache's size, and pages.


def steps(prompt: str, result: study.Decoding, step: int, head: tuple[int, int]) -> lab.Script:
    layer, at = head
    return lab.Script(
        (
            lab.Cell(
                "What each step of decoding computes, reads and stores: the queries, the cache, "
                "the weights of the new token.",
                f"""
from core.studies.decode import decode_steps

decoding = decode_steps({lab.source_of(prompt)})
q, k, v = (decoding.vectors[name] for name in "qkv")  # (L, H, T, D), k and v as the cache holds them
weights = decoding.weights  # (L, H, S) of each step, of its last token
for step, counts in enumerate(decoding.counts):  # step 0 reads the prompt, each later one the token before
    print(decoding.tokens[decoding.last(step)], "computed", counts.computed["q"], "stored", counts.stored)
picked = weights[{step}][{layer}, {at}]
""",
            ),
        ),
        {name: result.vectors[name] for name in study.NAMES}
        | {f"weights[{index}]": each for index, each in enumerate(result.weights)}
        | {
            "picked": result.weights[step][head],
            "[each.computed['q'] for each in decoding.counts]": np.array(
                [each.computed["q"] for each in result.counts]
            ),
        },
    )


def race(name: str, count: int, pair: study.Pair) -> lab.Script:
    return lab.Script(
        (
            lab.Cell(
                "The same tokens with and without the cache, and the saved time of each step "
                "(`make cache` measures it again).",
                f"""
import json

from core.models.decoding import write
from core.pretrained.hf_conversion import encode, load_lab_decoder

model, task = load_lab_decoder({name!r})
prompt = encode(task, {lab.source_of(study.PROMPT)}, {study.MAX_PROMPT})[1]  # (1, T)
cached, whole = (write(model, prompt, {count}, with_cache).tokens for with_cache in (True, False))
print("the same tokens:", cached == whole)
saved = json.loads(lab_path("core/studies/data/cache.json").read_text("utf-8"))["measured"][{name!r}]
seconds = {{"without": saved["whole"]["seconds"][:{count}], "with cache": saved["cached"]["seconds"][:{count}]}}
print("without the cache", sum(seconds["without"]) / sum(seconds["with cache"]), "times as long")
""",
                """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame([{"token": at, "name": name, "ms": 1000 * second} for name, each in seconds.items()
                        for at, second in enumerate(each, 1)])).mark_line().encode(
    x="token", y="ms", color="name")
""",
                "cache:seconds",
            ),
        ),
        {
            "cached": np.array(pair.cached.tokens[:count]),
            "whole": np.array(pair.whole.tokens[:count]),
            'seconds["without"]': np.array(pair.whole.seconds[:count]),
            'seconds["with cache"]': np.array(pair.cached.seconds[:count]),
        },
    )


def size(values: Controls, form: str, step: Step) -> lab.Script:
    model = MODELS[values.model]
    code = f"""
from core.models.cards import FORMS, MODELS, cache_bytes, decoding_step

model, lengths = MODELS[{values.model!r}], {lab.source_of(list(LENGTHS))}
sizes = {{FORMS[form].name: [cache_bytes(model, FORMS[form], length, {values.bytes}) for length in lengths]
         for form in {lab.source_of(list(FORMS))}}}
for name, each in sizes.items():
    print(name, each)
bound = decoding_step(model, FORMS[{form!r}], length={values.length}, batch={values.batch},
                      number_bytes={values.bytes}, bandwidth=1e9 * {values.bandwidth!r},
                      speed=1e12 * {values.speed!r})  # bytes and FLOPs a second
print(bound, "bound by", bound.bound)
"""
    draw = f"""
import altair as alt
import pandas as pd

drawn = {lab.source_of([FORMS[name].name for name in values.curves])}
alt.Chart(pd.DataFrame([{{"tokens": length, "bytes": size, "name": name}} for name in drawn
                        for length, size in zip(lengths, sizes[name])])).mark_line().encode(
    x=alt.X("tokens", scale=alt.Scale(type="log", base=2)), y=alt.Y("bytes", scale=alt.Scale(type="log")), color="name")
"""
    text = "Bytes of the cache by the length of the text, and what bounds a step, in closed form."
    return lab.Script(
        (lab.Cell(text, code, draw, "cache:sizes") if values.curves else lab.Cell(text, code),),
        {
            "list(sizes.values())": np.array(
                [
                    [cache_bytes(model, each, length, values.bytes) for length in LENGTHS]
                    for each in FORMS.values()
                ]
            ),
            "[bound.flops, bound.weight_bytes, bound.cache_bytes, bound.computing, bound.reading]": np.array(
                [step.flops, step.weight_bytes, step.cache_bytes, step.computing, step.reading]
            ),
        },
    )


def pages(result: study.Paging) -> lab.Script:
    return lab.Script(
        (
            lab.Cell(
                "Several sequences in pages: the share of memory that holds no token.",
                f"""
from core.studies.decode import paging

pages = paging({lab.source_of(result.lengths)}, {result.size})
paged, reserved = pages.paged, pages.reserved  # places
print("empty in pages", pages.wasted(paged), "with room for the longest", pages.wasted(reserved))
""",
            ),
        ),
        {"paged": np.array(result.paged), "reserved": np.array(result.reserved)},
    )


# The page: a step of decoding, the same text with and without a cache, and the cache's size at real sizes.


SHORT, LONG = 8192, 131072

STYLE = """<style>
.kv{--quiet:color-mix(in srgb,currentColor 62%,transparent);--hair:color-mix(in srgb,currentColor 14%,transparent);
  max-width:900px}
.kv table{border-collapse:separate;border-spacing:4px 2px;width:100%;table-layout:fixed;font-size:13px;line-height:18px}
.kv th{font-weight:400;text-align:left;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv thead th{color:var(--quiet)} .kv tr.new th{color:var(--pick);font-weight:600} .kv tr.later{opacity:.75}
.kv td i{display:block;height:18px;box-sizing:border-box;border-radius:3px}
.kv i.new{outline:2px solid var(--pick);outline-offset:-1px}
.kv i.not{border:1px dashed var(--hair);
  background:repeating-linear-gradient(45deg,var(--hair) 0 1px,transparent 1px 5px)}
.kv i.later{border:1px dotted var(--hair)}
.kv td.w{white-space:nowrap;font-size:12px} .kv td.w i{display:inline-block;height:10px;background:var(--bar);
  margin-right:4px;vertical-align:middle;border-radius:2px}
.kv p{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 4px;font-size:13px;line-height:18px}
.kv p span{display:flex;align-items:center;gap:6px} .kv p i{display:block;width:28px;height:14px;border-radius:3px;
  box-sizing:border-box}
.pg{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:12px 32px;font-size:13px;line-height:18px;
  --hair:color-mix(in srgb,currentColor 18%,transparent)}
.pg h3{font-size:14px;font-weight:600;margin:0 0 4px;padding:0} .pg div div{display:flex;flex-wrap:wrap;gap:3px}
.pg i{display:block;overflow:hidden;height:26px;border:1px solid var(--hair);border-radius:3px;box-sizing:border-box;
  font-style:normal;font-size:11px;line-height:24px;text-align:center}
.pg .row{margin-bottom:3px}
</style>"""

MEASURED = key("measured")  # the model and count that were measured here, and the result


def page() -> None:
    lab.title(
        "Cache: what a decoder stores",
        "A model keeps some vectors of each token, and computes the rest anew.",
    )
    st.html(STYLE)
    lab.take_built("cache", adopt, axes=("projection",))
    draw_steps()
    draw_race()
    draw_size()
    draw_pages()
    lab.details("The code that just ran", partial(lab.source_panel, Attention.step), key("sources"))


def adopt(built: lab.Built) -> None:
    """Store keys and values as the projection that was built elsewhere does, where it is one of the forms."""
    name = built["projection"].key if built else ""
    st.session_state[key("form")] = name if name in FORMS else "own"


@lab.fragment
@lab.shown_errors()
def draw_steps() -> None:
    left, middle, right = st.columns([2, 2, 1], gap="medium", vertical_alignment="bottom")
    typed = Controls.draw("prompt", into=left).prompt
    result = lab.shared(study.decode_steps, typed)
    changes = lab.cached(study.changes, study.PROMPT)
    step = Controls.draw("step", into=middle).step
    head = Controls.draw("head", into=right, decoding=result).head
    lab.add_script(partial(steps, typed, result, step, head), "steps")
    st.html(step_table(result, step, head, lab.theme()))
    lab.fact(step_fact(result, step))
    if result.unknown:
        lab.caption(
            f"Not in the vocabulary, read as unknown: {lab.plain(', '.join(result.unknown))}.",
        )
    strips = (
        f"Each strip is a vector of 16 numbers of head L{head[0]}·H{head[1]} of the lab's trained decoder, purple "
        "below 0 and green above; k and v as the cache holds them. In this model two query heads share one head of "
        f"keys and values. The last column is the weight that “{lab.plain(result.tokens[result.last(step)])}” gives to "
        "each token."
    )
    lab.details("What the strips show", partial(lab.caption, strips), key("strips"))
    lab.predict("cache", question(changes))


@lab.fragment
def draw_race() -> None:
    lab.paragraph(
        "## The same text with and without the cache\n\nWithout a cache, every step reads the whole text again. "
        "The output is the same, so the difference is time alone."
    )
    values = Controls.draw(
        "writer", "count", into=st.grid(6, min_column_width=120, vertical_alignment="bottom")
    )
    name, count = values.writer, values.count
    saved = lab.cached(study.load_measurement)
    where = f"Saved on {saved.date}, {saved.machine}, processor time, fastest of 3 rounds."
    pair = saved.measured[name]
    if st.button(
        "Measure on this machine",
        icon=":material/timer:",
        key=key("measure"),
        help=f"Writes the tokens both ways, at most {study.LIMIT:g} s.",
    ):
        with st.spinner("Writing both ways"):
            st.session_state[MEASURED] = (name, count), study.measure(name, count)
    if st.session_state.get(MEASURED, (None,))[0] == (name, count):
        where, pair = f"Measured here: {machine()}.", st.session_state[MEASURED][1]
    count = min(count, pair.count)
    lab.add_script(partial(race, name, count, saved.measured[name]), "race")
    cached_seconds, whole_seconds = (
        sum(each.seconds[:count]) for each in (pair.cached, pair.whole)
    )
    same = "the same tokens" if pair.same(count) else "**different tokens**"
    lab.fact(
        f"Both ways write {same}, {count} of them. With the cache it takes **{lab.duration(cached_seconds)}**, without it "
        f"**{lab.duration(whole_seconds)}**, {lab.number(pair.ratio(count))} times as long. Each layer computes q, k "
        f"and v of "
        f"{sum(pair.cached.computed[:count]):,} tokens with it, of {sum(pair.whole.computed[:count]):,} without."
    )
    lab.draw_chart(
        st,
        lab.line_chart(
            "Milliseconds of each step",
            "token",
            [
                lab.Curve(
                    label,
                    [(at + 1, 1000 * seconds) for at, seconds in enumerate(each.seconds[:count])],
                )
                for label, each in (("without", pair.whole), ("with cache", pair.cached))
            ],
            lab.Ink.of(lab.theme()),
        ),
        key=key("seconds"),
        alt="Milliseconds of each step with and without the cache",
    )
    vocabulary = lab.model(load_lab_decoder, TRAINED)[1].target_vocab  # both have it
    words = " ".join(vocabulary.decode(pair.cached.tokens[: min(count, 24)])) + " …"
    with_cache, without = (
        (each.computed[count - 1], lab.duration(each.seconds[count - 1]))
        for each in (pair.cached, pair.whole)
    )
    lab.caption(
        f"{where} The first step reads the prompt, the same work both ways. Step {count} computes {with_cache[0]} "
        f"token with the cache, in {with_cache[1]}, and {without[0]} tokens without it, in {without[1]}: a machine "
        f"computes many tokens at once, so that the time grows less than the tokens do. Written: {lab.plain(words)}",
    )


@lab.fragment
def draw_size() -> None:
    st.markdown("## How large the cache is")
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    values = Controls.draw("model", "bytes", into=grid)
    with (
        grid.cell(column_span=2),
        st.popover("Curves", icon=":material/show_chart:", width="stretch"),
    ):
        values = Controls.draw("curves", into=lab.HERE, **values)
    model = MODELS[values.model]
    attention, form = model.attention, model.attention.projection.key
    if values.curves:
        points = {
            FORMS[key].name: [
                (length, cache_bytes(model, FORMS[key], length, values.bytes)) for length in LENGTHS
            ]
            for key in values.curves
        }
        lab.draw_chart(
            st,
            lab.size_figure(points, [form.name for form in FORMS.values()], LENGTHS, lab.theme()),
            key=key("sizes"),
            alt="Bytes of the cache by the length of the text, a line each form",
        )
    # The bytes a token of the model's own cache, beside another form's
    own, other = (
        FORMS[form],
        FORMS["multi_head" if form != "multi_head" else "grouped_query"],
    )
    sizes = [cache_bytes(model, form, 1, values.bytes) for form in (own, other)]
    lab.fact(
        f"{model.name} stores **{sizes[0]:,} bytes** for each token ({own.name.lower()}), "
        f"{lab.byte_size(cache_bytes(model, own, LONG, values.bytes))} at {LONG:,} tokens; {other.name.lower()} would "
        f"store {sizes[1]:,} for each."
    )
    lab.table(
        ("stored as", "a token", "8k tokens", "128k tokens", "of multi-head", "FLOPs a byte"),
        size_rows(model, values.bytes),
        caption="Bytes of the cache by form",
        markers=False,
    )
    lab.caption(
        f"{len(model.layers)} layers of {attention.num_heads} heads of {attention.head_dim} numbers, "
        f"{values.bytes} bytes each. Published with "
        f"{attention.kv_heads if form != 'latent' else 'latent vectors instead of'} KV heads. "
        "Calculated: numbers a token, times layers, times bytes; no model is built. Both axes are logarithmic. The "
        "last column divides the operations of attention for one new token by the bytes of cache that it reads.",
    )
    lab.paragraph(
        "## What bounds a step\n\nA machine reads bytes and computes operations side by side. Decoding reads all "
        "parameters and the cache for a few operations each, so that reading often takes longer."
    )
    values = Controls.draw(
        "form",
        "length",
        "batch",
        "bandwidth",
        "speed",
        into=st.grid(10, min_column_width=120, vertical_alignment="bottom"),
        **values,
    )
    published = values.form == "own"  # the model's, which was not built here
    form = form if published else values.form
    lab.watch_built("cache", {} if published else {"projection": Choice(FORMS[form].projection)})
    step = decoding_step(
        model,
        FORMS[form],
        values.length,
        values.batch,
        values.bytes,
        1e9 * values.bandwidth,
        1e12 * values.speed,
    )
    lab.add_script(partial(size, values, form, step), "size")
    reads = lab.byte_size(step.weight_bytes + step.cache_bytes)
    machine_does = lab.number(1e3 * values.speed / values.bandwidth)
    memory = step.bound == "memory"
    lab.fact(
        f"**{'Memory' if memory else 'Computing'} bounds decoding** at {values.length:,} tokens and "
        f"{lab.plural(values.batch, 'sequence')}: a step does {lab.operations(step.flops)}FLOPs and reads {reads}, "
        f"{lab.number(step.intensity)} FLOPs a byte. The machine does {machine_does} in the time in which it reads "
        f"one byte, which is {'more' if memory else 'fewer'}. Reading takes {lab.duration(step.reading)}, "
        f"computing {lab.duration(step.computing)}."
    )
    total = step.weight_bytes + step.cache_bytes
    experts = (
        " It has experts: a step reads at most those that its tokens use."
        if model.active != model.parameters
        else ""
    )
    lab.caption(
        f"{lab.percent(step.cache_bytes / total)} of what a step reads is the cache, the rest the parameters. All "
        "sequences share the parameters, so more sequences give more FLOPs a byte of them; each has its own cache, "
        f"whose FLOPs a byte stay the same.{experts} Calculated, as if reading and computing were perfect.",
    )


@lab.fragment
@lab.shown_errors()
def draw_pages() -> None:
    lab.paragraph(
        "## Pages\n\nA server does not know how long each text becomes. It takes memory in pages of a few "
        "tokens, as they are needed."
    )
    values = Controls.draw(
        "lengths", "page", into=st.grid(6, min_column_width=120, vertical_alignment="bottom")
    )
    result = study.paging(study.parse_lengths(values.lengths), values.page)
    lab.add_script(partial(pages, result), "pages")
    square, places = partial(_square, size=result.size, theme=lab.theme()), result.size
    starts = range(0, max(result.lengths), places)
    rows = [
        "".join(
            square(
                sequence,
                max(0, min(places, length - start)),
                min(places, max(result.lengths) - start),
            )
            for start in starts
        )
        for sequence, length in enumerate(result.lengths)
    ]
    reserved = "".join(f'<div class="row">{row}</div>' for row in rows)
    paged = "".join(square(page.sequence, page.filled, places) for page in result.pages)
    st.html(
        f'<div class="pg"><div><h3>Room for the longest</h3>{reserved}</div>'
        f"<div><h3>In pages</h3><div>{paged}</div></div></div>"
    )
    token_bytes = cache_bytes(MODELS["llama2"], FORMS["multi_head"], 1, 2)
    fewer = result.reserved - result.paged
    lab.fact(
        f"{result.used:,} tokens take {lab.plural(len(result.pages), 'page')} of {result.size}: "
        f"**{lab.percent(result.wasted(result.paged))}** of their places are empty. With room for the longest reserved "
        f"for each, **{lab.percent(result.wasted(result.reserved))}** would be: pages take "
        f"{lab.byte_size(abs(fewer) * token_bytes)} {'less' if fewer >= 0 else 'more'}."
    )
    lab.caption(
        f"Each square has room for {values.page} tokens, a narrow one for fewer; its filled part holds keys and values. "
        "Left, in the order of the sequences, with room for the longest; right, in the order of memory: a sequence takes "
        "a new page only when its last one is full, and a table tells which pages are its own. Bytes as in Llama 2 7B.",
    )


# The step as a table of vectors, the cache's size by length, and pages, as HTML and Vega-Lite.


def step_table(decoding: study.Decoding, step: int, head: tuple[int, int], theme: lab.Theme) -> str:
    first, last = decoding.first_new(step), decoding.last(step)
    spans = {name: float(np.abs(decoding.vectors[name][head]).max()) for name in study.NAMES}
    rows = []
    for at, token in enumerate(decoding.tokens):
        state = "later" if at > last else "new" if at >= first else "old"
        values = {
            name: decoding.vectors[name][head][at] / spans[name] if at <= last else None
            for name in study.NAMES
        }
        cells = "".join(_vector(each, name, state, theme) for name, each in values.items())
        weight = "<td></td>"
        if at <= last:
            share = float(decoding.weights[step][head][at])
            words = lab.number(share) if share >= 0.001 else "&lt; 0.001"
            weight = f'<td class="w"><i style="width:{round(50 * share, 1)}%"></i>{words}</td>'
        rows.append(
            f'<tr class="{state}"><th scope="row">{escape(token_text(token))}</th>{cells}{weight}</tr>'
        )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("token", *study.NAMES, "weight"))
    strip = f' style="background:{_strip(np.linspace(-1, 1, 8), theme)}"'
    legend = (
        f'<p><span><i class="new"{strip}></i>computed now</span>'
        f'<span><i class="old"{strip}></i>read from the cache</span>'
        '<span><i class="not"></i>not stored</span></p>'
    )
    return (
        f'<div class="kv" style="--pick:{lab.PICK[theme]};--bar:{lab.BAR[theme]}">{legend}'
        f'<table aria-label="What each token\'s q, k and v are at step {step}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _vector(values: np.ndarray | None, name: str, state: str, theme: lab.Theme) -> str:
    """A cell: the vector where it is computed or stored, hatched where it is no longer there."""
    if values is None:
        return '<td><i class="later" title="not yet"></i></td>'
    if state == "old" and name == "q":
        return '<td><i class="not" title="not stored"></i></td>'
    title = f"{name}, {'computed now' if state == 'new' else 'read from the cache'}"
    return f'<td><i class="{state}" title="{title}" style="background:{_strip(values, theme)}"></i></td>'


def _strip(values: np.ndarray, theme: lab.Theme) -> str:
    colours = (
        lab.colours_at(lab.colour_scale(theme, signed=True), (values + 1) / 2).round().astype(int)
    )
    edges = [round(100 * at / len(colours), 2) for at in range(len(colours) + 1)]
    stops = [
        f"rgb({r},{g},{b}) {edges[at]}% {edges[at + 1]}%" for at, (r, g, b) in enumerate(colours)
    ]
    return f"linear-gradient(90deg,{','.join(stops)})"


def _square(sequence: int, filled: int, places: int, size: int, theme: lab.Theme) -> str:
    """So many places in a sequence's colour, from the left as far as they are filled; a page of `size` is square."""
    colour, share = lab.CATEGORIES[theme][sequence], round(100 * filled / places, 2)
    title = f"sequence {sequence + 1}: {filled} of {places} places"
    fill = f"color-mix(in srgb,{colour} 60%,transparent) {share}%,transparent {share}%"
    width = round(26 * places / size, 1)
    return (
        f'<i title="{title}" style="width:{width}px;background:linear-gradient(90deg,{fill}) border-box">'
        f"{sequence + 1}</i>"
    )


# The question of this page; its answer is computed from the trained model's own vectors.


def question(changes: Mapping[str, float]) -> lab.Question:
    """Which vectors of earlier tokens the next one does not need; `changes` is what zeros in their place change."""
    tried = (
        f"With zeros in place of all earlier q, the new token's output changes by {lab.number(changes['q'])} of its "
        f"size; in place of k by {lab.number(changes['k'])}, in place of v by {lab.number(changes['v'])}."
    )
    why = "A query is read by its own token alone, so a decoder need not store it."
    return lab.Question(
        "Zeros replace the q, the k or the v of all earlier tokens. Which replacement leaves the output "
        "of the next token as it is?",
        tuple(study.NAMES),
        min(range(3), key=lambda at: changes[study.NAMES[at]]),
        (
            f"{tried} {why}",
            f"{tried} The weights come from q and k: other keys, other weights.",
            f"{tried} The output is a weighted sum of v.",
        ),
    )


# The page's sentences and tables, from the numbers on the page.


def step_fact(decoding: study.Decoding, step: int) -> str:
    counts, last = decoding.counts[step], lab.plain(decoding.tokens[decoding.last(step)])
    if step == 0:
        return (
            f"Prefill reads the prompt at once: the layer computes **{counts.computed['q']} queries, keys and "
            "values** and stores the keys and values. It reads nothing, as nothing is stored yet."
        )
    return (
        f"At step {step} the layer computes **{counts.computed['q']} query, {counts.computed['k']} key and "
        f"{counts.computed['v']} value**, for “{last}”, and "
        f"reads {counts.read} stored keys and values; without a cache it would compute {counts.without} of each."
    )


def size_rows(model: ModelCard, number_bytes: int) -> list[list[str]]:
    full = cache_bytes(model, FORMS["multi_head"], LONG, number_bytes)
    return [
        [
            form.name,
            "–" if form.state else lab.byte_size(cache_bytes(model, form, 1, number_bytes)),
            lab.byte_size(cache_bytes(model, form, SHORT, number_bytes)),
            lab.byte_size(cache_bytes(model, form, LONG, number_bytes)),
            lab.percent(cache_bytes(model, form, LONG, number_bytes) / full),
            lab.number(intensity(model, form, LONG, number_bytes)),
        ]
        for form in FORMS.values()
    ]
