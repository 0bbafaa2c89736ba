// What a board holds: the cell that is read, the rows and columns in sight.

export const pickedCell = (board) =>
  board.hover ?? (board.pin ? { i: board.pin[0], j: board.pin[1] } :
    board.query != null ? { i: board.query, j: board.column ?? -1 } : null);

export const whole = (board) => ({ r0: 0, r1: board.queries.length, c0: 0, c1: board.keys.length });

export function isZoomed(board) {
  const w = board.window, all = whole(board);
  return Boolean(w) && (w.r0 > 0 || w.c0 > 0 || w.r1 < all.r1 || w.c1 < all.c1);
}
