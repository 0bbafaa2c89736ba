// What the components pass around.

/** What Streamlit passes to a component's default export. */
export interface Component {
  data: any;
  parentElement: HTMLElement | ShadowRoot;
  setStateValue(name: string, value: unknown): void;
  setTriggerValue(name: string, value: unknown): void;
}

/** The life of a component: built once, updated at each rerun, drawn at a new width, stopped at its end. */
export interface Parts<V extends View> {
  start(view: V): void;
  update(view: V, data: any): void;
  draw?(view: V): void;
  stop?(view: V): void;
}

export interface View {
  root: HTMLElement;
  theme: Theme;
  width?: number;
  ended: AbortController;
  setStateValue: Component["setStateValue"];
  setTriggerValue: Component["setTriggerValue"];
  [other: string]: any;
}

export type Rgb = number[];
export type Palette = Record<"light" | "dark", {
  weights: string[]; signed: string[]; categories: string[]; pick: string; text: string; bar: string;
}>;

export interface Theme {
  dark: boolean;
  ground: string;
  text: string;
  ink: string; // dark text on a light cell, in both themes
  secondary: string;
  hairline: string;
  hatchGround: string;
  hatchLine: string;
  pick: string;
  pickRgb: Rgb;
  primaryRgb: Rgb;
  bar: string;
  zero: string;
  line: Rgb;
  categories: string[];
  stops: string[];
  signed: string[];
  table: Uint8Array;
  font: string;
}

export interface Cell { i: number; j: number }
export interface Point { x: number; y: number }
/** The rows [r0, r1) and columns [c0, c1) in sight. */
export interface Span { r0: number; r1: number; c0: number; c1: number }
/** Numbers of a map, row after row; a mask has 1 where a query may attend. */
export interface Values { rows: number; cols: number; values: Float32Array; mask: Uint8Array | null }
/** The first own token of each cell of a pooled map, and the end of the last. */
export interface Edges { rows: number[]; cols: number[]; pooled?: boolean }
export type Axis = "rows" | "cols";

/** What map.js draws. */
export interface MapView {
  current: Values;
  range: [number, number];
  window: Span;
  pool: "mean" | "max";
  queries: string[];
  keys: string[];
  theme: Theme;
  ratio: number;
  width?: number;
  threshold?: number;
  numbers?: boolean; // written into large cells
  signed?: boolean;
  bySize?: boolean; // weights that may be negative are ordered by size
  state?: string; // what a layer without softmax is
  edges?: Edges | null;
  absent?: string | null;
  name?: string;
}

/** Where a map lies: its cells from (x, y), cw × ch each; a step of 0 names every token. */
export interface Box {
  x: number; y: number; w: number; h: number;
  cw: number; ch: number; rows: number; cols: number;
  gutter: number; top: number; flat: boolean; gap: number;
  rowStep: number; colStep: number; every?: number; nameSize?: number;
}

/** A view with a crosshair, a drag and keys. */
export interface Pointed extends View {
  dom: Record<string, any>;
  queries: string[];
  keys: string[];
  tokens: string;
  window: Span;
  hover: Cell | null;
  keyboard?: boolean;
  drag?: Drag | null;
  press?: Point | null;
  pinching?: boolean;
  drawOver(): void;
  spoken(cell: Cell): string;
}
export interface Drag { x0: number; y0: number; x1: number; y1: number }

export interface Legend { noun: HTMLElement; ramp: HTMLElement; low: HTMLElement; middle: HTMLElement; high: HTMLElement; root: HTMLElement }
