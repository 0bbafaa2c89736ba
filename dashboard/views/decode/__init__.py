"""The page Decode: greedy, beam search and sampling on a trained model, with the tree of what was weighed."""
