// Panes under their tabs, and what a tab shows when it is chosen.
/** @import { Pane, Tab } from "../types.d.ts" */

/**
 * The tabs in the order in which their first panes come.
 * @type {(panes: Pane[]) => Tab[]}
 */
export function grouped(panes) {
  /** @type {Map<string, Tab>} */
  const tabs = new Map();
  for (const pane of panes) {
    const title = pane.tab || pane.title;
    const tab = tabs.get(title) ?? { name: pane.name, title, pages: [] };
    tab.pages.push(pane);
    tabs.set(title, tab);
  }
  return [...tabs.values()];
}

/**
 * The page that a tab shows: the one that is shown already, else the one shown last, else its first.
 * @type {(tab: Tab, shown: string, last: Map<string, string>) => string}
 */
export function pageOf(tab, shown, last) {
  const names = tab.pages.map(({ name }) => name);
  return [shown, last.get(tab.title) ?? "", names[0]].find((name) => names.includes(name)) ?? names[0];
}

/**
 * The state of a tab: busy if one of its pages is, else that of the page that it shows.
 * @type {(tab: Tab, page: string) => string}
 */
export function kindOf(tab, page) {
  if (tab.pages.some(({ kind }) => kind === "busy")) return "busy";
  return tab.pages.find(({ name }) => name === page)?.kind ?? "";
}
