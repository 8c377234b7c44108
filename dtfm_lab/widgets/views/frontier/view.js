// Seconds against dollars: the plans of a frontier as points on a step line, and the lower bound.
import { cleanUps, focusedIn, frame, h, onResize, onTraits, svg } from "shared/dom.js";
import { dollars, figures, seconds } from "shared/axis.js";
import { roving } from "shared/roving.js";
import { view } from "shared/view.js";
import { scale } from "./page/scale.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

const [LEFT, RIGHT, TOP, BOTTOM] = [62, 18, 14, 40];

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const title = h("strong");
  const box = h("div", { class: "dtfm-frontier-box" });
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const told = h("div", { class: "dtfm-frontier-told" });
  const key = h("span", { class: "dtfm-frontier-key dtfm-line" }, "no plan is faster");
  const root = frame("dtfm-frontier", "Seconds against dollars");
  root.removeAttribute("tabindex"); // its points take the focus
  root.append(h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), key), box, told, caption);
  el.append(root);
  const rove = roving(
    box,
    () => [...box.querySelectorAll("[role=button]")],
    () => 1,
  );

  function show() {
    const points = model.get("points"),
      bounds = model.get("bounds"),
      chosen = model.get("chosen");
    const height = model.get("height");
    root.classList.toggle("dtfm-filling", !height);
    box.style.height = height ? `${height}px` : "";
    const wide = box.clientWidth || 600,
      high = box.clientHeight || 250;
    const focused = focusedIn(box)?.dataset.point ?? null;
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    box.replaceChildren();
    key.hidden = bounds.length < 2; // there is no line
    if (!points.length) return void box.append(h("div", { class: "dtfm-empty" }, "No frontier yet"));
    const x = scale(
      points.map((one) => one.dollars),
      LEFT,
      wide - RIGHT,
    );
    const y = scale([...points.map((one) => one.seconds), ...bounds.map(([, bound]) => bound)], high - BOTTOM, TOP);
    const picture = svg("svg", { width: wide, height: high, role: "group", "aria-label": `${points.length} plans` });
    for (const value of x.marks(wide / 90))
      picture.append(
        svg("line", { class: "dtfm-tick", x1: x.at(value), x2: x.at(value), y1: high - BOTTOM, y2: high - BOTTOM + 4 }),
        text(x.at(value), high - BOTTOM + 17, `$${figures(value)}`, "middle"),
      );
    for (const value of y.marks(6))
      picture.append(
        svg("line", { class: "dtfm-grid", x1: LEFT, x2: wide - RIGHT, y1: y.at(value), y2: y.at(value) }),
        text(LEFT - 7, y.at(value) + 4, figures(value), "end"),
      );
    picture.append(text((LEFT + wide - RIGHT) / 2, high - 4, "dollars an hour of all devices that serve", "middle"));
    const up = text(-(TOP + high - BOTTOM) / 2, 12, "seconds an iteration", "middle");
    up.setAttribute("transform", "rotate(-90)");
    picture.append(up);
    if (bounds.length > 1)
      picture.append(svg("polyline", { class: "dtfm-bound", points: bounds.map(([spent, bound]) => `${x.at(spent)},${y.at(bound)}`).join(" ") }));
    const steps = [...points]
      .reverse()
      .flatMap((one, at, all) => [...(at ? [`${x.at(one.dollars)},${y.at(all[at - 1].seconds)}`] : []), `${x.at(one.dollars)},${y.at(one.seconds)}`]);
    picture.append(svg("polyline", { class: "dtfm-steps", points: steps.join(" ") }));
    points.forEach((one, at) => {
      const words = `${seconds(one.seconds)} at ${dollars(one.dollars)} per hour, ${dollars(one.by_token)} per billion ${model.get("counted")}: ${one.words}`;
      const choose = () => model.send({ kind: "choose", point: at });
      const tell = () => {
        told.textContent = words;
      };
      const mark = svg(
        "circle",
        {
          class: `dtfm-point${one.pays ? "" : " dtfm-hollow"}${at === chosen ? " dtfm-chosen" : ""}`,
          cx: x.at(one.dollars),
          cy: y.at(one.seconds),
          r: at === chosen ? 7 : 5,
          role: "button",
          tabindex: "-1",
          "data-point": at,
          "aria-pressed": String(at === chosen),
          "aria-label": `Use the plan of ${words}`,
          onclick: choose,
          onfocus: tell,
          onpointerenter: tell,
          onkeydown: (event) => {
            if (["Enter", " "].includes(event.key)) {
              event.preventDefault();
              choose();
            }
          },
        },
        svg("title", {}, words),
      );
      picture.append(mark);
    });
    box.append(picture);
    rove();
    root.dataset.points = String(points.length);
    if (focused !== null) box.querySelector(`[data-point="${focused}"]`)?.focus({ preventScroll: true });
  }

  onTraits(model, ["points", "bounds", "counted", "chosen", "title", "caption", "height"], show, cleanUp);
  onResize(box, show, cleanUp);
  show();
  return cleanUp.run;
}

/** @type {(x: number, y: number, words: string, anchor: string) => SVGTextElement} */
const text = (x, y, words, anchor) => svg("text", { x, y, "text-anchor": anchor }, words);

export default view(render);
