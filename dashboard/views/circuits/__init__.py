"""The page What a head can do: OV and QK circuits and composition of heads, from the weights alone."""
