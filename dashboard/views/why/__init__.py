"""Why attention: a sentence through one vector, or looked back at."""
