import type { WorthView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Row = { name: string; what: string; saves: string; share: string; length: number; devices: string[] };
export type Traits = Shaped<WorthView, { rows: Row[] }>;
