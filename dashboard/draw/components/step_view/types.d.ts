import type { Theme, View } from "../lib/types";

export interface Picture extends View {
  svg: SVGElement;
  board: CanvasRenderingContext2D;
  pen: CanvasRenderingContext2D;
  theme: Theme;
  tables: Record<"signed" | "weight", Uint8Array>;
  data: any;
  phone: boolean;
  width: number;
  layout: {
    gutter: number; pitch: number; wide: number; dim: number; dims: number; number: number; bar: number; thumbs: number;
    column(at: number): number;
  };
  pick(message: object): void;
}
export interface Cell { text: string; level: number }
