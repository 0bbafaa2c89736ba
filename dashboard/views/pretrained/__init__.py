"""The page Pretrained models."""
