import type { HoursView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Stay = [device: number, begin_s: number, end_s: number];
/** One end of a stay, at which its device comes or leaves. */
export type End = { index: number; device: number; leaves: boolean; t_s: number };
export type Traits = Shaped<HoursView, { stays: Stay[] }>;
