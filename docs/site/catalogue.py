"""The catalogue of the site, from the entries themselves: each choice of the six axes, and each preset."""

from __future__ import annotations

from functools import cache

from core.attention import AXES, PRESETS, AttentionConfig, Entry, Param, Preset
from core.attention.config import example_config, needs
from core.attention.cost import attention_cost, parameters
from core.attention.presets.base import AXIS_NAMES, name
from core.entries import Cost
from dashboard.draw.formats import byte_size, operations
from dashboard.draw.glossary import TERMS
from dashboard.navigation import step_of

D_MODEL, HEADS, LENGTH = 64, 4, 512  # the defaults of a config
SIZES = (
    f"For d_model {D_MODEL}, {HEADS} heads and {LENGTH} tokens attending to {LENGTH}, in one forward pass from "
    "the heads' q, k and v to their outputs: FLOPs of matrix products, peak memory, FLOPs with twice the tokens. "
)
CHOICES = "Parameters are those of the choice alone; one that does not fit the default has beside it what it needs."


def pages() -> dict[str, str]:
    """The page of each axis and of the presets, by file."""
    axes = {f"catalogue/{axis}.md": axis_page(axis) for axis in AXES}
    return {"catalogue/presets.md": presets_page(), **axes}


def axis_page(axis: str) -> str:
    title = AXIS_NAMES[axis].removesuffix("s") + "s"
    entries = sorted(AXES[axis], key=lambda item: item.year)
    rows = [
        f"| [{plain(item.name)}](#{item.key}) | {item.year} | {cost_cells(axis, example_config(axis, item.key))} |"
        for item in entries
    ]
    head = [f"# {title}\n", f"{len(entries)} choices, by year.\n", *cost_head("choice")]
    return "\n".join(
        [*head, *rows, "", SIZES + CHOICES, "", *(entry_section(axis, item) for item in entries)]
    )


def entry_section(axis: str, item: Entry) -> str:
    """The name, equation, meaning, paper and parameters of a choice."""
    lines = [
        f"## {plain(item.name)} {{ #{item.key} }}",
        "",
        "$$",
        item.latex,
        "$$",
        "",
        f"{plain(item.meaning)} {paper(item)}",
        "",
        f'`{axis}="{item.key}"`' + beside(axis, item.key),
        "",
    ]
    if item.params:
        lines += ["| parameter | meaning | default | values |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{param.key}` | {plain(param.meaning)} | {plain(str(param.default))} | {bounds(param)} |"
            for param in item.params
        ] + [""]
    return "\n".join(lines)


def presets_page() -> str:
    rows = [
        f"| [{plain(item.name)}](#{item.key}) | {item.year} | {cost_cells(None, item.config(D_MODEL))} |"
        for item in PRESETS
    ]
    return "\n".join(
        [
            "# Published mechanisms\n",
            f"{len(PRESETS)} presets, by year. Each is a choice on all six axes, "
            'for instance `preset("mistral").config(d_model=64, num_heads=4)`.\n',
            *cost_head("preset"),
            *rows,
            "",
            SIZES,
            "",
            *map(preset_section, PRESETS),
        ]
    )


def preset_section(item: Preset) -> str:
    """A preset with its six choices, and what it changed."""
    config = item.config(D_MODEL)
    choices = " · ".join(
        f"**{title}** {plain(name(axis, getattr(config, axis), full=True))}"
        for axis, title in AXIS_NAMES.items()
    )
    changed = [f"- {plain(sentence)}" for sentence in item.changed(D_MODEL)]
    against = ["Against the Transformer of 2017:", "", *changed, ""] if changed else []
    return "\n".join(
        [
            f"## {plain(item.name)} {{ #{item.key} }}",
            "",
            choices,
            "",
            paper(item),
            "",
            *against,
            f'`preset("{item.key}")`',
            "",
        ]
    )


def terms() -> str:
    """The words of the field that the pages explain."""
    rows = [
        f"| {plain(term.name)} | {plain(term.text)} | {plain(step_of(term.page).title)} |"
        for term in sorted(TERMS, key=lambda term: term.name.lower())
    ]
    return "\n".join(
        [
            "# Terms\n",
            "What the pages underline and explain, and a page that shows it.\n",
            "| term | is | page |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


@cache
def cost_at(config: AttentionConfig, length: int) -> Cost:
    return attention_cost(config, length, length)


def cost_head(first: str) -> list[str]:
    return [
        f"| {first} | year | parameters | cached a token | FLOPs | memory | FLOPs, text × 2 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]


def cost_cells(axis: str | None, config: AttentionConfig) -> str:
    """Learned parameters, numbers cached a token, FLOPs, memory and how the FLOPs grow, as cells of a table."""
    cost, longer = (cost_at(config, length) for length in (LENGTH, 2 * LENGTH))
    learned = parameters(config)
    count = sum(learned.values()) if axis is None else learned[axis]
    return " | ".join(
        [
            f"{count:,}",
            str(config.sizes.cache),
            operations(cost.flops),
            byte_size(cost.bytes),
            f"× {longer.flops / cost.flops:.1f}",
        ]
    )


def beside(axis: str, key: str) -> str:
    others = [f'`{other}="{one}"`' for other, one in needs(axis, key).items()]
    return f", which needs for instance {' and '.join(others)}" if others else ""


def paper(item: Entry | Preset) -> str:
    source = f"{item.paper} {item.year}".strip()
    return f"[{plain(source)}]({item.url})." if item.url else f"{plain(source)}."


def bounds(param: Param) -> str:
    if param.choices:
        return ", ".join(f"`{choice}`" for choice in param.choices)
    if isinstance(param.default, bool):
        return "true or false"
    return "a text" if isinstance(param.default, str) else f"{param.low:g} to {param.high:g}"


def plain(text: str) -> str:
    """A text as Markdown that shows it as it is."""
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>|$#" else sign for sign in text)
