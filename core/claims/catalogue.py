"""All claims, in the order of the page; by subject in a file each, and those that plug-ins register."""

import re
import sys
from dataclasses import replace

from core import plugins
from core.claims.base import Claim
from core.claims.entries.cost import COST, GROUPS, HYBRID, LADDER
from core.claims.entries.heads import HEADS, INDUCTION_CLAIM, ROLES_CLAIM
from core.claims.entries.meaning import EXPLANATION, SINKS
from core.claims.entries.positions import CONCATENATION, PATH, POSITIONS_CLAIM
from core.claims.entries.scores import DIFFERENCE, SCALING, SCORES_CLAIM, TOPK
from core.claims.entries.training import CAUSAL, DECODING, NORM, OVER_DEPTH, REGULARIZATION
from core.claims.entries.why_attention import ADVANTAGES, BOTTLENECK, IRIS
from core.entries import ConfigError, quote, refuse_if

CLAIMS: list[Claim] = [
    BOTTLENECK,
    SCALING,
    SCORES_CLAIM,
    HEADS,
    POSITIONS_CLAIM,
    PATH,
    NORM,
    IRIS,
    LADDER,
    COST,
    CAUSAL,
    INDUCTION_CLAIM,
    EXPLANATION,
    SINKS,
    GROUPS,
    DIFFERENCE,
    REGULARIZATION,
    CONCATENATION,
    DECODING,
    ROLES_CLAIM,
    ADVANTAGES,
    HYBRID,
    TOPK,
    OVER_DEPTH,
]


def claim_of(key: str) -> Claim:
    """The claim of that key; ConfigError lists the keys there are."""
    known = {claim.key: claim for claim in CLAIMS}
    if key not in known:
        raise ConfigError(
            f"claim = {quote(key)}; expected one of {', '.join(known)}.{plugins.why_missing()}"
        )
    return known[key]


def register_claim(claim: Claim) -> None:
    """Add a claim from outside, such as from a plug-in, with "(plug-in)" after its name.

    ConfigError where its key is taken or no name for a file and a link, or where it compares or judges nothing.
    """
    refuse_if(
        not re.fullmatch("[a-z][a-z0-9_]*", claim.key),
        f"claim = {quote(claim.key)}; expected a key of small letters, digits and _.",
    )
    refuse_if(
        any(other.key == claim.key for other in CLAIMS),
        f"There is a claim {quote(claim.key)} already; take another key.",
    )
    refuse_if(
        not (claim.conditions(claim.settle()) and claim.parts and claim.figures),
        f"The claim {claim.key} was not added. It needs conditions, parts and figures.",
    )
    made = replace(claim, name=f"{claim.name} (plug-in)")
    CLAIMS.append(made)
    plugins.claim_files[claim.key] = sys._getframe(1).f_code.co_filename
    plugins.undo.append(lambda: CLAIMS.remove(made))
