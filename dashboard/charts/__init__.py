"""Arrays to figures: Vega-Lite specs and HTML, the palette and the formatters of numbers."""
