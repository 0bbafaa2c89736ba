"""The page Inside one weight: the query and the key that meet in one cell, and every step from them to the weight."""
