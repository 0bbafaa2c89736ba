"""The page Decode: greedy, beam search and sampling on a trained model, with the search tree."""
