"""The page Questions."""
