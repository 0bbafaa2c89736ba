"""Decoding: the output of a model for a source, and the tree of the alternatives that a search considered."""

from core.decoding.beam import beam, beam_steps, penalty
from core.decoding.filters import Sampling, SearchSettings, Strategy, no_repeat, top_k, top_p
from core.decoding.greedy import greedy
from core.decoding.prefix import BOS, EOS, Decoder, ForcedSteps, Prompt, force_tokens
from core.decoding.sample import sample, sample_steps
from core.decoding.search import search
from core.decoding.tree import ROOT, Candidate, Hypothesis, Tree

__all__ = [
    "BOS",
    "EOS",
    "ROOT",
    "Candidate",
    "Decoder",
    "ForcedSteps",
    "Hypothesis",
    "Prompt",
    "Sampling",
    "SearchSettings",
    "Strategy",
    "Tree",
    "beam",
    "beam_steps",
    "force_tokens",
    "greedy",
    "no_repeat",
    "penalty",
    "sample",
    "sample_steps",
    "search",
    "top_k",
    "top_p",
]
