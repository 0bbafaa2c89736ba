"""Classic statements about attention as experiments, each with a verdict computed from the data."""
