import type { TabsView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Pane = { name: string; title: string; tab?: string; kind?: string; words?: string };
/** Panes under one tab; `name` is the tab's own. */
export type Tab = { name: string; title: string; pages: Pane[] };
export type Traits = Shaped<TabsView, { tabs: Pane[] }>;
