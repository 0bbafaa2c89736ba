"""What a head can do: its OV and QK circuits and its composition with earlier heads, from the weights alone."""

from dashboard.views.circuits.page import page

page()
