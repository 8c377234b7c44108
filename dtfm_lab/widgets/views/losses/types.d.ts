import type { LossView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Mark = { at: number; text: string };
export type Traits = Shaped<LossView, { marks: Mark[] }>;
export type HeldOut = [done: number, loss: number];
export type Shown = {
  training: number[];
  heldOut: HeldOut[];
  slim: boolean;
  unit: string;
  first: number;
  total: number;
  reference: number | null;
  marks: Mark[];
};
