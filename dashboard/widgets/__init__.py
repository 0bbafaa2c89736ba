"""What several pages show or ask with."""
