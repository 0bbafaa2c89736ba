"""The page Inside a pretrained model."""
