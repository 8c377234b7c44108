import type { FrontierView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Plan = { seconds: number; dollars: number; by_token: number; words: string; pays: boolean };
export type Traits = Shaped<FrontierView, { points: Plan[]; bounds: [dollars: number, seconds: number][] }>;
