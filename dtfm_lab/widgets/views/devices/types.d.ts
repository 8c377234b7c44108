import type { DevicesView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Device = { name: string; stage: number; stages: string; pipeline: number; region: string };
export type Action = { do: string; name: string; says: string; done: string };
export type State = { condition?: string; said?: string; busy?: number | null; may?: string[] };
export type Traits = Shaped<DevicesView, { devices: Device[]; actions: Action[]; states: Record<string, State> }>;
/** What the menu shows. */
export type Menu = { devices: (Device & { condition: string })[]; device: Device; state: State; actions: (Action & { possible: boolean })[]; hint: string };
