"""Sweeps: one setting's values side by side, each from several seeds; queued, followed, and shown with their spread."""
