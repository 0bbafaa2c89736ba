"""The catalogue of the documentation has every choice, preset and term, with what its entry says and what it costs."""

import re

from core.attention import AXES, PRESETS, Attention, AttentionConfig
from core.attention.cost import attention_cost
from core.claims.base import verdict
from core.claims.catalogue import CLAIMS
from core.claims.shipped import shipped
from core.models.cards import CARDS
from dashboard.draw.formats import operations
from dashboard.draw.glossary import TERMS
from docs.site import catalogue, measured
from tests.cases import each

PAGES = catalogue.pages()


def sections(page: str) -> dict[str, str]:
    """The sections of a page by the key in their heading."""
    parts = re.split(r"^## .* \{ #(\w+) \}$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def row(page: str, key: str) -> list[str]:
    """The cells of a choice or preset in the table at the top."""
    line = next(line for line in page.splitlines() if f"](#{key}) |" in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


@each("axis", list(AXES))
def test_an_axis_has_every_choice(axis):
    shown = sections(PAGES[f"catalogue/{axis}.md"])
    assert shown.keys() == {item.key for item in AXES[axis]}
    for item in AXES[axis]:
        text = shown[item.key]
        assert item.latex in text and str(item.year) in text and item.url in text
        assert all(f"`{param.key}`" in text for param in item.params)


def test_the_presets_are_all_there():
    shown = sections(PAGES["catalogue/presets.md"])
    assert list(shown) == [item.key for item in PRESETS]
    assert "Grouped-query" in shown["mistral"] and "2310.06825" in shown["mistral"]


def test_costs_are_those_of_the_layer():
    config = AttentionConfig(64, 4, kernel="linear")
    cells = row(PAGES["catalogue/kernel.md"], "linear")
    assert cells[4] == operations(attention_cost(config, 512, 512).flops) and cells[6] == "× 2.0"
    learned = sum(weight.numel() for weight in Attention(AttentionConfig(64, 4)).parameters())
    assert row(PAGES["catalogue/presets.md"], "self_attention")[2] == f"{learned:,}"
    assert row(PAGES["catalogue/score.md"], "scaled_dot")[2:5] == ["0", "128", "67.1\u00a0M"]


def test_signs_of_markdown_in_a_name_are_text():
    assert catalogue.plain("a*b_c|d$") == r"a\*b\_c\|d\$"


def test_every_term_is_listed():
    rows = [line for line in catalogue.terms().splitlines() if line.startswith("| ")]
    assert len(rows) == len(TERMS) + 2


def test_every_claim_has_its_verdict_and_every_part_a_row():
    parts = sections(measured.claims())
    assert list(parts) == [claim.key for claim in CLAIMS]
    for claim in CLAIMS:
        result = shipped(claim)
        assert result is not None
        state = verdict(claim, result.settings, result.results).state
        assert f"Verdict: {state}, over " in parts[claim.key]
        assert parts[claim.key].count("\n| ") == len(claim.parts) + 2


def test_every_card_has_its_numbers():
    rows = [line for line in measured.cards().splitlines() if line.startswith("| [")]
    assert len(rows) == len(CARDS)
    gpt2 = next(line for line in rows if "GPT-2" in line)
    assert "| 2019 | 12 | 124\u00a0M | 124\u00a0M | 37.7\u00a0MB |" in gpt2
