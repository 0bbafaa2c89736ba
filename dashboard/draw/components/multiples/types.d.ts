import type { Box, Legend, MapView, Pointed, Theme } from "../lib/types";
export type { Cell, Span } from "../lib/types";

export interface Tile extends MapView {
  reads?: string; // how a row is read, "" where it takes from no column
  name: string;
  note: string;
  marker: number;
  operands?: [Tile, Tile]; // of a difference
  box: Box;
  named: boolean; // whether the rows are, left of the map
  canvas: { width: number; height: number };
  dom: Record<string, any>;
}

export interface Frames {
  control: string; // the key of the widget
  options: string[] | null; // those of a list; null for a slider
  at: number; // the index that is drawn
  names: [string, string][][]; // name and note of each tile, by the control's values
  values: Float32Array[]; // of each tile, all maps one after the other
}

export interface Board extends Pointed {
  tiles: Tile[];
  visible: Tile[]; // the tiles and their difference, or that alone
  alone: boolean;
  cell: number; // px, at most
  dimmed?: number[]; // keys whose columns are drawn faintly
  signedTheme: Theme;
  pin: [number, number] | null;
  query: number | null;
  column: number | null;
  noun: string;
  ratio: number;
  measure: CanvasRenderingContext2D;
  turn: number;
  over?: Tile | null; // under the pointer
  open?: number; // the map that a phone shows
  first?: number | null; // the one that the page's sentence names
  marks: string[];
  differenceLegend: Legend;
  frames: Frames | null;
  ahead: number | null; // the index that is drawn before the server has answered
}
