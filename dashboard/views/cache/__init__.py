"""The page Cache and decoding."""
