export interface Sublayer { path: string; title: string; type: string; around: string }
export interface Node { path: string; title: string; adds?: boolean; sublayers?: Sublayer[]; kind?: number; last?: string }
export interface Stack { name: string; nodes: Node[] }

/** A block of a stack, or layers from `path` to `last`: its edges from the stack's bottom, how deep it is inset, its kind of attention. */
export interface Placed { path: string; last: string; title: string; type: string; low: number; high: number; inset: number; kind?: number }
export interface StackLayout {
  placed: Placed[];
  frames: { path: string; title: string; low: number; high: number; kind?: number }[];
  arcs: { path: string; low: number; high: number }[];
  height: number;
}

export interface Maps { heads: number; rows: number; cols: number; bytes: string }

/** Shares with their texts; what each was before and how it changed; the shares by temperature. */
export interface Bars {
  heading: string;
  names: string[];
  shares: [number, string][];
  changes: [string, string][];
  temperatures: [number, [number, string][]][];
  picked: boolean;
}

export interface BlockData {
  title: string;
  about: string;
  numbers: [string, string][];
  tokens: string[];
  bars: Bars[];
  cell: [number, number, number] | null;
  label: string;
  table: Bars[];
  vectors?: { rows: number; cols: number; largest: number; whole: number[]; bytes: string };
  maps?: Maps;
}
