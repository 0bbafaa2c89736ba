// Colours: the palettes come from palette.py in the data; everything else is read from Streamlit's theme.

const rgbOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The stops, linearly between them in sRGB, as 256 colours: three bytes each.
function lookup(stops) {
  const table = new Uint8Array(256 * 3);
  const rgb = stops.map(rgbOf);
  for (let k = 0; k < 256; k++) {
    const at = (k / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      table[3 * k + c] = Math.round(rgb[low][c] + (at - low) * (rgb[low + 1][c] - rgb[low][c]));
    }
  }
  return table;
}

// Any CSS colour as [r, g, b]: the canvas is the only parser that knows them all.
function parseColor(css, fallback) {
  const ctx = document.createElement("canvas").getContext("2d");
  ctx.fillStyle = fallback;
  ctx.fillStyle = css;
  if (ctx.fillStyle.startsWith("#")) return rgbOf(ctx.fillStyle);
  return ctx.fillStyle.match(/[\d.]+/g).slice(0, 3).map(Number);
}

export const rgba = (rgb, alpha) => `rgba(${rgb[0]}, ${rgb[1]}, ${rgb[2]}, ${alpha})`;

export function readTheme(host, palette, signed = false) {
  const style = getComputedStyle(host);
  const read = (name) => style.getPropertyValue(name).trim();
  const ground = parseColor(read("--st-background-color") || "#FFFFFF", "#FFFFFF");
  const dark = 0.299 * ground[0] + 0.587 * ground[1] + 0.114 * ground[2] < 128;
  const text = parseColor(read("--st-text-color") || (dark ? "#E6E8EB" : "#1B2330"), "#1B2330");
  const own = palette[dark ? "dark" : "light"];
  const stops = signed ? own.signed : own.weights;
  return {
    dark,
    ground: rgba(ground, 1),
    text: rgba(text, 1),
    textRgb: text,
    secondary: rgba(text, 0.62),
    hairline: rgba(text, 0.1),
    hatchGround: read("--st-secondary-background-color") || (dark ? "#1B2029" : "#F5F5F2"),
    hatchLine: rgba(text, dark ? 0.2 : 0.24),
    pick: own.pick,
    line: rgbOf(own.weights[5]),
    categories: own.categories,
    stops,
    table: lookup(stops),
    font: read("--st-font") || "sans-serif",
  };
}

export const fontOf = (theme, size, weight = 400) => `${weight} ${size}px ${theme.font}`;

// Index into the 256 colours.
export function shade(value, low, high) {
  const k = Math.round(((value - low) / (high - low)) * 255);
  return k < 0 ? 0 : k > 255 ? 255 : k;
}

export function cssShade(theme, k) {
  return `rgb(${theme.table[3 * k]}, ${theme.table[3 * k + 1]}, ${theme.table[3 * k + 2]})`;
}

// Masked cells: lines at 45 degrees, 5 px apart, on the side's grey; never zero's colour.
export function hatch(ctx, theme, x, y, w, h) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.fillStyle = theme.hatchGround;
  ctx.fillRect(x, y, w, h);
  ctx.strokeStyle = theme.hatchLine;
  ctx.lineWidth = 1;
  ctx.beginPath();
  const pitch = 5 * Math.SQRT2;
  for (let at = -h; at < w; at += pitch) {
    ctx.moveTo(x + at, y + h);
    ctx.lineTo(x + at + h, y);
  }
  ctx.stroke();
  ctx.restore();
}
