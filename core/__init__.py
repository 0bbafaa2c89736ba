"""Attention Lab's library: mechanisms, models, tasks and training in PyTorch, without any page."""
