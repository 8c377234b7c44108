import type { TabsView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Tab = { name: string; title: string; kind?: string; words?: string };
export type Traits = Shaped<TabsView, { tabs: Tab[] }>;
