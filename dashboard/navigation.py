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
    place: str = ""  # the entry of the sidebar that it shares with other pages about one object
    section: str = ""  # its name there
    listed: bool = True  # in the sidebar; Report is once something is in it

    @property
    def path(self) -> str:
        """Its address after the last slash: that of the first page is empty."""
        return "" if self.default else self.key

    def page(self) -> st.Page:
        """The page for Streamlit; without an icon, which would be fetched from another host."""
        return st.Page(self.run, title=self.title, url_path=self.path, default=self.default)

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
            "mechanisms",
            "All mechanisms",
            ":material/menu_book:",
            "Look up any choice of the six axes.",
            place="All mechanisms",
            section="Every choice",
        ),
        Step(
            "scores",
            "Scores",
            ":material/compare_arrows:",
            "Compare a query with a key in every way.",
            place="All mechanisms",
            section="Scores",
        ),
        Step(
            "normalizers",
            "Normalizers",
            ":material/bar_chart:",
            "Turn scores into weights in every way.",
            place="All mechanisms",
            section="Normalizers",
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
            "cards",
            "Model cards",
            ":material/style:",
            "See what the layers of published models cost.",
        ),
    ),
    "Look inside a model": (
        Step(
            "pretrained",
            "Pretrained models",
            ":material/search:",
            "See what 72 trained heads do with a sentence.",
            place="Pretrained models",
            section="All heads",
        ),
        Step(
            "inside_weight",
            "Inside one weight",
            ":material/zoom_in:",
            "Take one weight apart, number by number.",
            place="Pretrained models",
            section="One weight",
        ),
        Step(
            "why_key",
            "Why this key",
            ":material/call_split:",
            "Split a score by what wrote it.",
            place="Pretrained models",
            section="Why this key",
        ),
        Step(
            "head_roles",
            "Head roles",
            ":material/badge:",
            "Find what each head attends to.",
            place="Pretrained models",
            section="Roles",
        ),
        Step(
            "circuits",
            "What a head can do",
            ":material/schema:",
            "Read from its weights what a head can do.",
            place="Pretrained models",
            section="What a head can do",
        ),
        Step(
            "corpus",
            "Heads over a corpus",
            ":material/scatter_plot:",
            "Measure every head on hundreds of texts.",
            place="Pretrained models",
            section="Over a corpus",
        ),
        Step(
            "evidence",
            "Why this answer",
            ":material/fact_check:",
            "Measure what the weights do to the answer.",
            place="Why this answer",
            section="Head by head",
        ),
        Step(
            "lens",
            "When it decides",
            ":material/manage_search:",
            "Read every layer as if it were the last.",
            place="Why this answer",
            section="Layer by layer",
        ),
        Step(
            "pairs",
            "Many pairs",
            ":material/compare_arrows:",
            "Measure each head on many contrast pairs.",
            place="Why this answer",
            section="Many pairs",
        ),
        Step(
            "generate",
            "Generate",
            ":material/edit_note:",
            "Watch a model say one token after another.",
            place="Generate text",
            section="Token by token",
        ),
        Step(
            "decode",
            "Decode",
            ":material/account_tree:",
            "See what else a model could have written.",
            place="Generate text",
            section="Search",
        ),
        Step(
            "cache",
            "Cache and decoding",
            ":material/database:",
            "See what a decoder stores of each token.",
            place="Generate text",
            section="Cache",
        ),
        Step(
            "two_models",
            "Two texts, two models",
            ":material/difference:",
            "Compare the attention of two models or texts.",
        ),
        Step(
            "use_model",
            "Use a model",
            ":material/task_alt:",
            "Use a model for its usual task.",
            place="Use and fine-tune",
            section="Use",
        ),
        Step(
            "fine_tune",
            "Fine-tune",
            ":material/school:",
            "Continue the training of a pretrained model.",
            place="Use and fine-tune",
            section="Fine-tune",
        ),
    ),
    "Runs and claims": (
        Step(
            "runs",
            "Runs",
            ":material/history:",
            "Find what was trained, and continue it.",
            place="Runs",
            section="All runs",
        ),
        Step(
            "compare_runs",
            "Compare runs",
            ":material/stacked_line_chart:",
            "Compare two to four runs.",
            place="Runs",
            section="Compare",
        ),
        Step(
            "sweeps",
            "Sweeps",
            ":material/tune:",
            "Vary one setting, from several seeds.",
            place="Runs",
            section="Sweeps",
        ),
        Step(
            "claims",
            "Claims",
            ":material/gavel:",
            "See which classic claims hold when measured.",
            place="Claims and skills",
            section="Claims",
        ),
        Step(
            "scoreboard",
            "Scoreboard",
            ":material/leaderboard:",
            "See which mechanism learns which skill.",
            place="Claims and skills",
            section="Skills",
        ),
    ),
    "Learn and look up": (
        Step(
            "questions",
            "Questions",
            ":material/help:",
            "Read short answers to what learners ask.",
            place="Questions and terms",
            section="Questions",
        ),
        Step(
            "glossary",
            "Glossary",
            ":material/dictionary:",
            "Look up a term.",
            place="Questions and terms",
            section="Glossary",
        ),
        Step(
            "quiz",
            "Quiz",
            ":material/quiz:",
            "Answer eight questions about the path.",
            place="Questions and terms",
            section="Quiz",
        ),
        Step("lessons", "Lessons", ":material/assignment:", "Work through a lesson, or make one."),
        Step(
            "report",
            "Report",
            ":material/summarize:",
            "Take views of several pages as one file.",
            listed=False,
        ),
    ),
}
STEPS: tuple[Step, ...] = tuple(step for steps in GROUPS.values() for step in steps)
PATH: tuple[str, ...] = tuple(step.key for step in GROUPS["The path"][1:])  # after Start


def step_of(key: str) -> Step:
    return next(step for step in STEPS if step.key == key)


def sections(key: str) -> tuple[Step, ...]:
    """The pages of this one's place, itself among them."""
    place = step_of(key).place
    return tuple(step for step in STEPS if step.key == key or step.place and step.place == place)


def following(key: str) -> Step:
    """The step after this one; after the last comes the first."""
    return STEPS[(STEPS.index(step_of(key)) + 1) % len(STEPS)]
