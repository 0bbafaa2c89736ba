"""The page Model cards."""
