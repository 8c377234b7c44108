// One row per device, one bar per stay. Ends of bars can be dragged. A double click on a bar adds a departure, in a gap an
// arrival. The network shows the moment under the pointer; a click keeps it.
import { ticks, tickLabel } from "shared/axis.js";
import { cleanUps, frame, h, onResize, onTraits, oncePerFrame, svg, targetOf } from "shared/dom.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
import { moved } from "./page/stays.js";
/** @import { Listening, Render } from "shared/types.d.ts" */
/** @import { End, Stay, Traits } from "./types.d.ts" */

const ROWS_PX = [16, 11]; // of a few devices, of many
const MANY = 24;
const AXIS_PX = 20;
const REACH_PX = 5; // at either side of an end
const EVERY_MS = 90; // between two messages of one gesture

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = frame("dtfm-hours", "When each device is online");
  root.removeAttribute("tabindex"); // its ends and the moment take the focus
  const said = h("div", { class: "dtfm-hours-said", role: "status" });
  const picture = svg("svg"),
    scale = svg("svg", { height: AXIS_PX });
  const box = h("div", { class: "dtfm-hours-rows" }, picture);
  root.append(said, box, scale); // the axis stays as rows scroll
  el.append(root);

  /** @type {Stay[]} */
  let stays = [],
    width = 0,
    /** @type {(End & { name: string, from: Stay[] }) | null} */ held = null,
    kept = -1,
    focused = "",
    /** @type {ReturnType<typeof setTimeout> | 0} */ waits = 0,
    lookedAt = -1,
    droppedAt = -Infinity;
  const end = () => model.get("end_s");
  const [left, right] = [() => model.get("room")[0], () => model.get("room")[1]];
  const rowPx = () => ROWS_PX[Number(model.get("devices").length > MANY)];
  const inner = () => Math.max(1, width - left() - right());
  /** @type {(t_s: number) => number} */
  const xOf = (t_s) => left() + (t_s / end()) * inner();
  /** @type {(event: { clientX: number }) => number} */
  const timeAt = ({ clientX }) => Math.min(end(), Math.max(0, ((clientX - picture.getBoundingClientRect().left - left()) / inner()) * end()));
  /** @type {(event: { clientY: number }) => number} */
  const rowAt = ({ clientY }) => Math.floor((clientY - picture.getBoundingClientRect().top) / rowPx());
  /** @type {(t_s: number) => string} */
  const told = (t_s) => `${(t_s / model.get("in_s")).toFixed(2)} ${model.get("unit")}`;

  const [rows, line, labels, now] = [svg("g"), svg("g"), svg("g"), svg("g")];
  picture.append(rows, line);
  scale.append(labels, now);

  const draw = oncePerFrame(() => {
    const devices = model.get("devices"),
      row = rowPx(),
      bottom = devices.length * row;
    width = box.clientWidth;
    root.hidden = !devices.length;
    if (!width || !end()) return;
    picture.setAttribute("height", String(bottom));
    const steps = ticks(0, end() / model.get("in_s"), inner() / 90);
    const chosen = new Set(model.get("chosen"));
    const ends = stays.flatMap(([device, begin_s, end_s], index) => [
      ...(begin_s > 0 ? [{ index, device, leaves: false, t_s: begin_s }] : []),
      ...(end_s < end() ? [{ index, device, leaves: true, t_s: end_s }] : []),
    ]);
    const stop = ends.some((one) => nameOf(one) === focused) ? focused : ends.length ? nameOf(ends[0]) : "";
    const hadFocus = rows.contains(document.activeElement);
    rows.replaceChildren(
      ...steps.map((at) => svg("line", { class: "dtfm-hours-grid", x1: xOf(at * model.get("in_s")), x2: xOf(at * model.get("in_s")), y1: 0, y2: bottom })),
      ...devices.map((_, at) => svg("rect", { class: "dtfm-hours-row", x: left(), y: at * row, width: inner(), height: row })),
      ...devices.map((name, at) =>
        svg(
          "text",
          {
            x: left() - 6,
            y: at * row + row / 2 + 4,
            "text-anchor": "end",
            class: chosen.has(name) ? "dtfm-chosen" : null,
            style: row < ROWS_PX[0] ? "font-size:9px" : null,
          },
          name.length > 14 ? `…${name.slice(-13)}` : name,
        ),
      ),
      ...stays.map(([device, begin_s, end_s]) =>
        svg("rect", { class: "dtfm-hours-stay", x: xOf(begin_s), y: device * row + 2, width: Math.max(1, xOf(end_s) - xOf(begin_s)), height: row - 4 }),
      ),
      ...ends.map((one) => handle(one, row, stop)),
    );
    labels.replaceChildren(
      ...steps.map((at, index) =>
        svg(
          "text",
          { x: xOf(at * model.get("in_s")), y: 14, "text-anchor": "middle" },
          `${tickLabel(at, steps[1] - steps[0])}${index === steps.length - 1 ? ` ${model.get("unit")}` : ""}`,
        ),
      ),
    );
    if (hadFocus) (rows.querySelector(`[data-end="${focused}"]`) ?? /** @type {SVGElement | null} */ (now.firstChild))?.focus({ preventScroll: true });
    drawMoment();
  }, cleanUp);

  const drawMoment = oncePerFrame(() => {
    if (!width || !end()) return;
    const hadFocus = now.contains(document.activeElement);
    const x = xOf(lookedAt);
    line.replaceChildren(...(lookedAt < 0 ? [] : [svg("line", { class: "dtfm-hours-now", x1: x, x2: x, y1: 0, y2: model.get("devices").length * rowPx() })]));
    now.replaceChildren(moment());
    if (hadFocus) /** @type {SVGElement} */ (now.firstChild).focus({ preventScroll: true });
  }, cleanUp);

  /** @type {(end: { index: number, leaves: boolean }) => string} */
  const nameOf = ({ index, leaves }) => `${index}/${leaves ? "leaves" : "comes"}`;

  /** @type {(one: End, row: number, stop: string) => SVGGElement} */
  function handle(one, row, stop) {
    const { device, leaves, t_s } = one,
      name = nameOf(one),
      x = xOf(t_s);
    const words = `${model.get("devices")[device]} ${leaves ? "leaves" : "arrives"}`;
    return svg(
      "g",
      {
        class: `dtfm-hours-end${leaves ? " dtfm-leaves" : ""}${held?.name === name ? " dtfm-held" : ""}`,
        role: "slider",
        tabindex: name === stop ? "0" : "-1",
        "data-end": name,
        "aria-label": words,
        "aria-valuemin": 0,
        "aria-valuemax": end(),
        "aria-valuenow": t_s,
        "aria-valuetext": told(t_s),
        onfocus: () => {
          focused = name;
        },
        onkeydown: (event) => onEndKey(event, one),
        onpointerdown: (event) => begin(event, one),
      },
      svg("title", {}, `${words} at ${told(t_s)}: drag it, or press Delete to remove it`),
      svg("rect", { x: x - REACH_PX, y: device * row, width: 2 * REACH_PX, height: row }),
      svg("line", { x1: x, x2: x, y1: device * row + 1, y2: (device + 1) * row - 1 }),
    );
  }

  function moment() {
    const t_s = lookedAt,
      x = xOf(Math.max(0, t_s));
    return svg(
      "g",
      {
        class: "dtfm-hours-moment",
        role: "slider",
        tabindex: "0",
        "aria-label": "Moment shown on the network",
        "aria-valuemin": 0,
        "aria-valuemax": end(),
        "aria-valuenow": Math.max(0, t_s),
        "aria-valuetext": t_s < 0 ? "none" : `${told(t_s)}. ${model.get("said")}`,
        onkeydown: onMomentKey,
      },
      svg("path", { d: `M${x},0l5,7h-10z` }),
    );
  }

  /** @type {(one: End, t_s: number) => void} */
  function put(one, t_s) {
    stays = stays.map((stay, index) => (index === one.index ? moved(stays, one, t_s, end()) : stay));
    draw();
  }

  /** @type {(phase: "begin" | "move" | "end") => void} */
  const send = (phase) => model.send({ kind: "stays", stays, phase });

  /** @type {(event: PointerEvent, one: End) => void} */
  function begin(event, one) {
    if (event.button) return;
    event.preventDefault();
    /** @type {SVGElement} */ (event.currentTarget).focus({ preventScroll: true });
    let begun = false;
    /** @type {(to: PointerEvent) => void} */
    const move = (to) => {
      if (!begun) {
        held = { ...one, name: nameOf(one), from: stays };
        send("begin");
        begun = true;
      }
      put(one, timeAt(to));
      look(timeAt(to));
      sendSoon();
    };
    /** @type {(event: PointerEvent) => void} */
    const drop = ({ type }) => {
      for (const [name, handler] of Object.entries(on)) window.removeEventListener(name, handler);
      clearTimeout(waits);
      waits = 0;
      if (!begun) return;
      if (type === "pointercancel") stays = there(held).from;
      held = null;
      droppedAt = performance.now();
      send("end");
      draw();
    };
    /** @type {Listening} */
    const on = { pointermove: move, pointerup: drop, pointercancel: drop };
    for (const [name, handler] of Object.entries(on)) window.addEventListener(name, handler);
  }

  function sendSoon() {
    waits ||= setTimeout(() => {
      waits = 0;
      if (held) send("move");
    }, EVERY_MS);
  }

  /** @type {Record<string, number>} */
  const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };

  /** @type {(event: KeyboardEvent, one: End) => void} */
  function onEndKey(event, one) {
    const { key, shiftKey } = event,
      all = [...picture.querySelectorAll("[data-end]")];
    if (key in STEPS) {
      send("begin");
      put(one, one.t_s + (STEPS[key] * (shiftKey ? 10 : 1) * end()) / 200);
      send("end");
    } else if (key === "ArrowUp" || key === "ArrowDown")
      all[all.indexOf(/** @type {HTMLElement} */ (event.currentTarget)) + (key === "ArrowUp" ? -1 : 1)]?.focus();
    else if (key === "Delete" || key === "Backspace") model.send({ kind: "remove", stay: one.index, leaves: one.leaves });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @type {(event: KeyboardEvent) => void} */
  function onMomentKey(event) {
    const { key, shiftKey } = event;
    const to = key === "Home" ? 0 : key === "End" ? end() : key in STEPS ? Math.max(0, lookedAt) + (STEPS[key] * (shiftKey ? 10 : 1) * end()) / 200 : null;
    if (key === "Escape" && kept >= 0) look((kept = -1));
    else if (to === null) return;
    else look((kept = Math.min(end(), Math.max(0, to))));
    event.preventDefault();
    event.stopPropagation();
  }

  /** @type {ReturnType<typeof setTimeout> | 0} */
  let looks = 0;
  /**
   * Show the network at a second, -1 for as planned. The kernel gets at most one message per EVERY_MS.
   * @type {(t_s: number) => void}
   */
  function look(t_s) {
    lookedAt = t_s;
    looks ||= setTimeout(() => {
      looks = 0;
      model.set("moment_s", lookedAt);
      model.save_changes();
    }, EVERY_MS);
    drawMoment();
  }

  for (const part of [picture, scale]) {
    part.addEventListener("pointermove", (event) => {
      if (!held) look(timeAt(event));
    });
    part.addEventListener("pointerleave", () => {
      if (!held) look(kept);
    });
    part.addEventListener("click", (event) => {
      if (!targetOf(event).closest("[data-end]") && performance.now() - droppedAt > 100) look((kept = timeAt(event)));
    });
  }
  picture.addEventListener("dblclick", (event) => {
    const device = rowAt(event);
    if (device < model.get("devices").length && !targetOf(event).closest("[data-end]")) model.send({ kind: "toggle", device, time_s: timeAt(event) });
  });

  const take = () => {
    if (!held) stays = model.get("stays");
    draw();
  };
  onTraits(model, ["stays", "devices", "end_s", "room", "chosen", "unit"], take, cleanUp);
  onTraits(
    model,
    ["moment_s"],
    () => {
      if (!looks) lookedAt = model.get("moment_s");
      drawMoment();
    },
    cleanUp,
  );
  onTraits(
    model,
    ["said"],
    () => {
      said.textContent = model.get("said");
      drawMoment();
    },
    cleanUp,
  );
  onResize(
    box,
    () => {
      draw();
      window.dispatchEvent(new Event("resize")); // plotly's figure below follows the window alone
    },
    cleanUp,
  );
  cleanUp.add(() => {
    clearTimeout(looks);
    clearTimeout(waits);
  });
  said.textContent = model.get("said");
  take();
  return cleanUp.run;
}

export default view(render);
