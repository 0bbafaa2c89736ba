// Where each block of a stack lies: from the input at the bottom to the output at the top, in px.

/** @import { Placed, Stack, StackLayout } from "./types" */

export const ARC = 16;
const BOX = 32, SMALL = 24, GAP = 12, PAD = 12, HEAD = 8;

/**
 * The blocks of one stack, bottom up from y = 0; `open` is the path of the layer that shows its sublayers.
 * @param {Stack} stack @param {string} open @param {boolean} pre @returns {StackLayout}
 */
export function layoutOf(stack, open, pre) {
  /** @type {Placed[]} */
  const placed = [];
  const frames = [], arcs = [];
  let y = 0;
  const put = (path, title, type, height, inset = 0, kind = undefined) => {
    placed.push({ path, title, type, low: y, high: y + height, inset, kind });
    y += height + GAP;
  };
  for (const node of stack.nodes) {
    if (!node.sublayers) put(node.path, node.adds ? `+ ${node.title}` : node.title, node.adds ? "adds" : "box", node.adds ? SMALL : BOX);
    else if (node.path !== open) put(node.path, node.title, "layer", BOX, 0, node.kind);
    else {
      const low = y;
      y += PAD;
      for (const part of node.sublayers) {
        const from = y - GAP / 2;
        if (pre && part.around) put(part.around, "Norm", "norm", SMALL, 1);
        put(part.path, part.title, part.type, BOX, 1);
        if (part.around) {
          put(pre ? `${part.around}+` : part.around, pre ? "Add" : "Add and norm", "add", SMALL, 1);
          arcs.push({ low: from, high: y - GAP - SMALL / 2 });
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
