import type { Door } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Card = { name: string; title: string; words: string; picture: string; picture_dark: string };
export type Network = { name: string; devices: number; words: string; picture: string };
export type Traits = Shaped<Door, { cards: Card[]; networks: Network[] }>;
