"""A run is a folder; here are its files, where it is stored, and who trains it: the worker and its executors."""
