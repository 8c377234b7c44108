import type { Inspector } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Stage = { stage: number; layers: string; name: string };
/** What edits the selection: a choice where there are `options`, else a number. */
export type Field = { key: string; label: string; value: string; placeholder?: string; options?: string[] };
/** What is said of what is selected, see `shell.inspection`: which are there depends on `kind`. */
export type Facts = {
  kind: "pipeline" | "link" | "device" | "stage" | "empty";
  title: string;
  hint: string;
  stage: number;
  n_stages: number;
  stages: Stage[];
  hops: { seconds: number; text: string }[];
  total: [value: string, words: string][];
  rows: [name: string, text: string, stage: number][];
  ends: string[];
  gbps: number;
  ms: number;
  can_explain?: boolean;
  fields?: Field[];
};
export type Traits = Shaped<Inspector, { facts: Facts }>;
