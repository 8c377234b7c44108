// The story of one individual: its parents, what was crossed over or changed, and what that did to the cost.
import { seconds } from "shared/axis.js";
import { h } from "shared/dom.js";
import { paintPicture } from "./picture.js";

const SAME = 1e-6; // share of a cost below which it counts as unchanged

export function card(choose) {
  const pictures = h("div", { class: "dtfm-family" });
  const title = h("strong"), about = h("p", { class: "dtfm-about" }), words = h("p", { class: "dtfm-story" });
  const rest = h("p", { class: "dtfm-rest" });
  const root = h("section", { class: "dtfm-card", "aria-label": "One individual" },
    title, about, pictures, words, rest);
  let painted = [];

  function show(person, people, frame, cells) {
    const parents = person.parents.map((number) => people.get(number)).filter(Boolean);
    title.textContent = `Individual ${person.number}: ${person.operator}`;
    about.textContent = `${cells.places.length > 1 ? "column: a place; " : ""}cell: a device; colour: its stage`;
    const signs = parents.length > 1 ? [null, "×"] : [null];
    painted = [...parents.map((parent) => [picture(), parent]), [picture("dtfm-large"), person]];
    pictures.replaceChildren(...painted.flatMap(([canvas, one], at) => {
      const isChild = one === person;
      const figure = isChild
        ? h("figure", {}, canvas, h("figcaption", {}, h("b", {}, seconds(one.cost_s))))
        : h("button", { type: "button", class: "dtfm-parent", title: `Show individual ${one.number}`, onclick: () => choose(one.number) }, canvas, h("span", {}, `${seconds(one.cost_s)} · ${one.number}`));
      const sign = isChild ? (parents.length ? "→" : null) : signs[at];
      return sign ? [h("i", {}, sign), figure] : [figure];
    }));
    words.replaceChildren(...story(person, parents));
    rest.replaceChildren(...population(frame));
  }

  const paint = (cells, theme) => painted.forEach(([canvas, one]) => paintPicture(canvas, cells, one.stages, theme));
  return { root, show, paint };
}

const picture = (kind = "") => h("canvas", { class: `dtfm-picture ${kind}`, "aria-hidden": "true" });

function story(person, parents) {
  const made = `${person.words[0].toUpperCase()}${person.words.slice(1)}. `;
  if (!parents.length) return [`${made}It costs `, h("b", {}, seconds(person.cost_s)), "."];
  const best = Math.min(...parents.map((parent) => parent.cost_s));
  const change = best - person.cost_s;
  const than = parents.length > 1 ? "its better parent" : "its parent";
  if (Math.abs(change) < SAME * best) return [made, "It costs ", h("b", {}, seconds(person.cost_s)), `, as ${than}.`];
  return [made, "It costs ", h("b", {}, `${seconds(person.cost_s)}, ${seconds(Math.abs(change))} ${change > 0 ? "less" : "more"}`), ` than ${than}.`];
}

function population({ numbers, made_by: madeBy, diversity, exponent }) {
  const made = Object.entries(madeBy).flatMap(([name, count], at) => [at ? ", " : "", h("b", {}, String(count)), ` ${name}`]);
  const rule = exponent
    ? `A child takes its worse parent's place if no worse: by all members and pairs as yet, slow ones weighing more (power ${exponent.toFixed(exponent < 10 ? 1 : 0)}).`
    : "A child takes its worse parent's place if it costs no more.";
  return [`These ${numbers.length} came about by `, ...made, ". Two of them differ in ", h("b", {}, `${Math.round(diversity * 100)} %`), ` of their cells. ${rule}`];
}
