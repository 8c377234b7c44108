import type { ConvergenceView } from "shared/traits.d.ts";
import type { Curve } from "./page/curve.js";

export type Traits = ConvergenceView;
export type Column = "evaluations" | "seconds" | "best" | "bound" | "median";
export type Columns = Record<Column, number[]>;
export type Row = Record<Column, number>;
export type Curves = Map<string, Curve>;
export type Across = "evaluations" | "seconds";
export type Words = (value: number) => string;
export type Axis = { against: Across; logarithmic: boolean; label: string; noun: string; unit: "s" | "$"; words: Words };
