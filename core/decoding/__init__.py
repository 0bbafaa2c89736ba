"""Decoding: from a model and a source to what it says, and the tree of what else it might have said."""

from core.decoding.beam import beam, penalty
from core.decoding.filters import Sampling, no_repeat, top_k, top_p
from core.decoding.greedy import greedy
from core.decoding.prefix import BOS, EOS, Followed, Prompt, follow
from core.decoding.sample import sample
from core.decoding.tree import ROOT, Candidate, Hypothesis, Tree

__all__ = ["BOS", "EOS", "ROOT", "Candidate", "Followed", "Hypothesis", "Prompt", "Sampling", "Tree", "beam", "follow",
           "greedy", "no_repeat", "penalty", "sample", "top_k", "top_p"]
