"""The pages in the order in which they are read; the sidebar and every "next page" link come from here."""

from dataclasses import dataclass
from importlib import import_module

import streamlit as st


@dataclass(frozen=True)
class Step:
    """One page: its file in pages/ (also its URL), its title, its icon and the line that invites to it."""

    key: str
    title: str
    icon: str
    invite: str
    default: bool = False

    def page(self) -> st.Page:
        """The page for Streamlit; without an icon, which would be fetched from another host."""
        return st.Page(self.run, title=self.title, url_path=self.key, default=self.default)

    def run(self) -> None:
        """Draw the page. Its module is imported once: what it defines is the same in every run."""
        import_module(f"pages.{self.key}").page()


GROUPS: dict[str, tuple[Step, ...]] = {
    "The path": (
        Step(
            "start",
            "Start here",
            ":material/flag:",
            "Begin again with attention in five sentences.",
            default=True,
        ),
        Step(
            "why",
            "Why attention",
            ":material/hourglass:",
            "See what a sentence loses in one vector.",
        ),
        Step(
            "one_query",
            "One query, step by step",
            ":material/stairs_2:",
            "Follow one query through the formula.",
        ),
        Step("heads", "Heads", ":material/view_column:", "Split one attention into many heads."),
        Step(
            "positions",
            "Positions",
            ":material/straighten:",
            "See how attention gets the order of words.",
        ),
        Step("masks", "Masks", ":material/grid_on:", "Decide which words each word may attend to."),
        Step(
            "transformer",
            "The Transformer",
            ":material/account_tree:",
            "Open a whole model layer by layer.",
        ),
        Step(
            "train",
            "Train and watch",
            ":material/play_circle:",
            "Watch attention form while a model learns.",
        ),
    ),
    "Mechanisms": (
        Step(
            "scores",
            "Scores",
            ":material/compare_arrows:",
            "Compare a query with a key in every way.",
        ),
        Step(
            "normalizers",
            "Normalizers",
            ":material/bar_chart:",
            "Turn scores into weights in every way.",
        ),
        Step(
            "mechanisms",
            "All mechanisms",
            ":material/menu_book:",
            "Look up any choice of the six axes.",
        ),
        Step(
            "compare", "Side by side", ":material/compare:", "Compare mechanisms on the same words."
        ),
        Step(
            "efficient",
            "Cost and speed",
            ":material/speed:",
            "Measure what each kernel costs as text grows.",
        ),
        Step(
            "cache",
            "Cache and decoding",
            ":material/database:",
            "See what a decoder stores of each token.",
        ),
        Step(
            "cards",
            "Model cards",
            ":material/style:",
            "See what the layers of published models cost.",
        ),
    ),
    "Runs and claims": (
        Step("runs", "Runs", ":material/history:", "Find what was trained, and continue it."),
        Step(
            "compare_runs",
            "Compare runs",
            ":material/stacked_line_chart:",
            "Compare two to four runs.",
        ),
        Step("sweeps", "Sweeps", ":material/tune:", "Vary one setting, from several seeds."),
        Step(
            "decode",
            "Decode",
            ":material/account_tree:",
            "See what else a model could have written.",
        ),
        Step(
            "claims", "Claims", ":material/gavel:", "See which classic claims hold when measured."
        ),
    ),
    "Look inside a model": (
        Step(
            "pretrained",
            "Pretrained models",
            ":material/search:",
            "See what 72 trained heads do with a sentence.",
        ),
        Step(
            "inside_weight",
            "Inside one weight",
            ":material/zoom_in:",
            "Take one weight apart, number by number.",
        ),
        Step(
            "evidence",
            "Evidence",
            ":material/fact_check:",
            "Measure what the weights do to the answer.",
        ),
        Step(
            "lens",
            "When it decides",
            ":material/manage_search:",
            "Read every layer as if it were the last.",
        ),
        Step(
            "circuits",
            "What a head can do",
            ":material/schema:",
            "Read from its weights what a head can do.",
        ),
        Step("head_roles", "Head roles", ":material/badge:", "Find what each head attends to."),
        Step(
            "corpus",
            "Heads over a corpus",
            ":material/scatter_plot:",
            "Measure every head on hundreds of texts.",
        ),
        Step(
            "generate",
            "Generate",
            ":material/edit_note:",
            "Watch a model say one token after another.",
        ),
        Step(
            "two_models",
            "Two models, two texts",
            ":material/difference:",
            "Compare the attention of two models or texts.",
        ),
        Step("use_model", "Use a model", ":material/task_alt:", "Use a model for its usual task."),
        Step(
            "fine_tune",
            "Fine-tune",
            ":material/school:",
            "Continue the training of a pretrained model.",
        ),
    ),
    "Learn and look up": (
        Step(
            "questions", "Questions", ":material/help:", "Read short answers to what learners ask."
        ),
        Step("lessons", "Lessons", ":material/assignment:", "Work through a lesson, or make one."),
        Step("glossary", "Glossary", ":material/dictionary:", "Look up a term."),
        Step(
            "report", "Report", ":material/summarize:", "Take views of several pages as one file."
        ),
    ),
}
PATH: tuple[str, ...] = tuple(step.key for step in GROUPS["The path"][1:])  # after Start here
STEPS: tuple[Step, ...] = tuple(step for steps in GROUPS.values() for step in steps)


def step_of(key: str) -> Step:
    return next(step for step in STEPS if step.key == key)


def following(key: str) -> Step:
    """The step after this one; after the last comes the first."""
    keys = [step.key for step in STEPS]
    return STEPS[(keys.index(key) + 1) % len(STEPS)]
