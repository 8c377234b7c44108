import type { CardView } from "shared/traits.d.ts";

export type Traits = CardView;
