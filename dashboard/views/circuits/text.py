"""The page's sentences and equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.interpret.circuits import CompositionKind, HeadMatrices
from core.interpret.trace import Kind
from dashboard.draw.formats import latex, number, percent, signed
from dashboard.views.circuits.compute import STREAMS, Circuits, Edge, Head
from dashboard.views.circuits.induction import PAIR, InductionCircuit
from dashboard.views.circuits.names import Carrier
from dashboard.views.circuits.tokens import Direction, Extremes
from dashboard.widgets.panels import plain

PAPER = (
    "[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)",
    "[Roy and Vetterli 2007](https://infoscience.epfl.ch/record/110188)",
)
PARTS: dict[CompositionKind, str] = {"Q": "queries", "K": "keys", "V": "values"}


def edges_fact(circuits: Circuits, kind: CompositionKind) -> str:
    """The strongest composition of a kind, beside that of random matrices."""
    first, (most, _) = circuits.pairs(kind)[0], circuits.chance(kind)
    names = [plain(circuits.name(head)) for head in (first.target, first.source)]
    if first.score <= most:
        return (
            f"No head takes its {PARTS[kind]} from an earlier one more than random matrices would: the highest "
            f"{kind}-composition, {names[1]} → {names[0]}, is **{signed(first.score)}** beside the mean of random "
            f"matrices, and one of these reaches {signed(most)}."
        )
    return (
        f"The {PARTS[kind]} of **{names[0]}** take most from **{names[1]}**: their {kind}-composition is "
        f"**{number(first.score + circuits.random_level)}**, {signed(first.score)} above the "
        f"{number(circuits.random_level)} that random matrices have on average."
    )


def drawn(circuits: Circuits, kind: CompositionKind, above: int, edges: Sequence[Edge]) -> str:
    """Which compositions are lines, and what random matrices reach."""
    most, count = circuits.chance(kind)
    pairs = len(circuits.pairs(kind))
    text = (
        f"A line is drawn only above {signed(most)}, the most that random matrices reach: of {count:,} pairs in "
        "which the earlier head has its own singular values and random directions, none is above it. "
    )
    if not edges:
        return f"{text}Neither is any of the {pairs:,} pairs of heads."
    text += f"Of {pairs:,} pairs of heads {above:,} {'is' if above == 1 else 'are'}"
    if above > 1:
        text += (
            "; all are drawn"
            if len(edges) == above
            else f"; the {len(edges):,} strongest are drawn"
        )
        text += f", the thinnest with {signed(edges[-1].score)}"
    return f"{text}."


def twice(circuits: Circuits, circuit: InductionCircuit) -> str:
    """The circuit by patching, by composition and by where the heads attend."""
    first, second = (plain(circuits.name(head)) for head in circuit.patched)
    gained, regained = (percent(effect) for effect in circuit.effects)
    word = plain(circuit.word)
    text = (
        f"**The circuit, found twice.** After “{plain(PAIR[0].text)}” the model predicts “{word}”, with “dark” and "
        f"“cold” swapped another word. Put back one at a time, **{first}** brings back {gained} of the difference, "
        f"the most in layer 0, and **{second}** {regained}, the most in layer 1. "
    )
    composed = (circuit.composed.source, circuit.composed.target)
    if composed == circuit.patched:
        text += (
            f"The weights alone name the same two: the strongest K-composition of the model is "
            f"{first} → {second} ({signed(circuit.composed.score)}). "
        )
    else:
        other = " → ".join(plain(circuits.name(head)) for head in composed)
        text += (
            f"The strongest K-composition is another pair, {other} ({signed(circuit.composed.score)}): several "
            "heads share the work. "
        )
    return text + (
        f"{first} puts {number(circuit.previous)} of its weight on the token before, and the last query of "
        f"{second} puts {number(circuit.answer)} on “{word}”."
    )


def carried(circuits: Circuits, carriers: Sequence[Carrier]) -> str:
    """Which head carries each answer by patching, where it attends, and what it writes in both texts."""
    lines = ["**A head for each answer, by patching.**"]
    for one in carriers:
        answers = f"the logit of “{plain(one.answer)}” minus that of “{plain(one.other)}”"
        lines.append(
            f"After “{plain(one.texts[0])}” the model predicts “{plain(one.answer)}”, after "
            f"“{plain(one.texts[1])}” it predicts “{plain(one.other)}”. Put back alone, "
            f"**{plain(circuits.name(one.head))}** brings back {percent(one.effect)} of the difference. It "
            f"puts {number(one.weight)} of its weight on “{plain(one.key)}”, and directly adds "
            f"{signed(one.adds[0])} to {answers}; in the second text it adds {signed(one.adds[1])}."
        )
    return " ".join(lines)


def head_fact(circuits: Circuits, head: Head) -> str:
    """A head's copying score, its effective rank, and the earlier heads that it takes most from."""
    row, index = head
    name, size = plain(circuits.name(head)), circuits.heads[row].w_v.shape[-1]
    text = f"Head :primary[**{name}**]"
    copying = circuits.measures[row].copying
    if copying is not None:
        score = float(copying[index])
        does = (
            "copies: attending to a token raises that token"
            if score > 0.5
            else "does the opposite of copying: attending to a token lowers that token"
            if score < -0.5
            else "neither copies nor removes what it attends to"
        )
        text += f" {does}, with a copying score of **{number(score)}**. Its OV circuit"
    text += (
        f" has an effective rank of {number(float(circuits.measures[row].ranks[index]))} of {size}."
    )
    best = circuits.best_into(head)
    if not best:
        return f"{text} No head that it reads comes before it, so it composes with none."
    parts = [
        f"its {PARTS[kind]} from **{plain(circuits.name(edge.source))}** ({signed(edge.score)})"
        for kind, edge in best.items()
        if edge.score > circuits.chance(kind)[0]
    ]
    if not parts:
        return f"{text} It composes with no earlier head more than random matrices do."
    return f"{text} It takes {' and '.join(parts)} more than random matrices would."


def token_fact(name: str, word: str, written: Extremes) -> str:
    """What attending to a token raises most, and where the token itself comes."""
    place = (
        "itself most"
        if written.rank == 1
        else f"**{plain(written.most[0][0])}** most, and itself as number {written.rank:,} of {written.count:,}"
    )
    return f"Where {plain(name)} attends to :primary[**{plain(word)}**], it raises {place}."


def no_embedding(word: str, stream: Kind) -> str:
    """Why a token has no effect: a vocabulary that two languages share has words that one side lacks."""
    return f"The {STREAMS[stream]} has no embedding of “{plain(word)}”. Type a word that it reads."


def query_fact(word: str, scores: Extremes) -> str:
    """Which key a query matches most by content."""
    key, score = scores.most[0]
    return (
        f"By content alone, the query of :primary[**{plain(word)}**] matches the key **{plain(key)}** most, "
        f"with a score of {signed(score)}."
    )


def extreme_rows(values: Extremes) -> list[list[str]]:
    return [
        [up, signed(high), down, signed(low)]
        for (up, high), (down, low) in zip(values.most, values.least, strict=True)
    ]


def direction_rows(directions: Sequence[Direction]) -> list[list[str]]:
    return [[number(one.value), ", ".join(one.first), ", ".join(one.second)] for one in directions]


def equations(
    circuits: Circuits, head: Head, best: Mapping[CompositionKind, Edge]
) -> tuple[str, ...]:
    """The two circuits, the copying score and the composition, with the numbers of this head where it has them."""
    lines = [r"M_{OV} = W_V W_O, \qquad M_{QK} = W_Q W_K^\top"]
    copying = circuits.measures[head[0]].copying
    if copying is not None:
        lines.append(
            rf"\text{{copying}} = \frac{{\sum_i \lambda_i}}{{\sum_i |\lambda_i|}} = "
            rf"{latex(float(copying[head[1]]))}, \qquad \lambda = "
            rf"\text{{eigenvalues of }} W_E\, M_{{OV}}\, W_U"
        )
    if edge := best.get("K"):
        lines.append(
            r"\text{K-composition} = \frac{\lVert M_{OV}^{A}\,(M_{QK}^{B})^\top\rVert}"
            r"{\lVert M_{OV}^{A}\rVert\,\lVert M_{QK}^{B}\rVert} = "
            rf"{latex(edge.score + circuits.random_level)}, \qquad \text{{at random }} "
            rf"\frac{{1}}{{\sqrt C}} = {latex(circuits.random_level)}"
        )
    return tuple(lines)


def conditions(circuits: Circuits, name: str, row: int) -> str:
    """What was folded in, left out and read through what."""
    one, tables = circuits.heads[row], circuits.vocabularies
    parts = [
        f"{plain(name)}: from the weights alone; no text was read.",
        "The gain of the norm before each matrix is folded into it, and the centering of a LayerNorm; biases, "
        "positions and the changing scale of the norms are left out, and so is what feed-forward layers do in "
        "between.",
    ]
    if one.kv_heads < len(one.w_v):
        parts.append(f"{len(one.w_v)} query heads share {one.kv_heads} heads of keys and values.")
    if one.w_q is None:
        parts.append(
            "This family normalizes queries and keys, so no one matrix compares them: there is no QK circuit."
        )
    if one.gated:
        parts.append(
            "The query's token gates what the head writes, by numbers of its own for each dimension or head; "
            "the circuits are those of a gate of 1."
        )
    if not circuits.has_tokens(row):
        parts.append(_no_tokens(one, circuits))
    else:
        parts.append("Special tokens are left out of the lists.")
    if circuits.has_tokens(row) and one.writes in tables.by_embedding:
        parts.append(
            "There is no unembedding here, so what is written is read through the embedding of the tokens."
        )
    return " ".join(parts)


def _no_tokens(one: HeadMatrices, circuits: Circuits) -> str:
    if not circuits.vocabularies.embeddings:
        return "It reads no tokens, so its circuits cannot be read as words."
    return "Its tokens have embeddings of another width or vocabulary, so its circuits cannot be read as words."
