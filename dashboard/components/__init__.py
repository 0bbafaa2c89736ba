"""The canvas components: each a Python face and its JavaScript."""
