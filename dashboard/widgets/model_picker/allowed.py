"""The models of the hub that a public copy opens: a short list, which ATTENTION_LAB_HOSTED_MODELS replaces."""

from __future__ import annotations

from core.files import HOSTED, hosted
from core.pretrained import PretrainedError
from core.pretrained.hub import COMMIT, downloaded_commits
from core.settings import settings

VARIABLE = f"{HOSTED}_MODELS"
SUGGESTED = ("distilbert/distilgpt2", "google-t5/t5-small", "google/vit-base-patch16-224")
MODELS = (*SUGGESTED, "distilbert/distilbert-base-uncased")


def allowed_models() -> tuple[str, ...]:
    """The names of the list, owner/name, which the variable has with commas between them."""
    return settings().hosted_models or MODELS


def hub_help() -> str:
    """Which models of the hub may be typed."""
    if hosted():
        return f"You can also type one of these models of the Hugging Face hub: {', '.join(allowed_models())}."
    return "You can also type the name of any model of the Hugging Face hub, owner/name."


def hub_examples() -> str:
    """Models of the hub to begin with, as the start of a sentence; on a public copy all that it opens."""
    if hosted():
        return f"One of {', '.join(allowed_models())}; one at a time is downloaded"
    return f"For example {', '.join(SUGGESTED)}"


def is_allowed(repo: str) -> bool:
    """Whether a model of the hub may be opened; elsewhere than on a public copy, each may."""
    return not hosted() or repo in allowed_models()


def refuse_model(repo: str, revision: str) -> None:
    """PretrainedError on a public copy for a model beyond the list, and for a revision that is not here or the main."""
    if not is_allowed(repo):
        raise PretrainedError(
            f"This is a public copy, which opens these models of the hub: "
            f"{', '.join(allowed_models())}. Run the lab on your own computer for {repo}."
        )
    if (
        hosted()
        and revision
        and not (COMMIT.fullmatch(revision) and revision in downloaded_commits(repo))
    ):
        raise PretrainedError(
            f"This is a public copy, which opens the main revision of {repo} alone."
        )
