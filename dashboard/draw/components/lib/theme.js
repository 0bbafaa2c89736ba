// Colours: the palettes come with the data, from palette.py; everything else is read from Streamlit's theme.

/** @import { Palette, Rgb, Theme } from "./types" */

/** @param {string} hex @returns {Rgb} */
export const rgbOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** The stops, linearly between them in sRGB, as so many colours of three bytes. @param {string[]} stops */
export function lookup(stops, count = 256) {
  const table = new Uint8Array(count * 3);
  const rgb = stops.map(rgbOf);
  for (let k = 0; k < count; k++) {
    const at = (k / (count - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      table[3 * k + c] = Math.round(rgb[low][c] + (at - low) * (rgb[low + 1][c] - rgb[low][c]));
    }
  }
  return table;
}

/** Any CSS colour: the canvas is the only parser that knows them all. @param {string} css @returns {Rgb} */
function parseColour(css) {
  const ctx = document.createElement("canvas").getContext("2d");
  ctx.fillStyle = css;
  const text = String(ctx.fillStyle);
  return text.startsWith("#") ? rgbOf(text) : text.match(/[\d.]+/g).slice(0, 3).map(Number);
}

/** @param {Rgb} rgb */
export const rgba = ([r, g, b], alpha = 1) => `rgba(${r}, ${g}, ${b}, ${alpha})`;

/** The page's color of this name; where the system forces its own, as in high contrast, that one. */
function pageColor(style, name, fallback, forced) {
  return matchMedia("(forced-colors: active)").matches ? forced : style.getPropertyValue(`--st-${name}`).trim() || fallback;
}

/** @param {HTMLElement} host @param {Palette} palette @returns {Theme} */
export function readTheme(host, palette, signed = false) {
  const style = getComputedStyle(host);
  const read = (name, fallback, forced = undefined) => pageColor(style, name, fallback, forced ?? fallback);
  const ground = parseColour(read("background-color", "#FFFFFF", "Canvas"));
  const dark = 0.299 * ground[0] + 0.587 * ground[1] + 0.114 * ground[2] < 128;
  const own = palette[dark ? "dark" : "light"];
  const text = parseColour(read("text-color", own.text, "CanvasText"));
  const stops = signed ? own.signed : own.weights;
  return {
    dark, ground: rgba(ground), text: rgba(text), ink: palette.light.text,
    secondary: rgba(text, 0.62), hairline: rgba(text, 0.1),
    hatchGround: read("secondary-background-color", own.weights[0]), hatchLine: rgba(text, dark ? 0.2 : 0.24),
    pick: own.pick, pickRgb: rgbOf(own.pick), primaryRgb: parseColour(read("primary-color", own.pick)),
    bar: own.bar, zero: own.weights[0], line: rgbOf(own.weights[5]), categories: own.categories,
    stops, signed: own.signed, table: lookup(stops), font: style.getPropertyValue("--st-font").trim() || "sans-serif",
  };
}

/** @param {Theme} theme @param {number} size px */
export const fontOf = (theme, size, weight = 400) => `${weight} ${size}px ${theme.font}`;

/** The index into 256 colours of a value between low and high. */
export function shade(value, low, high) {
  const k = Math.round(((value - low) / (high - low)) * 255);
  return k < 0 ? 0 : k > 255 ? 255 : k;
}

/** A colour of a lookup table. @param {Uint8Array} table @param {number} k @returns {Rgb} */
export const rgbAt = (table, k) => [...table.subarray(3 * k, 3 * k + 3)];
export const colourAt = (table, k) => rgba(rgbAt(table, k));

/** Relative luminance, 0 black to 1 white (WCAG 2.2). @param {Rgb} rgb */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const EVEN = 0.179; // the luminance on which black and white have the same contrast (WCAG 2.2)

/** The colour of text on a cell: the page's on a pale one, else black or white, by contrast. @param {Rgb} rgb */
export function textOn(theme, rgb) {
  const light = luminance(rgb);
  return light > 0.5 ? theme.ink : light > EVEN ? "#000000" : "#FFFFFF";
}

/** Masked cells: lines at 45 degrees, 5 px apart, on the sidebar's grey; never zero's colour. @param {CanvasRenderingContext2D} ctx */
export function hatch(ctx, theme, x, y, w, h) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.fillStyle = theme.hatchGround;
  ctx.fillRect(x, y, w, h);
  ctx.strokeStyle = theme.hatchLine;
  ctx.lineWidth = 1;
  hatchLines(ctx, x, y, w, h, 5 * Math.SQRT2);
  ctx.restore();
}

/** Lines at 45 degrees over a rectangle, `pitch` px apart along its side. @param {CanvasRenderingContext2D} ctx */
export function hatchLines(ctx, x, y, w, h, pitch) {
  ctx.beginPath();
  for (let at = -h; at < w; at += pitch) {
    ctx.moveTo(x + at, y + h);
    ctx.lineTo(x + at + h, y);
  }
  ctx.stroke();
}
