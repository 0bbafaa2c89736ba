"""The page When it decides: the logit lens, and direct logit attribution."""
