// A search to be watched: twenty tiny pictures, one individual's story, and a curve that can be scrubbed.
import { dollars, seconds } from "shared/axis.js";
import { sharpCanvas } from "shared/canvas.js";
import { cleanUps, frame, h, oncePerFrame, onResize, onTraits, setTraits, typed } from "shared/dom.js";
import { roving } from "shared/roving.js";
import { onTheme, readTheme } from "shared/theme.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
import { card as makeCard } from "./page/card.js";
import { paintCurve } from "./page/curve.js";
import { paintPicture } from "./page/picture.js";
/** @import { Message, Paint, Render } from "shared/types.d.ts" */
/** @import { CostOf, Frame, People, Person, Tile, Traits, Words } from "./types.d.ts" */

const NOBODY = -1;
const COLUMNS = 5;

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  /** @type {Frame[]} */
  const frames = [],
    /** @type {People} */ people = new Map();
  /** @type {Tile[]} */
  let tiles = [],
    /** @type {((px: number) => number) | null} */ generationAt = null,
    begun = false;

  const play = h("button", {
    type: "button",
    class: "dtfm-play",
    onclick: () => (isAtEnd() && !model.get("playing") ? set({ frame: 0, playing: true }) : set({ playing: !model.get("playing") })),
  });
  /** @type {HTMLInputElement} */
  const slider = h("input", {
    type: "range",
    min: "0",
    max: "0",
    value: "0",
    "aria-label": "Generation",
    oninput: () => set({ frame: Number(slider.value), playing: false }),
  });
  const counted = h("span", { class: "dtfm-counted" });
  const grid = h("div", { class: "dtfm-tiles", role: "group", "aria-label": "The population, the cheapest first" });
  const card = makeCard((number) => set({ chosen: number, playing: false }));
  const take = h(
    "button",
    {
      type: "button",
      class: "dtfm-take",
      title: "Use this placement as the lab's plan",
      onclick: () => shown() && model.send({ kind: "take", number: shown().number }),
    },
    "Use this plan",
  );
  const box = h("div", { class: "dtfm-population-curve" });
  const empty = h("div", { class: "dtfm-empty" });
  const root = frame("dtfm-population", model.get("title"));
  root.removeAttribute("tabindex"); // its controls take the focus
  root.append(h("div", { class: "dtfm-player-row" }, play, slider, counted, take), h("div", { class: "dtfm-generation" }, grid, card.root), box, empty);
  el.append(root);
  const rove = roving(
    grid,
    () => tiles.map(({ button }) => button),
    () => COLUMNS,
  );
  const canvas = sharpCanvas(box, paint, cleanUp);
  const draw = oncePerFrame(update, cleanUp);

  /** @type {(values: Partial<Traits>) => void} */
  function set(values) {
    setTraits(model, values);
    draw();
  }

  /** @type {Words} */
  const words = (value) => (model.get("unit") === "$" ? dollars : seconds)(value);
  /** @type {CostOf} */
  const costOf = ({ cost_s: cost, is_estimate: isEstimate }) => `${isEstimate ? "≈ " : ""}${words(cost)}`;
  const at = () => Math.min(model.get("frame"), frames.length - 1);
  const isAtEnd = () => at() === frames.length - 1;
  /** @type {() => Person} */
  const shown = () => people.get(model.get("chosen")) ?? there(people.get(frames[at()]?.best));

  /** @type {(context: CanvasRenderingContext2D, wide: number, high: number) => void} */
  function paint(context, wide, high) {
    generationAt = paintCurve(context, wide, high, { frames, at: at(), bound: model.get("bound_s"), planner: model.get("planner_s") }, readTheme(root));
  }

  function update() {
    const height = model.get("height");
    root.style.height = height ? `${height}px` : "";
    root.classList.toggle("dtfm-none", !frames.length);
    box.hidden = !model.get("has_curve");
    take.hidden = !model.get("takes");
    empty.hidden = frames.length > 0;
    empty.textContent = model.get("hint");
    const playing = model.get("playing");
    play.textContent = playing ? "Pause" : frames.length && isAtEnd() && model.get("is_over") ? "Again" : "Play";
    root.dataset.frames = String(frames.length);
    if (!frames.length) return void canvas.draw();
    const now = frames[at()],
      one = shown();
    [slider.max, slider.value] = [String(frames.length - 1), String(at())];
    const evaluated = `${now.evaluations.toLocaleString("en")} plan${now.evaluations === 1 ? "" : "s"} evaluated`;
    const of = now.has_generations ? ["generation ", h("b", {}, String(now.generation)), ", "] : [];
    counted.replaceChildren(...of, evaluated);
    play.hidden = slider.hidden = !now.has_generations && frames.length < 2; // one plan is nothing to play
    const what = now.has_generations ? `generation ${now.generation}` : evaluated;
    slider.setAttribute("aria-label", now.has_generations ? "Generation" : "Moment of the search");
    slider.setAttribute("aria-valuetext", `${what}, best ${words(now.best_s)}`);
    grid.setAttribute("aria-label", now.has_generations ? "The population, the cheapest first" : "The best plans so far, the newest first");
    showTiles(now, one);
    card.show(one, people, now, model.get("cells"), costOf, words);
    const theme = readTheme(root),
      cells = model.get("cells");
    tiles.forEach(({ canvas: small, number }) => paintPicture(small, cells, there(people.get(number)), theme));
    card.paint(cells, theme);
    canvas.draw();
    root.dataset.frame = String(at());
  }

  /** @type {(frame: Frame, one: Person) => void} */
  function showTiles({ numbers }, one) {
    while (tiles.length < numbers.length) {
      const small = h("canvas", { "aria-hidden": "true" }),
        cost = h("span"),
        tile = /** @type {Tile} */ ({ canvas: small, cost });
      tile.button = h(
        "button",
        {
          type: "button",
          class: "dtfm-tile",
          tabindex: "-1",
          onclick: () => set({ chosen: model.get("chosen") === tile.number ? NOBODY : tile.number, playing: false }),
        },
        small,
        cost,
      );
      tiles.push(tile);
    }
    tiles = tiles.slice(0, numbers.length);
    if (grid.childElementCount !== tiles.length) grid.replaceChildren(...tiles.map(({ button }) => button));
    numbers.forEach((number, place) => {
      const tile = tiles[place],
        person = there(people.get(number));
      tile.number = number;
      tile.cost.textContent = costOf(person);
      tile.button.title = `${person.shape.join(" x ")}, by ${person.operator}`;
      tile.button.classList.toggle("dtfm-best", number === one.number);
      tile.button.classList.toggle("dtfm-is-parent", one.parents.includes(number));
      tile.button.setAttribute("aria-pressed", String(number === model.get("chosen")));
      tile.button.setAttribute("aria-label", `Placement ${number}, ${costOf(person)}, ${person.shape.join(" x ")}, by ${person.operator}`);
      tile.button.dataset.number = String(number);
    });
    rove();
  }

  /** @type {(message: Message, buffers: DataView[]) => void} */
  function receive(message, buffers) {
    if (message.kind === "reset") {
      begun = true;
      frames.length = 0;
      people.clear();
    }
    if (message.kind === "frames" && begun) {
      // earlier frames have individuals that a late view has not received
      const stages = typed(buffers[0], Int16Array),
        n = model.get("cells").at.length;
      message.people.forEach((/** @type {Person} */ person, /** @type {number} */ index) =>
        people.set(person.number, { ...person, stages: stages.subarray(index * n, (index + 1) * n) }),
      );
      frames.push(...message.frames);
    }
    draw();
  }

  /** @type {(event: PointerEvent) => void} */
  function scrub(event) {
    if (!generationAt || (event.type === "pointermove" && !event.buttons)) return;
    const generation = generationAt(event.clientX - box.getBoundingClientRect().left);
    set({ frame: Math.max(0, Math.min(frames.length - 1, generation)), playing: false });
  }
  for (const name of /** @type {const} */ (["pointerdown", "pointermove"])) box.addEventListener(name, scrub);

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(model, ["cells", "frame", "playing", "chosen", "bound_s", "planner_s", "is_over", "hint", "height", "has_curve", "takes", "unit"], draw, cleanUp);
  onTheme(draw, cleanUp);
  onResize(root, draw, cleanUp);
  model.send({ kind: "hello" });
  draw();
  return cleanUp.run;
}

export default view(render);
