"""The page Sweeps: the values of one setting side by side, each from several seeds."""
