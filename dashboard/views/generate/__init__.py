"""The page Generate: a pretrained model says one token after another."""
