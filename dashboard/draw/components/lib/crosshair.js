// The crosshair: views of the same tokens move it together, and it is read aloud.

/** @import { Cell, Pointed, View } from "./types" */

const MOVED = "attention-lab:crosshair";

/** @param {View} view @param {Cell | null} cell */
export function broadcast(view, cell) {
  window.dispatchEvent(new CustomEvent(MOVED, { detail: { from: view, tokens: view.tokens, ...cell } }));
}

/** Call `move` with the cell, or null, when another view of the same tokens moves its crosshair. @param {View} view */
export function onCrosshair(view, move) {
  const listener = (/** @type {any} */ event) => {
    const { from, tokens, i, j } = event.detail;
    if (from === view || tokens !== view.tokens) return;
    view.touch = from.touch; // all views say in the same words how a pin is released
    move(i == null ? null : { i, j });
  };
  window.addEventListener(MOVED, listener, { signal: view.ended.signal });
}

/** Move the crosshair; a silent move is neither passed on nor read aloud. @param {Pointed} view @param {Cell | null} hover */
export function setHover(view, hover, { keyboard = false, silent = false } = {}) {
  view.hover = hover;
  view.keyboard = keyboard;
  cancelAnimationFrame(view.waiting);
  view.waiting = requestAnimationFrame(() => view.drawOver());
  if (silent) return;
  broadcast(view, hover);
  if (!hover) return;
  clearTimeout(view.speaking);
  // A moving pointer would flood the live region; keys are read at once.
  view.speaking = setTimeout(() => (view.dom.live.textContent = view.spoken(hover)), keyboard ? 0 : 150);
}
