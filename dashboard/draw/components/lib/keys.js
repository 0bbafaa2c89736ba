// The keyboard on a map.

/** @import { Box, Cell, Pointed } from "./types" */
import { setHover } from "./crosshair.js";
import { clamp } from "./layout.js";

export const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** What a screen reader says of a stop of the Tab key that answers keys: what it is, its sentences, its keys.
 * @param {Element} node @param {string} kind @param {string[]} sentences empty ones are left out @param {string} keys */
export function nameStop(node, kind, sentences, keys) {
  const name = sentences.filter(Boolean).map((one) => one.replace(/(\S)\.$/, "$1")).join(". ");
  const values = { role: "application", "aria-roledescription": kind, "aria-label": name, "aria-description": keys };
  for (const [key, value] of Object.entries(values)) if (node.getAttribute(key) !== value) node.setAttribute(key, value);
}

/** Call `act` unless a modifier is held; a key that it answers with true goes no further. @param {KeyboardEvent} event */
export function handleKey(event, act) {
  if (event.ctrlKey || event.metaKey || event.altKey || !act(event)) return;
  event.preventDefault();
  event.stopPropagation();
}

/** Call the action that a key names; false when there is none. @param {KeyboardEvent} event */
export function callAction(event, actions) {
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!Object.hasOwn(actions, name)) return false;
  actions[name]();
  return true;
}

/** Move the crosshair, or call a key's action. @param {Pointed} view @param {KeyboardEvent} event @param {Cell | null} from @param {Box | null} box */
export function mapKey(view, event, from, box, actions) {
  const { r0, r1, c0, c1 } = view.window;
  const inside = (i, j) => ({ i: clamp(i, r0, r1 - 1), j: clamp(j, c0, c1 - 1) });
  const move = (i, j) => setHover(view, inside(i, j), { keyboard: true });
  const { i, j } = inside(from?.i ?? r0, from?.j ?? c0);
  if (!(event.key in ARROWS)) return callAction(event, { Home: () => move(i, c0), End: () => move(i, c1 - 1), ...actions });
  const [down, right] = ARROWS[event.key];
  const [rows, cols] = event.shiftKey ? [box?.rowStep || 5, box?.colStep || 5] : [1, 1];
  move(i + down * rows, j + right * cols);
  return true;
}
