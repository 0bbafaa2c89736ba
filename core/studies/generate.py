"""The outputs of a search for a continuation, also of one that is not over, and one of them read again."""

from core.models.decoding import Hypothesis, Tree
from core.pretrained import ModelInputs, Pretrained
from core.pretrained.generate import Continuation, prepare_generation, score_continuation


def length(tree: Tree) -> int:
    """The number of tokens of the longest output so far."""
    return 1 + max((one.step for one in tree.candidates), default=-1)


def outputs(tree: Tree, done: bool) -> list[Hypothesis]:
    """The outputs, the best first; while the search is not done, also the beginnings that it would continue."""
    hypotheses, last = list(tree.hypotheses), length(tree) - 1
    if not done:
        hypotheses += [
            Hypothesis(leaf, tree.tokens(leaf), one.total, one.total, one.samples)
            for leaf, one in enumerate(tree.candidates)
            if one.step == last and one.fate == "kept"
        ]
        hypotheses.sort(key=lambda one: (-one.samples, -one.logp))
    return hypotheses


def score_path(
    pretrained: Pretrained, inputs: ModelInputs, tokens: tuple[int, ...]
) -> Continuation:
    """All logits and the attention along one output."""
    return score_continuation(pretrained, prepare_generation(pretrained, inputs), tokens)
