// Frames over training: a filmstrip over the slider, each thumbnail over its own place.

/** @import { AttentionView } from "./types" */
import { resized } from "../lib/dom.js";
import { write } from "../lib/layout.js";
import { outline, valueImage } from "../lib/map.js";
import { hatch } from "../lib/theme.js";

export const FILM = { size: 38, gap: 4, thumb: 16, tell: 4 };

/** A range input's thumb centre for frame k, inside a track of some width. @param {AttentionView} view */
function filmX(view, k, width) {
  const last = Math.max(1, view.frames.steps.length - 1);
  return FILM.thumb / 2 + (k / last) * (width - FILM.thumb);
}

/** The frames that get a thumbnail: the picked one and the last, then every one that does not touch another. @param {AttentionView} view */
export function filmFrames(view, width) {
  const last = view.frames.steps.length - 1;
  const frames = [view.frameIndex];
  for (const k of [last, ...Array.from({ length: last }, (_, n) => n)]) {
    const x = filmX(view, k, width);
    if (frames.every((other) => Math.abs(filmX(view, other, width) - x) >= FILM.size + FILM.gap)) frames.push(k);
  }
  return frames;
}

/** @param {AttentionView} view */
export function drawFilm(view) {
  const { canvas, width } = view.film;
  const edge = FILM.size / 2 + 2;
  const ctx = resized(canvas, width + 2 * edge, FILM.size + 26, view.ratio);
  ctx.imageSmoothingEnabled = false;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  const { rows, cols } = view.frames;
  for (const k of filmFrames(view, width)) {
    const x = edge + filmX(view, k, width), picked = k === view.frameIndex;
    const values = Float32Array.from(view.frames.values.subarray(k * rows * cols, (k + 1) * rows * cols));
    if (view.masks) {
      hatch(ctx, view.theme, x - FILM.size / 2, 3, FILM.size, FILM.size);
      for (let at = 0; at < values.length; at++) if (!view.masks[0][at]) values[at] = NaN;
    }
    ctx.drawImage(valueImage(values, cols, rows, view), x - FILM.size / 2, 3, FILM.size, FILM.size);
    const out = picked ? 1 : 0.5, side = FILM.size + 2 * out, colour = picked ? view.theme.pick : view.theme.hairline;
    outline(ctx, x + 0.5 - side / 2, 3.5 - out, side, side, picked ? 2.25 : 1, colour);
    const look = picked ? { weight: 600, colour } : {};
    write(ctx, view.theme, frameName(view, k), x, FILM.size + 16, { size: 12, ...look });
  }
}

/** @param {AttentionView} view */
export function frameName(view, k) {
  return view.live && k === view.frames.steps.length - 1 ? "live" : String(view.frames.steps[k]);
}

/** The frame whose thumbnail lies under a point of the filmstrip, or null. @param {AttentionView} view */
export function filmAt(view, x) {
  const { width } = view.film, inside = x - FILM.size / 2 - 2;
  return filmFrames(view, width).find((k) => Math.abs(filmX(view, k, width) - inside) <= FILM.size / 2) ?? null;
}

/** The frame of a step or the one nearest to it, the last for null. @param {AttentionView} view */
export function frameOf(view, step) {
  const { steps } = view.frames;
  if (step == null) return steps.length - 1;
  return steps.reduce((best, one, k) => (Math.abs(one - step) < Math.abs(steps[best] - step) ? k : best), 0);
}
