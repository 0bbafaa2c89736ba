"""The page Evidence: beside the weights what a head writes, and what the answer loses without a head or a token."""
