"""Pages of the site from what the lab measured and counts: the claims with their verdicts, and the model cards."""

from __future__ import annotations

from core.claims.base import Claim, Effect, rule_lines, verdict_line
from core.claims.catalogue import CLAIMS
from core.claims.run import Shipped, shipped
from core.models.cards import CARDS
from core.models.cards.base import ModelCard
from dashboard.draw.formats import byte_size, number, operations
from docs.site.catalogue import plain

LENGTH = 8192  # tokens, for the caches of the cards


def claims() -> str:
    """Each claim with its source, its verdict and what was measured of each part."""
    return "\n".join(
        [
            "# Claims\n",
            f"{len(CLAIMS)} statements about attention, each an experiment whose rule was "
            "written before any run. Intervals cover all parts of a claim together at 95 %.\n",
            *map(claim_section, CLAIMS),
        ]
    )


def claim_section(claim: Claim) -> str:
    head = [
        f"## {plain(claim.name)} {{ #{claim.key} }}",
        "",
        plain(claim.statement),
        f"[{plain(claim.source.text)}]({claim.source.url})."
        if claim.source.url
        else plain(claim.source.text),
        "",
    ]
    result = shipped(claim)
    return "\n".join(
        [
            *head,
            *(["Not measured yet.", ""] if result is None else verdict_lines(result)),
            f"{plain(claim.limits)} `python -m core.claims run {claim.key}` measures it again.",
            "",
        ]
    )


def verdict_lines(result: Shipped) -> list[str]:
    """The verdict, the day, and a row for each part."""
    claim, judged = result.claim, result.verdict
    sentences = " ".join(
        [verdict_line(claim, judged, len(result.results.seeds)), *rule_lines(claim)]
    )
    return [
        f"{plain(sentences)} Measured on {result.date}.",
        "",
        "| part | measured | mean | interval | outcome |",
        "| --- | --- | ---: | --- | --- |",
        *map(effect_row, judged.effects),
        "",
    ]


def effect_row(effect: Effect) -> str:
    interval = f"{number(effect.low)} to {number(effect.high)}"
    return (
        f"| {plain(effect.part.statement)} | {plain(effect.part.name)} | {number(effect.mean)} | {interval} | "
        f"{effect.outcome} |"
    )


def cards() -> str:
    """The published models in one table, by year."""
    rows = [card_row(card) for card in sorted(CARDS, key=lambda card: card.year)]
    return "\n".join(
        [
            "# Model cards\n",
            f"{len(CARDS)} published models, layer by layer on the page Model cards. The "
            f"cache is that of one sequence of {LENGTH:,} tokens, or of the longest text that the model "
            "takes, in 16-bit numbers.\n",
            "| model | year | layers | parameters | of a token | cache | what sets it apart |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
            *rows,
        ]
    )


def card_row(card: ModelCard) -> str:
    counted = card.stores and card.known
    cache = byte_size(card.cache_bytes(min(LENGTH, card.longest or LENGTH))) if counted else "–"
    return (
        f"| [{plain(card.name)}]({card.url}) | {card.year} | {len(card.blocks)} | {operations(card.parameters)} | "
        f"{operations(card.active)} | {cache} | {plain(card.different)} |"
    )
