"""Model cards: their figures and sentences, what differs between two, and the strips of their layers, as HTML."""

from functools import cache
from itertools import groupby

from core.attention import AXES, AttentionConfig
from core.attention.presets.base import name as choice_name
from core.models import cards
from core.models.cards import KINDS, LONG, AttentionLayer, Kind, ModelCard, card
from dashboard.draw.figures import CATEGORIES, PICK, Theme
from dashboard.draw.formats import byte_size, number, operations, percent, plain, whole
from dashboard.draw.templates import html

REFERENCE = "llama2"  # stores the keys and values of every head in every layer
LAYER = AttentionConfig()


def figures(one: ModelCard) -> list[str]:
    has = cards.figures(one)
    return [
        whole(has.parameters),
        percent(has.active / has.parameters),
        *(
            "–" if size is None else byte_size(size)
            for size in (has.token_bytes, has.short, has.long)
        ),
        "–" if has.flops is None else operations(has.flops),
    ]


FIGURES = (
    "parameters",
    "used by a token",
    "cache, first token",
    "at 8k tokens",
    "at 128k tokens",
    "FLOPs a token",
)


def differences(one: ModelCard, other: ModelCard) -> list[list[str]]:
    """What differs between two models: a name, and how it is in each."""

    def described(model: ModelCard) -> dict[str, str]:
        choices = {
            axis: ", ".join(
                dict.fromkeys(
                    choice_name(axis, getattr(layer.config, axis), full=True)
                    for layer in model.distinct
                    if layer.config is not None
                )
            )
            for axis in AXES
        }
        return {
            "layers": str(len(model.blocks)),
            "attentions": "; ".join(
                f"{count} × {layer.name}" for layer, count in model.distinct.items()
            ),
            **choices,
            "width": f"{model.d_model:,}",
            "vocabulary": f"{model.vocabulary:,}",
            "output map": "the word embeddings" if model.tied else "its own",
            **dict(zip(FIGURES, figures(model), strict=True)),
        }

    mine, theirs = described(one), described(other)
    return [
        [name, mine[name] or "–", theirs[name] or "–"]
        for name in mine
        if mine[name] != theirs[name]
    ]


def billions(count: int | None) -> str:
    return "–" if count is None else number(count / 1e9)


def fact_text(one: ModelCard) -> str:
    has = cards.figures(one)
    if has.flops is None:
        return (
            f"{one.name} has **{operations(one.parameters)}** parameters. Its cache is not counted, as the lab does not "
            "have all of its attentions."
        )
    if has.size is None:
        return (
            f"{one.name} reads a whole text at once: **nothing is stored**, and each of {has.read:,} tokens takes "
            f"{operations(has.flops)} FLOPs."
        )
    text = f"Of a text of {has.length:,} tokens, {one.name} stores **{byte_size(has.size)}**"
    if one.key != REFERENCE:
        other = card(REFERENCE)
        text += f"; {other.name} would store {byte_size(other.cache_bytes(has.length))}"
    return f"{text}."


def growth_text(one: ModelCard) -> str:
    """What one more token adds to a cache; nothing of a model whose cache is not counted, or that has none."""
    has = cards.figures(one)
    if has.size is None:
        return ""
    late = one.late_bytes(has.length)
    grows = "A further token adds nothing to what is stored"
    if late:
        grows = f"Stored are {byte_size(late)} for each token"
        if byte_size(late * has.length) != byte_size(has.size):
            grows += f", and {byte_size(has.size - late * has.length)} that do not grow"
    if late != one.token_bytes:
        grows += f". Until its windows are full, a token adds {byte_size(one.token_bytes)}"
    return f"{grows}."


def states_text() -> str:
    few, many = (card(key) for key in ("mamba2", REFERENCE))
    return (
        f"At {LONG:,} tokens {few.name} stores **{byte_size(few.cache_bytes(LONG))}** of states and {many.name} "
        f"**{byte_size(many.cache_bytes(LONG))}** of keys and values, with about as many parameters."
    )


def note(one: ModelCard) -> str:
    """How the figures were calculated, and from what."""
    parts = (
        growth_text(one),
        "Calculated from its sizes, no model is loaded: numbers of 2 bytes, and two FLOPs for each number that a token "
        f"is multiplied with, of weights, keys and values, at {cards.figures(one).read:,} tokens.",
        "Keys and values are computed from the latent vectors, as when a prompt is read."
        if any(layer.kind == "latent" for layer in one.layers)
        else "",
        f"A token uses {operations(one.active)} of the parameters: it is sent to some of the experts."
        if one.active != one.parameters
        else "",
        f"It has positions for {one.longest:,} tokens only." if one.longest else "",
        one.remark,
        f"Sizes of {plain(one.checkpoint)}, from {plain(one.source)}.",
        f"Published as {one.published} billion parameters." if one.published else "",
        "transformers has no such model to compare with."
        if one.key == "retnet"
        else "The number of parameters equals that of transformers' own model, to the last one.",
    )
    return " ".join(filter(None, parts))


def part_rows(one: ModelCard) -> list[list[str]]:
    return [
        [name, f"{count:,}", percent(count / one.parameters)]
        for name, count in one.parameter_rows.items()
    ]


def layer_text(layer: AttentionLayer, count: int) -> str:
    config = layer.config
    choices = [
        choice_name(axis, choice, full=True)
        for axis in AXES
        if config and (choice := getattr(config, axis)) != getattr(LAYER, axis)
    ]
    extras = "".join(
        f" {plain(extra.name)}: {abs(extra.parameters):,} parameters {more}, {plain(extra.reason)}."
        for extra in layer.extras
        for more in ["more" if extra.parameters > 0 else "fewer"]
    )
    heads = (
        f"{config.num_heads} heads of {config.head_dim}. {plain('; '.join(choices))}"
        if config
        else "none of the lab's attentions"
    )
    layers = f"{count} layers, each of" if count > 1 else "one layer of"
    return (
        f"**{plain(layer.name[:1].upper() + layer.name[1:])}**, {layers} {layer.parameters:,} parameters: {heads}."
        f"{extras}"
    )


MEANINGS: dict[Kind, str] = {
    "full": "all tokens",
    "window": "a window, chunk or blocks",
    "latent": "small vectors",
    "linear": "a fixed state",
    "no positions": "without order",
    "none": "few tokens or none",
    "unknown": "not in the lab",
}
STYLE = """<style>
.cards{--hair:color-mix(in srgb,currentColor 10%,transparent);font-size:14px;line-height:20px}
.cards table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.cards th,.cards td{padding:1px 8px;border-bottom:1px solid var(--hair);text-align:right;font-weight:400;
  white-space:nowrap}
.cards th:first-child,.cards td.strip{text-align:left} .cards td.strip{width:60%}
.cards thead th{opacity:.62}
.cards .layers{display:flex;align-items:flex-end;gap:1px;height:16px}
.cards .layers i{flex:1 1 5px;max-width:9px;min-width:1px;border-radius:1px;box-sizing:border-box}
.cards .large{height:32px;gap:2px} .cards .large i{max-width:22px;border-radius:2px}
.cards p{display:flex;flex-wrap:wrap;gap:4px 12px;margin:0 0 8px;font-size:13px;line-height:18px}
.cards .layers+p{margin-top:8px}
.cards p span{display:flex;align-items:flex-end;gap:6px} .cards p b{display:flex;align-items:flex-end;height:16px}
.cards p i{display:block;width:10px;border-radius:2px;box-sizing:border-box}
@media (max-width:640px){.cards table,.cards tbody{display:block}.cards thead{display:none}
  .cards tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--hair);padding:4px 0}
  .cards th,.cards td{border:0;padding:0 10px 0 0}.cards td.strip{order:9;width:100%;padding:2px 0}}
</style>"""


def strip(card: ModelCard, theme: Theme) -> tuple[list[tuple[str, str]], str]:
    """The title and style of each layer's cell, and all of them in words."""
    layers = [
        (f"layer {at}: {layer.name}", cell_style(layer.kind, theme))
        for at, layer in enumerate(card.layers, 1)
    ]
    runs = [(name, len(list(group))) for name, group in groupby(each.name for each in card.layers)]
    shown = ", ".join(f"{count} {name}" for name, count in runs[:6])
    more = ", and so on" if len(runs) > 6 else ""
    return layers, f"{len(layers)} layers: {shown}{more}"


def cell_style(kind: Kind, theme: Theme) -> str:
    # A kind differs in height or outline too, so that it is told without colours; what sees or stores less is lower.
    height = {"window": 50, "latent": 75, "linear": 25, "none": 12}.get(kind, 100)
    colour = CATEGORIES[theme][KINDS.index(kind)]
    look = (
        f"border:2px solid {colour}"
        if kind in ("no positions", "unknown")
        else f"background:{colour}"
    )
    return f"height:{height}%;{look}"


def legend(model: str, theme: Theme, *of: ModelCard | None) -> str:
    """What each kind of cell means, of some cards or of all; and the style that marks a model in the table."""
    shown = {layer.kind for one in of if one for layer in one.layers}
    kinds = [
        (kind, cell_style(kind, theme), MEANINGS[kind]) for kind in KINDS if kind in shown or not of
    ]
    return html("cards", "legend", kinds, model, PICK[theme])


def strips(one: ModelCard, other: ModelCard | None, theme: Theme) -> str:
    """The layers of a model, and below them those of another one."""
    second = other and (other.name, strip(other, theme))
    return html("cards", "strips", strip(one, theme), second)


@cache
def models_table(theme: Theme) -> str:
    rows = [
        (
            one.key,
            one.name,
            one.year,
            strip(one, theme),
            billions(one.parameters),
            billions(cards.cache(one, LONG)),
        )
        for one in cards.CARDS
    ]
    return html("cards", "models", rows)
