// Colours and texts of the picture.

/** @import { Picture } from "./types" */
import { svgElement } from "../lib/dom.js";
import { clamp, fit } from "../lib/layout.js";
import { fontOf, lookup, rgbAt, rgba } from "../lib/theme.js";

const LEVELS = 255; // bytes 0 to 254; 255 is a masked cell

/** The colours of both scales, by level. @returns {Record<"signed" | "weight", Uint8Array>} */
export function tablesOf(palette, theme) {
  const own = palette[theme.dark ? "dark" : "light"];
  return { signed: lookup(own.signed, LEVELS), weight: lookup(own.weights, LEVELS) };
}

/** The colour of a level, -1 to 1. @param {Picture} view @param {number} level */
export const signedRgb = (view, level) => rgbAt(view.tables.signed, Math.round((clamp(level, -1, 1) + 1) * 127));

/** A strong colour laid thinly over the page, the stage's or the picked row's. */
export const tintOf = ({ dark, pickRgb }) => rgba(pickRgb, dark ? 0.08 : 0.05);
export const bandOf = ({ dark, primaryRgb }) => rgba(primaryRgb, dark ? 0.22 : 0.1);

/** The width of a text in a size in px. */
export function widthOf({ pen, theme }, text, size) {
  pen.font = fontOf(theme, size);
  return pen.measureText(text).width;
}

/** A text in a size in px cut to some room, with an ellipsis. */
export function cut({ pen, theme }, text, room, size) {
  pen.font = fontOf(theme, size);
  return fit(pen, text, room);
}

/** @param {Picture} view @param {string} name its classes @param {string} text */
export const drawText = (view, x, y, name, text, attributes = {}) =>
  svgElement(view.svg, "text", { x, y, class: name, ...attributes }, text);

/** @param {Picture} view @param {Record<string, string | number>} attributes */
export const drawRect = (view, x, y, width, height, attributes) =>
  svgElement(view.svg, "rect", { x, y, width, height, ...attributes });

/** A scale with its title and the texts of its ends. @param {Picture} view @param {string[]} ends */
export function drawLegend(view, x, y, scale, title, ends, wide) {
  drawRect(view, x, y, wide, 8, { fill: `url(#step-${scale})` });
  drawText(view, x + wide + 8, y + 8, "muted tick", title);
  const anchors = ["start", "middle", "end"];
  ends.forEach((text, at) => drawText(view, x + (at * wide) / 2, y + 21, "faint tick", text, { "text-anchor": anchors[at] }));
}
