"""Any pretrained model → a reading of what it is given: the trace of its attention, and what stands beside it."""

from core.pretrained.answers import Answer, answer
from core.pretrained.attention_recorder import Seen, Watch, watching
from core.pretrained.base import Array, Given, Line, Pretrained, PretrainedError, Reading
from core.pretrained.heads import Heads, heads
from core.pretrained.load import load_folder, load_kept, load_minilm, verify
from core.pretrained.reading import encode, forward, read

__all__ = ["Answer", "Array", "Given", "Heads", "Line", "Pretrained", "PretrainedError", "Reading", "Seen", "Watch",
           "answer", "encode", "forward", "heads", "load_folder", "load_kept", "load_minilm", "read", "verify",
           "watching"]
