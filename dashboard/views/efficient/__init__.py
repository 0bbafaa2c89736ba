"""The page Cost and speed: kernels raced here, beside their closed forms, and the weights that some of them imply."""
