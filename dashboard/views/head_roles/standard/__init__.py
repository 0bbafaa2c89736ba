"""Standard tests of heads on random tokens that repeat: induction, duplicate token, previous token."""
