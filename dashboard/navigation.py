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
    section: str = ""  # its name in its place
    listed: bool = True  # in the sidebar

    @property
    def steps(self) -> tuple["Step", ...]:
        """The pages of its entry in the sidebar: itself."""
        return (self,)

    def page(self) -> st.Page:
        """The page for Streamlit; without an icon, which would be fetched from another host."""
        return st.Page(self.run, title=self.title, url_path=self.key, default=self.default)

    def run(self) -> None:
        """Draw the page. Its module is imported once: what it defines is the same in every run."""
        import_module(f"pages.{self.key}").page()


@dataclass(frozen=True)
class Place:
    """Pages about one object, each a section: one entry of the sidebar, which opens the first."""

    title: str
    steps: tuple[Step, ...]


GROUPS: dict[str, tuple[Step | Place, ...]] = {
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
        Place(
            "All mechanisms",
            (
                Step(
                    "mechanisms",
                    "All mechanisms",
                    ":material/menu_book:",
                    "Look up any choice of the six axes.",
                    section="Every choice",
                ),
                Step(
                    "scores",
                    "Scores",
                    ":material/compare_arrows:",
                    "Compare a query with a key in every way.",
                    section="Scores",
                ),
                Step(
                    "normalizers",
                    "Normalizers",
                    ":material/bar_chart:",
                    "Turn scores into weights in every way.",
                    section="Normalizers",
                ),
            ),
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
        Place(
            "Pretrained models",
            (
                Step(
                    "pretrained",
                    "Pretrained models",
                    ":material/search:",
                    "See what 72 trained heads do with a sentence.",
                    section="All heads",
                ),
                Step(
                    "inside_weight",
                    "Inside one weight",
                    ":material/zoom_in:",
                    "Take one weight apart, number by number.",
                    section="One weight",
                ),
                Step(
                    "head_roles",
                    "Head roles",
                    ":material/badge:",
                    "Find what each head attends to.",
                    section="Roles",
                ),
                Step(
                    "circuits",
                    "What a head can do",
                    ":material/schema:",
                    "Read from its weights what a head can do.",
                    section="What a head can do",
                ),
                Step(
                    "corpus",
                    "Heads over a corpus",
                    ":material/scatter_plot:",
                    "Measure every head on hundreds of texts.",
                    section="Over a corpus",
                ),
            ),
        ),
        Place(
            "What decides the answer",
            (
                Step(
                    "evidence",
                    "Evidence",
                    ":material/fact_check:",
                    "Measure what the weights do to the answer.",
                    section="Evidence",
                ),
                Step(
                    "lens",
                    "When it decides",
                    ":material/manage_search:",
                    "Read every layer as if it were the last.",
                    section="Layer by layer",
                ),
            ),
        ),
        Place(
            "Generate text",
            (
                Step(
                    "generate",
                    "Generate",
                    ":material/edit_note:",
                    "Watch a model say one token after another.",
                    section="Token by token",
                ),
                Step(
                    "decode",
                    "Decode",
                    ":material/account_tree:",
                    "See what else a model could have written.",
                    section="Search",
                ),
                Step(
                    "cache",
                    "Cache and decoding",
                    ":material/database:",
                    "See what a decoder stores of each token.",
                    section="Cache",
                ),
            ),
        ),
        Step(
            "two_models",
            "Two models, two texts",
            ":material/difference:",
            "Compare the attention of two models or texts.",
        ),
        Place(
            "Use and fine-tune",
            (
                Step(
                    "use_model",
                    "Use a model",
                    ":material/task_alt:",
                    "Use a model for its usual task.",
                    section="Use",
                ),
                Step(
                    "fine_tune",
                    "Fine-tune",
                    ":material/school:",
                    "Continue the training of a pretrained model.",
                    section="Fine-tune",
                ),
            ),
        ),
    ),
    "Runs and claims": (
        Place(
            "Runs",
            (
                Step(
                    "runs",
                    "Runs",
                    ":material/history:",
                    "Find what was trained, and continue it.",
                    section="All runs",
                ),
                Step(
                    "compare_runs",
                    "Compare runs",
                    ":material/stacked_line_chart:",
                    "Compare two to four runs.",
                    section="Compare",
                ),
                Step(
                    "sweeps",
                    "Sweeps",
                    ":material/tune:",
                    "Vary one setting, from several seeds.",
                    section="Sweeps",
                ),
            ),
        ),
        Step(
            "claims", "Claims", ":material/gavel:", "See which classic claims hold when measured."
        ),
    ),
    "Learn and look up": (
        Place(
            "Questions and terms",
            (
                Step(
                    "questions",
                    "Questions",
                    ":material/help:",
                    "Read short answers to what learners ask.",
                    section="Questions",
                ),
                Step(
                    "glossary",
                    "Glossary",
                    ":material/dictionary:",
                    "Look up a term.",
                    section="Glossary",
                ),
                Step(
                    "quiz",
                    "Quiz",
                    ":material/quiz:",
                    "Answer eight questions about the path.",
                    section="Quiz",
                ),
            ),
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
PLACES: tuple[Step | Place, ...] = tuple(place for places in GROUPS.values() for place in places)
STEPS: tuple[Step, ...] = tuple(step for place in PLACES for step in place.steps)
PATH: tuple[str, ...] = tuple(place.steps[0].key for place in GROUPS["The path"][1:])  # after Start


def step_of(key: str) -> Step:
    return next(step for step in STEPS if step.key == key)


def sections(key: str) -> tuple[Step, ...]:
    """The pages of this one's place, itself among them."""
    return next(place.steps for place in PLACES if step_of(key) in place.steps)


def following(key: str) -> Step:
    """The step after this one; after the last comes the first."""
    keys = [step.key for step in STEPS]
    return STEPS[(keys.index(key) + 1) % len(STEPS)]
