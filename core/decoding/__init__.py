"""Decoding: from a model and a source to what it says, and the tree of what else it might have said."""

from core.decoding.beam import beam, beaming, penalty
from core.decoding.filters import Sampling, no_repeat, top_k, top_p
from core.decoding.greedy import greedy
from core.decoding.prefix import BOS, EOS, Decoder, Followed, Prompt, follow
from core.decoding.sample import sample, sampling
from core.decoding.tree import ROOT, Candidate, Hypothesis, Tree

__all__ = ["BOS", "EOS", "ROOT", "Candidate", "Decoder", "Followed", "Hypothesis", "Prompt", "Sampling", "Tree", "beam",
           "beaming", "follow", "greedy", "no_repeat", "penalty", "sample", "sampling", "top_k", "top_p"]
