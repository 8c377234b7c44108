import type { PopulationView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

/** Where each device is in a picture. */
export type Cells = { at: [column: number, row: number][]; columns: number; rows: number; places: string[] };
export type Traits = Shaped<PopulationView, { cells: Cells }>;
export type Person = {
  number: number;
  parents: number[];
  operator: string;
  words: string;
  cost_s: number;
  is_estimate: boolean;
  shape: number[];
  stages: Int16Array;
};
export type People = Map<number, Person>;
/** A generation. */
export type Frame = {
  generation: number;
  evaluations: number;
  best: number;
  best_s: number;
  median_s: number;
  numbers: number[];
  made_by: Record<string, number>;
  diversity: number | null;
  rule: string;
  has_generations: boolean;
};
export type Words = (value: number) => string;
export type CostOf = (person: Person) => string;
export type Tile = { canvas: HTMLCanvasElement; cost: HTMLElement; button: HTMLButtonElement; number: number };
