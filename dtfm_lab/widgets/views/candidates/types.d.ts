import type { CandidatesView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

/** A schedule; its numbers are there once it was computed, `problem` where it could not be. */
export type Row = { name: string; iteration_s: number; bubble: number; memory: string; fits: boolean; problem?: string };
export type Traits = Shaped<CandidatesView, { rows: Row[] }>;
