// Tabs with pages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { grouped, kindOf, pageOf } from "../../../dtfm_lab/widgets/views/tabs/page/grouped.js";

const PANES = [
  { name: "schedule", title: "Timeline", tab: "Plan", kind: "done" },
  { name: "groups", title: "Groups", tab: "Plan", kind: "busy" },
  { name: "plan", title: "Search", tab: "Search" },
  { name: "mine", title: "Mine" },
];

test("panes stand under their tabs, and one without a tab has its own", () => {
  const tabs = grouped(PANES);
  assert.deepEqual(
    tabs.map(({ title, pages }) => [title, ...pages.map(({ name }) => name)]),
    [
      ["Plan", "schedule", "groups"],
      ["Search", "plan"],
      ["Mine", "mine"],
    ],
  );
});

test("a tab shows the page that is shown, else the one shown last that is still there, else its first", () => {
  const [plan] = grouped(PANES);
  assert.equal(pageOf(plan, "groups", new Map()), "groups");
  assert.equal(pageOf(plan, "mine", new Map([["Plan", "groups"]])), "groups");
  assert.equal(pageOf(plan, "mine", new Map([["Plan", "gone"]])), "schedule");
});

test("a tab is busy with any of its pages", () => {
  const [plan, search] = grouped(PANES);
  assert.equal(kindOf(plan, "schedule"), "busy");
  assert.equal(kindOf(search, "plan"), "");
});
