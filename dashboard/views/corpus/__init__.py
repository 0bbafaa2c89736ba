"""Every head of a model over hundreds of texts: the page Heads over a corpus."""
