"""What a model attends to, and what that means: maps, circuits, lenses, and evidence from changed models."""
