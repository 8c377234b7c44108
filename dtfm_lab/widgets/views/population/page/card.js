// The story of one individual: its parents, what was crossed over or changed, and what that did to the cost.
import { h } from "shared/dom.js";
import { paintPicture } from "./picture.js";
/** @import { Child, Theme } from "shared/types.d.ts" */
/** @import { Cells, CostOf, Frame, People, Person, Words } from "../types.d.ts" */

const SAME = 1e-6; // share of a cost below which it counts as unchanged

/** @type {(choose: (number: number) => void) => { root: HTMLElement, show: (person: Person, people: People, frame: Frame, cells: Cells, costOf: CostOf, amount: Words) => void, paint: (cells: Cells, theme: Theme) => void }} */
export function card(choose) {
  const pictures = h("div", { class: "dtfm-family" });
  const title = h("strong"),
    about = h("p", { class: "dtfm-about" }),
    words = h("p", { class: "dtfm-story" });
  const rest = h("p", { class: "dtfm-rest" });
  const root = h("section", { class: "dtfm-card", tabindex: "0", "aria-label": "One individual" }, title, about, pictures, words, rest);
  /** @type {[HTMLCanvasElement, Person][]} */
  let painted = [];

  /** @type {(person: Person, people: People, frame: Frame, cells: Cells, costOf: CostOf, amount: Words) => void} */
  function show(person, people, frame, cells, costOf, amount) {
    const parents = person.parents.flatMap((number) => people.get(number) ?? []);
    title.textContent = frame.has_generations ? `Individual ${person.number}: ${person.operator}` : `Plan by ${person.operator}`;
    root.setAttribute("aria-label", frame.has_generations ? "One individual" : "One plan");
    about.textContent = `${cells.places.length > 1 ? "column: a place; " : ""}cell: a device; colour: its stage`;
    const signs = parents.length > 1 ? [null, "×"] : [null];
    painted = [...parents.map((parent) => pictured(parent)), pictured(person, "dtfm-large")];
    pictures.replaceChildren(
      ...painted.flatMap(([canvas, one], at) => {
        const isChild = one === person;
        const figure = isChild
          ? h("figure", {}, canvas, h("figcaption", {}, h("b", {}, costOf(one))))
          : h(
              "button",
              { type: "button", class: "dtfm-parent", title: `Show placement ${one.number}`, onclick: () => choose(one.number) },
              canvas,
              h("span", {}, `${costOf(one)} · ${one.number}`),
            );
        const sign = isChild ? (parents.length ? "→" : null) : signs[at];
        return sign ? [h("i", {}, sign), figure] : [figure];
      }),
    );
    words.replaceChildren(...story(person, parents, costOf, amount));
    rest.replaceChildren(...population(frame));
  }

  /** @type {(cells: Cells, theme: Theme) => void} */
  const paint = (cells, theme) => painted.forEach(([canvas, one]) => paintPicture(canvas, cells, one, theme));
  return { root, show, paint };
}

/** @type {(person: Person, kind?: string) => [HTMLCanvasElement, Person]} */
const pictured = (person, kind) => [picture(kind), person];

/** @type {(kind?: string) => HTMLCanvasElement} */
const picture = (kind = "") => h("canvas", { class: `dtfm-picture ${kind}`, "aria-hidden": "true" });

/** @type {(person: Person, parents: Person[], costOf: CostOf, amount: Words) => (Node | string)[]} */
function story(person, parents, costOf, amount) {
  const made = `${person.words[0].toUpperCase()}${person.words.slice(1)}. `;
  if (!parents.length) return [`${made}It costs `, h("b", {}, costOf(person)), "."];
  const best = Math.min(...parents.map((parent) => parent.cost_s));
  const change = best - person.cost_s;
  const than = parents.length > 1 ? "its better parent" : "its parent";
  if (Math.abs(change) < SAME * best) return [made, "It costs ", h("b", {}, costOf(person)), `, as ${than}.`];
  return [made, "It costs ", h("b", {}, `${costOf(person)}, ${amount(Math.abs(change))} ${change > 0 ? "less" : "more"}`), ` than ${than}.`];
}

/** @type {(frame: Frame) => (Node | string)[]} */
function population({ numbers, made_by: madeBy, diversity, rule }) {
  const made = Object.entries(madeBy).flatMap(([name, count], at) => [at ? ", " : "", h("b", {}, String(count)), ` ${name}`]);
  const came = made.length ? [`These ${numbers.length} placements: `, ...made, ". "] : [];
  const differ = diversity === null ? [] : ["On average, two of them differ in ", h("b", {}, `${Math.round(diversity * 100)} %`), " of their cells. "];
  return [...came, ...differ, rule];
}
