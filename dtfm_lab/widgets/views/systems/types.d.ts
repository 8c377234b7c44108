import type { SystemsView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Cause = { name: string; color: string; word?: string };
export type Row = {
  name: string;
  title: string;
  seconds: number;
  times: number;
  parts: [cause: string, seconds: number][];
  length: number;
  cut: boolean;
  shape: string;
  mathematics: string;
  reason: string;
  ours: boolean;
  taken: boolean;
  beside?: string;
  told?: string;
};
export type Traits = Shaped<SystemsView, { rows: Row[]; causes: Cause[]; not_modelled: Record<string, string> }>;
