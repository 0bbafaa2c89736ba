import type { Box, Cell, MapView, Pointed, Values } from "../lib/types";
export type { Cell, Span } from "../lib/types";

export interface LinesBox {
  x: number; y: number; h: number; from: number; to: number; rows: number; cols: number;
  rowPitch: number; keyPitch: number; names: number; weights: number; rowStep: number; keyStep: number;
}
export interface Boxes {
  map: Box | null; lines: LinesBox | null; picture: PictureBox | null;
  width: number; height: number; small?: boolean; left?: number; right?: number;
}
export interface PictureBox { x: number; y: number; w: number; h: number }
export interface GridBox {
  gutter: number; top: number; size: number; pitch: number; rowPitch: number; heads: number;
  narrow: boolean; right: number; width: number; height: number;
}
export interface Head { row?: number; layer: number; head: number }

export interface AttentionView extends Pointed, MapView {
  layout: "one" | "grid" | "frames";
  show: "both" | "matrix" | "lines";
  rowSlider: string | null; // the key of a native slider over the queries
  showChoice: { key: string; values: AttentionView["show"][] } | null;
  pinLists: [string, string] | null; // the keys of native lists of the queries and keys
  states?: string[]; // layers without softmax, in the grid
  scale: "unit" | "largest" | "p99.5";
  width: number;
  turn: number;
  layer: number;
  head: number;
  heads: number;
  pins: [number, number][];
  ahead: [number, number] | null; // the pin of two lists that is drawn before the server has answered
  several: boolean;
  box: any; // Boxes, or a GridBox in the layout "grid"
  one?: { rows: number; cols: number; heads: number[]; values: Float32Array; masks: Uint8Array[] | null };
  frames?: { rows: number; cols: number; steps: number[]; values: Float32Array };
  frameIndex: number;
  grid?: { layer: number; rows: number; cols: number; heads: Uint8Array[] }[];
  patches?: {
    wide: number; high: number; rows: number; cols: number; first: number; queries: boolean; bytes: string;
  } | null;
  hoverHead?: Head | null;
  point?: { x: number; y: number } | null;
  current: Values;
  hover: Cell | null;
  window: MapView["window"];
  queries: string[];
  keys: string[];
  theme: MapView["theme"];
}
