"""The pages in the order in which they are read; the sidebar and every "next page" link come from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

PAGES = Path(__file__).resolve().parent.parent / "pages"


@dataclass(frozen=True)
class Step:
    """One page: its file in pages/ (also its URL), its title, its icon and the line that invites to it."""

    key: str
    title: str
    icon: str
    invite: str
    default: bool = False

    @property
    def path(self) -> Path:
        return PAGES / f"{self.key}.py"

    def page(self) -> st.Page:
        return st.Page(self.path, title=self.title, icon=self.icon, default=self.default)


GROUPS: dict[str, tuple[Step, ...]] = {
    "Take apart": (
        Step("why", "Why attention", ":material/hourglass:", "See what a sentence loses in one vector.", default=True),
        Step("one_query", "One query, step by step", ":material/stairs_2:",
             "Follow one query through the formula."),
        Step("scores", "Scores", ":material/compare_arrows:", "See every way in which a query can meet a key."),
        Step("heads", "Heads", ":material/view_column:", "Split one attention into many heads."),
        Step("positions", "Positions", ":material/straighten:", "See how order enters."),
        Step("masks", "Masks", ":material/grid_on:", "Decide who may see whom."),
        Step("normalizers", "Normalizers", ":material/bar_chart:", "Turn the same scores into weights in every way."),
        Step("mechanisms", "All mechanisms", ":material/menu_book:", "Look up any choice of the six axes."),
        Step("transformer", "The Transformer", ":material/account_tree:", "Open a whole model layer by layer."),
        Step("questions", "Questions", ":material/help:", "Read short answers to what learners ask."),
    ),
    "Train": (
        Step("train", "Train and watch", ":material/play_circle:", "Watch attention form while a model learns."),
        Step("runs", "Runs", ":material/history:", "Find what was trained, and go on with it."),
        Step("compare_runs", "Compare runs", ":material/stacked_line_chart:",
             "Hold two to four runs against each other."),
        Step("sweeps", "Sweeps", ":material/tune:", "Vary one setting, from several seeds."),
        Step("decode", "Decode", ":material/account_tree:", "See what a trained model might have said instead."),
    ),
    "Compare": (
        Step("compare", "Side by side", ":material/compare:", "Hold mechanisms against each other."),
        Step("efficient", "Cost and speed", ":material/speed:", "Measure what each kernel costs as text grows."),
    ),
    "Look inside": (
        Step("pretrained", "Pretrained models", ":material/search:", "See what 72 trained heads do with a sentence."),
        Step("inside_weight", "Inside one weight", ":material/zoom_in:", "Take one weight apart, number by number."),
        Step("evidence", "Evidence", ":material/fact_check:", "See what stands behind the weights."),
        Step("head_roles", "Head roles", ":material/badge:", "Find out what each head is there for."),
        Step("generate", "Generate", ":material/edit_note:", "Watch a model say one token after another."),
        Step("two_models", "Two models, two texts", ":material/difference:", "Hold attention against attention."),
        Step("use_model", "Use a model", ":material/task_alt:", "Put a model to its ordinary work."),
        Step("fine_tune", "Fine-tune", ":material/school:", "Let a pretrained model go on learning."),
    ),
}
STEPS: tuple[Step, ...] = tuple(step for steps in GROUPS.values() for step in steps)


def following(key: str) -> Step:
    """The step after this one; after the last comes the first."""
    keys = [step.key for step in STEPS]
    return STEPS[(keys.index(key) + 1) % len(STEPS)]
