"""Cache: a step as a table of vectors, sequences in pages, its sentences of numbers, and code of its script."""

import numpy as np

from core.models.cards import FORMS, MODELS, ModelCard, Step, cache_bytes, intensity
from core.studies import cache as study
from core.tokens import token_text
from dashboard.draw.components import Cell, source_of
from dashboard.draw.curves import Curve
from dashboard.draw.figures import BAR, CATEGORIES, PICK, Theme, colour_scale, colours_at
from dashboard.draw.formats import byte_size, duration, number, operations, percent, plain, plural
from dashboard.draw.templates import html

SHORT, LONG = 8192, 131072  # tokens

STYLE = """<style>
.kv{--quiet:color-mix(in srgb,currentColor 62%,transparent);--hair:color-mix(in srgb,currentColor 14%,transparent);
  max-width:900px}
.kv table{border-collapse:separate;border-spacing:4px 2px;width:100%;table-layout:fixed;font-size:13px;line-height:16px}
.kv th{font-weight:400;text-align:left;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv thead th{color:var(--quiet)} .kv tr.new th{color:var(--pick);font-weight:600} .kv tr.later{opacity:.75}
.kv td i{display:block;height:16px;box-sizing:border-box;border-radius:3px}
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


def step_table(decoding: study.Decoding, step: int, head: tuple[int, int], theme: Theme) -> str:
    first, last = decoding.first_new(step), decoding.last(step)
    vectors = {name: decoding.vectors[name][head] for name in study.NAMES}
    spans = {name: float(np.abs(values).max()) for name, values in vectors.items()}
    rows = [
        (
            "later" if at > last else "new" if at >= first else "old",
            token_text(token),
            {name: _strip(values[at] / spans[name], theme) for name, values in vectors.items()},
            float(decoding.weights[step][head][at]) if at <= last else 0.0,
        )
        for at, token in enumerate(decoding.tokens)
    ]
    legend = _strip(np.linspace(-1, 1, 8), theme)
    return html("cache", "steps", rows, study.NAMES, step, legend, PICK[theme], BAR[theme])


def _strip(values: np.ndarray, theme: Theme) -> str:
    colours = colours_at(colour_scale(theme, signed=True), (values + 1) / 2).round().astype(int)
    edges = [round(100 * at / len(colours), 2) for at in range(len(colours) + 1)]
    stops = [
        f"rgb({r},{g},{b}) {edges[at]}% {edges[at + 1]}%" for at, (r, g, b) in enumerate(colours)
    ]
    return f"linear-gradient(90deg,{','.join(stops)})"


def pages_view(paging: study.Paging, theme: Theme) -> str:
    """The sequences with room for the longest each, and in pages in the order of memory, as HTML."""
    longest, size = max(paging.lengths), paging.size
    rows = [
        [
            (sequence, max(0, min(size, length - start)), min(size, longest - start))
            for start in range(0, longest, size)
        ]
        for sequence, length in enumerate(paging.lengths)
    ]
    memory = [(page.sequence, page.filled) for page in paging.pages]
    return html("cache", "pages", rows, memory, size, CATEGORIES[theme])


def seconds_curves(pair: study.Pair, count: int) -> list[Curve]:
    """The milliseconds of each of the first `count` steps, without the cache and with it."""
    return [
        Curve(name, [(at, 1000 * seconds) for at, seconds in enumerate(way.seconds[:count], 1)])
        for name, way in (("without", pair.whole), ("with cache", pair.cached))
    ]


# What the script says beside the page's calls.


def steps_cell(decoding: study.Decoding) -> Cell:
    return Cell(
        "How many queries each step computes, and how many keys, and as many values, are stored after it.",
        """
for step, counts in enumerate(decoding.counts):  # step 0 reads the prompt, each later one the token before
    print(decoding.tokens[decoding.last(step)], "computed", counts.computed["q"], "stored", counts.stored)
""",
        results={
            "[each.computed['q'] for each in decoding.counts]": [
                each.computed["q"] for each in decoding.counts
            ]
        },
    )


def race_cell(name: str, count: int, pair: study.Pair) -> Cell:
    """The same tokens written again, both ways; the times are the saved `pair`'s."""
    return Cell(
        "The same tokens with and without the cache, and the saved time of each step.",
        f"""
from core.models.decoding import write
from core.pretrained.hf_conversion import encode, load_lab_decoder
from core.studies.cache import MAX_PROMPT, PROMPT

model, task = load_lab_decoder({name!r})
prompt = encode(task, PROMPT, MAX_PROMPT)[1]  # (1, T)
cached, whole = (write(model, prompt, {count}, with_cache).tokens for with_cache in (True, False))
print("the same tokens:", cached == whole)
pair = saved.measured[{name!r}]
seconds = {{"without": pair.whole.seconds[:{count}], "with cache": pair.cached.seconds[:{count}]}}
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
        {
            "cached": pair.cached.tokens[:count],
            "whole": pair.whole.tokens[:count],
            'seconds["without"]': pair.whole.seconds[:count],
            'seconds["with cache"]': pair.cached.seconds[:count],
        },
    )


def sizes_code(forms: list[str]) -> str:
    return f"""
import altair as alt
import pandas as pd
from core.studies.cache import LENGTHS

drawn = {source_of({FORMS[form].name: form for form in forms})}
alt.Chart(pd.DataFrame([{{"tokens": length, "bytes": size, "name": name}} for name, form in drawn.items()
                        for length, size in zip(LENGTHS, sizes[form])])).mark_line().encode(
    x=alt.X("tokens", scale=alt.Scale(type="log", base=2)), y=alt.Y("bytes", scale=alt.Scale(type="log")), color="name")
"""


def pages_cell(paging: study.Paging) -> Cell:
    return Cell(
        "The places in memory that pages take, and those with room for the longest.",
        """
print("in pages", pages.paged, "places, empty", pages.wasted(pages.paged))
print("with room for the longest", pages.reserved, "places, empty", pages.wasted(pages.reserved))
""",
        results={"pages.paged": paging.paged, "pages.reserved": paging.reserved},
    )


# Sentences and a table, from the numbers on the page.


def step_fact(decoding: study.Decoding, step: int) -> str:
    counts, last = decoding.counts[step], plain(decoding.tokens[decoding.last(step)])
    if step == 0:
        return (
            f"Prefill reads the prompt at once: the layer computes **{counts.computed['q']} queries, keys and "
            "values** and stores the keys and values. It reads nothing, as nothing is stored yet."
        )
    return (
        f"Step {step} computes q, k and v of **{plural(counts.computed['q'], 'token')}**, “{last}”, and reads "
        f"{counts.read} stored k and v; without a cache it would compute **{counts.without}** of each."
    )


def size_rows(model: ModelCard, number_bytes: int) -> list[list[str]]:
    full = cache_bytes(model, FORMS["multi_head"], LONG, number_bytes)
    return [
        [
            form.name,
            "–" if form.state else byte_size(cache_bytes(model, form, 1, number_bytes)),
            byte_size(cache_bytes(model, form, SHORT, number_bytes)),
            byte_size(cache_bytes(model, form, LONG, number_bytes)),
            percent(cache_bytes(model, form, LONG, number_bytes) / full),
            number(intensity(model, form, LONG, number_bytes)),
        ]
        for form in FORMS.values()
    ]


def strips_note(decoding: study.Decoding, step: int, head: tuple[int, int]) -> str:
    return (
        f"Each strip is a vector of 16 numbers of head L{head[0]}·H{head[1]} of the lab's trained decoder, purple "
        "below 0 and green above; k and v as the cache holds them. In this model two query heads share one head of "
        f"keys and values. The last column is the weight that “{plain(decoding.tokens[decoding.last(step)])}” takes from "
        "each token."
    )


def race_fact(pair: study.Pair, count: int) -> str:
    cached, whole = (sum(way.seconds[:count]) for way in (pair.cached, pair.whole))
    same = "the same tokens" if pair.same(count) else "**different tokens**"
    return (
        f"Both ways write {same}, {count} of them. With the cache it takes **{duration(cached)}**, without it "
        f"**{duration(whole)}**, {number(pair.ratio(count))} times as long. Each layer computes q, k and v of "
        f"{sum(pair.cached.computed[:count]):,} tokens with it, of {sum(pair.whole.computed[:count]):,} without."
    )


def race_note(pair: study.Pair, count: int) -> str:
    """How many tokens are computed to write the last one, both ways, and how long that takes."""
    with_cache, without = (
        (way.computed[count - 1], duration(way.seconds[count - 1]))
        for way in (pair.cached, pair.whole)
    )
    return (
        f"The first step reads the prompt, the same work both ways. To write token {count}, "
        f"{with_cache[0]} token is computed with the cache, in {with_cache[1]}, and {without[0]} without it, in "
        f"{without[1]}: a machine computes many tokens at once, so that the time grows less than the tokens do."
    )


def size_fact(model: ModelCard, number_bytes: int) -> str:
    """The bytes a token of the model's own cache, beside another form's."""
    form = model.attention.projection.key
    own = FORMS[form]
    other = FORMS["multi_head" if form != "multi_head" else "grouped_query"]
    sizes = [cache_bytes(model, each, 1, number_bytes) for each in (own, other)]
    return (
        f"{model.name} stores **{sizes[0]:,} bytes** for each token ({own.name.lower()}), "
        f"{byte_size(cache_bytes(model, own, LONG, number_bytes))} at {LONG:,} tokens; {other.name.lower()} would "
        f"store {sizes[1]:,} for each."
    )


def size_note(model: ModelCard, number_bytes: int) -> str:
    attention = model.attention
    stored = (
        "latent vectors instead of" if attention.projection.key == "latent" else attention.kv_heads
    )
    return (
        f"{len(model.layers)} layers of {attention.num_heads} heads of {attention.head_dim} numbers, "
        f"{plural(number_bytes, 'byte')} each. Published with {stored} KV heads. "
        "Calculated: numbers a token, times layers, times bytes; no model is built. Both axes are logarithmic. The "
        "last column divides the operations of attention for one new token by the bytes of cache that it reads."
    )


def bound_fact(step: Step, length: int, batch: int, operations_a_byte: float) -> str:
    reads = byte_size(step.weight_bytes + step.cache_bytes)
    bound, than = ("Memory", "more") if step.bound == "memory" else ("Computing", "fewer")
    return (
        f"**{bound} bounds decoding** at {length:,} tokens and "
        f"{plural(batch, 'sequence')}: a step does {operations(step.flops)}FLOPs and reads {reads}, "
        f"{number(step.intensity)} FLOPs a byte. The machine does {number(operations_a_byte)} in the time in which it "
        f"reads one byte, which is {than}. Reading takes {duration(step.reading)}, "
        f"computing {duration(step.computing)}."
    )


def bound_note(step: Step, model: ModelCard) -> str:
    share = percent(step.cache_bytes / (step.weight_bytes + step.cache_bytes))
    experts = ""
    if model.active != model.parameters:
        experts = " It has experts: a step reads at most those that its tokens use."
    return (
        f"{share} of what a step reads is the cache, the rest the parameters. All "
        "sequences share the parameters, so more sequences give more FLOPs a byte of them; each has its own cache, "
        f"whose FLOPs a byte stay the same.{experts} Calculated, as if reading and computing were perfect."
    )


def pages_fact(paging: study.Paging) -> str:
    token_bytes = cache_bytes(MODELS["llama2"], FORMS["multi_head"], 1, 2)
    fewer = paging.reserved - paging.paged
    than = "less" if fewer >= 0 else "more"
    return (
        f"{paging.used:,} tokens take {plural(len(paging.pages), 'page')} of {paging.size}: "
        f"**{percent(paging.wasted(paging.paged))}** of their places are empty. With room for the longest reserved "
        f"for each, **{percent(paging.wasted(paging.reserved))}** would be: pages take "
        f"{byte_size(abs(fewer) * token_bytes)} {than}."
    )
