// What the side lists: the matching behind a hop, or the devices of a group.
import { h } from "../shared/dom.js";
import { seconds } from "../shared/axis.js";

export function showHint(side, isMatrix) {
  const [hop, group] = isMatrix ? ["outlined cell", "cell on the diagonal"] : ["thick line", "circle"];
  side.replaceChildren(
    h("h4", {}, "Nothing selected"),
    h("p", {}, `Click a ${hop} to see which devices exchange activations over that hop, or a ${group} to list its devices.`),
  );
}

export function showGroup(side, { groups, openStage }) {
  const { stage, devices, cost_s } = groups[openStage];
  side.replaceChildren(
    h("h4", {}, `Stage ${stage} · ${devices.length} device${devices.length === 1 ? "" : "s"}`),
    h("p", {}, `Synchronising its gradients takes ${seconds(cost_s)}.`),
    h("ul", {}, ...devices.map((name) => h("li", {}, name))),
  );
}

/** Two columns of devices; the pair the hop waits for in vermillion. */
export function showEdge(side, { groups, matchings, weights, edge }) {
  const pairs = matchings[edge] ?? [];
  const slowest = Math.max(...pairs.map(([, , time]) => time));
  const [from, to] = [groups[edge].stage, groups[edge + 1].stage];
  const cells = pairs.flatMap(([source, target, time]) => {
    const mark = time === slowest ? " bottleneck" : "";
    return [
      h("div", { class: `device${mark}`, title: source }, source),
      h("div", { class: `line${mark}` }, h("span", {}, seconds(time))),
      h("div", { class: `device${mark}`, title: target }, target),
    ];
  });
  const weight = weights[edge]?.[edge + 1];
  side.replaceChildren(
    h("h4", {}, `Stage ${from} to stage ${to}${weight === undefined ? "" : ` · ${seconds(weight)}`}`),
    h("p", {}, pairs.length ? "The hop waits for its slowest pair, in vermillion." : "No matching is known for this hop."),
    h("div", { class: "dtfm-matching" },
      ...(pairs.length ? [h("div", { class: "head" }, `stage ${from}`), h("div"), h("div", { class: "head" }, `stage ${to}`)] : []),
      ...cells),
  );
}
