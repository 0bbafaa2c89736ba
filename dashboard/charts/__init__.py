"""Arrays to figures: Vega-Lite specs and HTML, the one palette and the one rule by which numbers are written."""
