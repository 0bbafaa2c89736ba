"""Attention Lab's library: mechanisms, models, tasks and training in PyTorch, without any page."""

from core.plugins import load_plugins

load_plugins()  # before any other module of core is imported, so that a plug-in meets none that is half imported
