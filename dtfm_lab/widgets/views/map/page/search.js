// A field that flies to a city, a region or a device, and can add a device there or move the selected ones.
import { h } from "shared/dom.js";
import { mayBecome } from "./find.js";
/** @import { City, Found } from "../types.d.ts" */

/**
 * `find(text)` is {name, place, devices} or null; `act` is {fly(found), add(found), move(found), addable(), movable(), sought(found or null), leave()}.
 * @type {(cities: City[], find: (text: string) => Found | null, act: { fly: (found: Found) => void, add: (found: Found) => void, move: (found: Found) => void, addable: () => boolean, movable: () => boolean, sought: (found: Found | null) => void, leave: () => void }) => { element: HTMLElement, input: HTMLInputElement, update: () => void }}
 */
export function searchField(cities, find, act) {
  const id = `dtfm-cities-${Math.random().toString(36).slice(2)}`;
  const list = h(
    "datalist",
    { id },
    ...cities
      .map(({ name }) => name)
      .sort()
      .map((name) => h("option", { value: name })),
  );
  /** @type {HTMLInputElement} */
  const input = h("input", {
    type: "text",
    list: id,
    placeholder: "Find a city or device",
    "aria-label": "Find a city, region or device",
    title: "Press Enter to fly there (/)",
    autocomplete: "off",
    spellcheck: "false",
    oninput: update,
    onkeydown(event) {
      event.stopPropagation();
      if (event.key === "Enter") {
        const found = find(input.value);
        if (found) act.fly(found);
        update();
      }
      if (event.key === "Escape") {
        input.value = "";
        update();
        act.leave();
      }
    },
  });
  /** @type {(what: "add" | "move") => () => void} */
  const press = (what) => () => {
    const found = find(input.value);
    if (found) act[what](found);
    update();
  };
  const add = h("button", { type: "button", hidden: true, onclick: press("add"), title: "Add a device in this city" }, "Add here");
  const move = h("button", { type: "button", hidden: true, onclick: press("move"), title: "Move the selected devices to this city" }, "Move here");
  const none = h("span", { class: "dtfm-map-none", hidden: true, role: "status" }, "no such place");

  function update() {
    const found = find(input.value);
    const text = input.value.trim();
    none.hidden = !text || found !== null || mayBecome(text, cities);
    add.hidden = !found?.place || !act.addable();
    move.hidden = !found?.place || !act.movable();
    act.sought(found?.place ? found : null);
  }

  return { element: h("span", { class: "dtfm-map-find" }, input, list, h("span", { class: "dtfm-map-found" }, add, move, none)), input, update };
}
