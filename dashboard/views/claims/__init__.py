"""The page Claims."""
