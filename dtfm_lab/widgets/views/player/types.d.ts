import type { PlayerView } from "shared/traits.d.ts";
import type { Kind, Shaped } from "shared/types.d.ts";

/** What is said from a share of the iteration on; `kinds` are whose colours it explains. */
export type Caption = { from: number; text: string; kinds: Kind[] };
export type Traits = Shaped<PlayerView, { captions: Caption[] }>;
