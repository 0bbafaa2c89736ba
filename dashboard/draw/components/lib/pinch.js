// Two fingers on a map zoom it: the tokens that they are on stay below them.

/** @import { Box, Point, Pointed, Span } from "./types" */
import { clamp } from "./layout.js";
import { pointIn, whole } from "./zoom.js";

const LEAST = 2; // rows and columns in sight

/** Two fingers: the point between them, and how far they are apart. @typedef {Point & {apart: number}} Fingers */

/** What is in sight after two fingers have moved. @param {Span} span at first @param {Span} all @param {Box} box at first @param {Fingers} from @param {Fingers} to @returns {Span} */
export function pinchedSpan(span, all, box, from, to) {
  const scale = from.apart / Math.max(1, to.apart);
  const along = (low, high, most, before, after) => {
    const size = clamp(Math.round((high - low) * scale), Math.min(LEAST, most), most);
    const first = clamp(Math.round(low + before * (high - low) - after * size), 0, most - size);
    return [first, first + size];
  };
  const across = ({ x }) => clamp((x - box.x) / box.w, 0, 1), down = ({ y }) => clamp((y - box.y) / box.h, 0, 1);
  const [r0, r1] = along(span.r0, span.r1, all.r1, down(from), down(to));
  const [c0, c1] = along(span.c0, span.c1, all.c1, across(from), across(to));
  return { r0, r1, c0, c1 };
}

/** @param {HTMLElement} canvas @param {TouchList} touches @returns {Fingers} */
function fingersOn(canvas, touches) {
  const [a, b] = [touches[0], touches[1]].map((touch) => pointIn(canvas, touch));
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
}

/** Zoom a view while two fingers are on its canvas. `zoom` takes what is in sight; `end`, if the fingers came closer.
 * @param {HTMLElement} canvas @param {Pointed} view @param {() => Box | null} boxOf @param {(span: Span) => void} zoom @param {(closer: boolean) => void} [end] */
export function onPinch(canvas, view, boxOf, zoom, end = () => {}) {
  /** @type {{box: Box, span: Span, from: Fingers, to: Fingers} | null} */
  let pinch = null;
  const start = (/** @type {TouchEvent} */ event) => {
    const box = event.touches.length === 2 ? boxOf() : null;
    if (!box) return;
    event.preventDefault(); // the page neither scrolls nor zooms
    const from = fingersOn(canvas, event.touches);
    pinch = { box, span: view.window, from, to: from };
    view.pinching = true;
  };
  const move = (/** @type {TouchEvent} */ event) => {
    if (!pinch || event.touches.length !== 2) return;
    event.preventDefault();
    pinch.to = fingersOn(canvas, event.touches);
    const span = pinchedSpan(pinch.span, whole(view), pinch.box, pinch.from, pinch.to), now = view.window;
    if (Object.keys(span).some((edge) => span[edge] !== now[edge])) zoom(span);
  };
  const stop = (/** @type {TouchEvent} */ event) => {
    if (!pinch || event.touches.length > 1) return;
    const closer = pinch.to.apart < pinch.from.apart;
    pinch = null;
    view.pinching = false;
    end(closer);
  };
  canvas.addEventListener("touchstart", start, { passive: false });
  canvas.addEventListener("touchmove", move, { passive: false });
  for (const name of ["touchend", "touchcancel"]) canvas.addEventListener(name, stop);
}
