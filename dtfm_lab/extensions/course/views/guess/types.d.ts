import type { GuessView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Mark = { kind: "guess" | "answer"; value: number; text: string };
export type Traits = Shaped<GuessView, { marks: Mark[] }>;
