"""The page Evidence: the weights of a head, what it writes, and what the answer loses without a head or a token."""
