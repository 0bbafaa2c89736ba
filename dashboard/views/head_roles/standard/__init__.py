"""Standard tests of heads: induction, duplicate and previous token on random tokens; successors by the weights."""
