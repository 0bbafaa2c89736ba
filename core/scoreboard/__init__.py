"""The scoreboard: which mechanism learns which skill, in how many of eight seeds, and at which learning rates."""
