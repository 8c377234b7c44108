import type { SlidersView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Slider = { key: string; label: string; rest: string; texts: string[]; neutral: number; note: string; why_not: string };
export type Traits = Shaped<SlidersView, { sliders: Slider[]; values: Record<string, number> }>;
export type Row = { box: HTMLElement; name: HTMLElement; output: HTMLElement; input: HTMLInputElement; note: HTMLElement };
