"""Arrays to pictures: Vega-Lite specs, maps, SVG and HTML, the palette and the formats of numbers."""
