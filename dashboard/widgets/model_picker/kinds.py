"""What the kinds of attention are called on every page of Look inside, and in its links."""

from core.trace import Kind

KINDS: dict[Kind, str] = {"self": "Encoder", "causal": "Decoder", "cross": "Cross"}
