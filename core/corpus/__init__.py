"""Every head of a model measured over hundreds of texts, one text at a time: means, intervals, deciles, examples."""

from core.corpus.config import CorpusConfig
from core.corpus.measures import MEASURES, Measure
from core.corpus.statistics import Corpus, TextRecord, measure_texts

__all__ = ["MEASURES", "Corpus", "CorpusConfig", "Measure", "TextRecord", "measure_texts"]
