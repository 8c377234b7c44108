import type { MatrixView } from "shared/traits.d.ts";
import type { DocumentShapes, Filled, Shaped } from "shared/types.d.ts";

/** A region, and how many of its devices stand here. */
export type Block = [region: string, count: number];
export type Traits = Shaped<MatrixView, DocumentShapes & { blocks: Block[] }>;
export type Data = {
  names: string[];
  latency: Float32Array;
  bandwidth: Float32Array;
  origin: Uint8Array;
  edges: number[];
  filled: Filled[];
  regionAt: (index: number) => string;
};
/** [row, column, to row, to column]. */
export type Cells = number[];
export type Cell = [row: number, column: number];
export type Bitmap = { image: HTMLCanvasElement; low: number; high: number; share: (value: number) => number };
export type View = {
  look: (x: number, y: number, span: number) => void;
  reset: () => void;
  zoom: (factor: number, atX?: number, atY?: number) => void;
  pan: (dx: number, dy: number) => void;
  reach: (row: number, column: number) => void;
  readonly x: number;
  readonly y: number;
  readonly span: number;
  readonly whole: boolean;
};
export type Place = ReturnType<typeof import("./page/frame.js").placeOf>;
