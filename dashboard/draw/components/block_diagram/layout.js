// Where each block of a stack lies: from the input at the bottom to the output at the top, in px.

/** @import { Node, Placed, Stack, StackLayout } from "./types" */

export const ARC = 16;
const HEAD = 8;
const SIZES = [{ BOX: 30, SMALL: 24, GAP: 10, PAD: 10 }, { BOX: 27, SMALL: 22, GAP: 7, PAD: 7 }, { BOX: 24, SMALL: 20, GAP: 6, PAD: 6 }];

/** Closed layers of one kind that follow each other as one: "Decoder layers 1 to 5". @param {Node[]} nodes @param {string} open */
function merge(nodes, open) {
  const closed = (node) => node?.sublayers && node.path !== open && node.kind === undefined;
  /** @type {Node[]} */
  const merged = [];
  for (const node of nodes) {
    const last = merged.at(-1);
    if (!last || !closed(last) || !closed(node)) merged.push(node);
    else merged.push({ ...merged.pop(), last: node.path, title: `${last.title.replace(/ayers? (\d+).*/, "ayers $1")} to ${node.title.split(" ").at(-1)}` });
  }
  return merged;
}

/**
 * The blocks of one stack, bottom up from y = 0; `open` is the path of the layer that shows its sublayers,
 * `short` draws the others as one block, `tight`, 1 or 2, takes less room.
 * @param {Stack} stack @param {string} open @param {boolean} pre @returns {StackLayout}
 */
export function layoutOf(stack, open, pre, short = false, tight = 0) {
  const { BOX, SMALL, GAP, PAD } = SIZES[tight];
  /** @type {Placed[]} */
  const placed = [];
  const frames = [], arcs = [];
  let y = 0;
  const put = (path, title, type, height, inset = 0, kind = undefined, last = path) => {
    placed.push({ path, last, title, type, low: y, high: y + height, inset, kind });
    y += height + GAP;
  };
  for (const node of short ? merge(stack.nodes, open) : stack.nodes) {
    if (!node.sublayers) put(node.path, node.adds ? `+ ${node.title}` : node.title, node.adds ? "adds" : "box", node.adds ? SMALL : BOX);
    else if (node.path !== open) put(node.path, node.title, "layer", BOX, 0, node.kind, node.last);
    else {
      const low = y;
      y += PAD;
      for (const part of node.sublayers) {
        const from = y - GAP / 2;
        if (pre && part.around) put(part.around, "Norm", "norm", SMALL, 1);
        put(part.path, part.title, part.type, BOX, 1);
        if (part.around) {
          const path = pre ? `${part.around}+` : part.around;
          put(path, pre ? "Add" : "Add and norm", "add", SMALL, 1);
          arcs.push({ path, low: from, high: y - GAP - SMALL / 2 });
        }
      }
      y += PAD + HEAD - GAP;
      frames.push({ path: node.path, title: node.title, low, high: y, kind: node.kind });
      y += GAP;
    }
  }
  return { placed, frames, arcs, height: y - GAP };
}

/** The blocks in the order of computing, those of the open layers one by one. @param {StackLayout[]} layouts */
export const orderOf = (layouts) => layouts.flatMap(({ placed }) => placed.map(({ path }) => path));
