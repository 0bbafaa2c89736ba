"""Syntactic heads: which head's most attended word is the subject of a verb, the noun of an adjective, and so on."""
