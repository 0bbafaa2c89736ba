"""The page Heads: one head or many, keys and values shared, and two maps subtracted."""
