// The groups as columns in path order: devices as badges, the cost of a move at every column, and the parts of the cost.
import { h } from "shared/dom.js";
import { seconds } from "shared/axis.js";
import { gpuShape } from "shared/gpus.js";
import { linkDash, linkText, linkWidth } from "shared/links.js";
import { inkOn, kindColor, readTheme, stageColor } from "shared/theme.js";
import { change, counted, deviceWords } from "./words.js";
import { there } from "shared/there.js";
/** @import { Pointed } from "shared/types.d.ts" */
/** @import { Choose, Data, Group, Hop, Offers, Under } from "../types.d.ts" */

const NARROWEST = 30,
  WIDEST = 150; // pixels of a column
/** @type {[string, number][]} */
const ROOMS = [
  ["words", 112],
  ["names", 60],
  ["numbers", 54],
  ["tight", 46],
  ["badges", 0],
]; // from which width of a column on
/** @type {Record<string, boolean>} */
const LESS = { words: true, names: true }; // rooms for a word more
const GAP = 4; // pixels between badges
const LARGEST_BADGE = 32,
  SMALLEST_BADGE = 9,
  NUMBERED_BADGE = 17;
const GLIDE_MS = 550;
const BEGINS = 5; // pixels until a press is a drag
const IDLE = -1;

/**
 * `state()` is {canMove, offers}; `choose` has device, group and edge; `point` is told what the pointer is at; `send` takes what
 * Python is to know.
 * @type {(on: { state: () => { canMove: boolean, offers: Offers }, choose: { device: Choose, group: (stage: number) => void, edge: (hop: number) => void }, point: (what: Pointed) => void, send: (content: object) => void }) => { root: HTMLElement, draw: (next: Data) => void, mark: (next: Data) => void, light: (what: Pointed) => void, showPrices: () => void, cancel: () => void, dragging: () => boolean, roveTo: (name: string) => void, size: () => string, drawnSize: () => string }}
 */
export function makePath({ state, choose, point, send }) {
  const columns = h("div", { class: "dtfm-path-columns" });
  const hops = h("div", { class: "dtfm-path-hops" });
  const scroller = h("div", { class: "dtfm-path-scroll" }, columns, hops);
  const told = h("span", { class: "dtfm-path-told", "aria-live": "polite" });
  const bound = h("span", { class: "dtfm-path-bound" });
  const sum = h("div", { class: "dtfm-path-sum" });
  const root = h("div", { class: "dtfm-path" }, scroller, h("div", { class: "dtfm-path-line" }, told, bound), sum);
  /** @type {Map<string, HTMLButtonElement>} */
  const badges = new Map(); // device -> element, kept over plans, so that it can glide
  /** @type {Data} any: null until the first plan is drawn */
  let data = /** @type {any} */ (null);
  /** @type {{ name: string, x: number, y: number, dragging: boolean, target: Under } | null} */
  let held = null;
  /** @type {Pointed} */
  let lit = null;
  let drawnSize = "",
    /** @type {Map<string, string | undefined>} */
    gpuOf = new Map();

  /** @type {() => Group[]} */
  const all = () => [...data.groups, ...(data.idle.length ? [{ stage: IDLE, devices: data.idle, regions: [], cost_s: 0 }] : [])];
  /** @type {(group: Group) => string} */
  const nameOf = (group) => (group.stage === IDLE ? "idle" : placesOf(group.regions));
  /** @type {(name: string) => number} */
  const stageOf = (name) => data.places.get(name)?.stage ?? IDLE;

  /**
   * Another plan, or another size.
   * @type {(next: Data) => void}
   */
  function draw(next) {
    const before = new Map([...badges].map(([name, element]) => [name, element.isConnected ? element.getBoundingClientRect() : null]));
    const grows = drawnSize === `${root.clientWidth} x ${root.clientHeight}`;
    data = next;
    drawnSize = `${root.clientWidth} x ${root.clientHeight}`;
    const shown = all();
    gpuOf = new Map(data.network.devices?.map((device) => [device.name, device.gpu]));
    const names = new Set(shown.flatMap(({ devices }) => devices));
    for (const [name, element] of badges)
      if (!names.has(name)) {
        element.remove();
        badges.delete(name);
      }
    const width = Math.max(NARROWEST, Math.min(WIDEST, scroller.clientWidth / Math.max(1, shown.length)));
    root.style.setProperty("--column", `${width}px`);
    root.dataset.room = there(ROOMS.find(([, least]) => width >= least))[0];
    scroller.style.setProperty("--wide", `${width * shown.length}px`);
    columns.replaceChildren(...shown.map((group) => column(group, width)));
    hops.replaceChildren(...(data.cost.hops ?? []).map((hop, index) => hopBetween(hop, index, width)));
    drawSum();
    showPrices();
    mark(data);
    if (grows && !matchMedia("(prefers-reduced-motion: reduce)").matches) glide(before);
  }

  /** @type {(group: Group, width: number) => HTMLElement} */
  function column(group, width) {
    const { stage } = group;
    const theme = readTheme(root);
    const paint = stage === IDLE ? "transparent" : stageColor(stage, data.groups.length, theme.dark);
    const ink = stage === IDLE ? theme.text : inkOn(paint);
    const room = Math.max(40, 0.42 * (scroller.clientHeight - 130));
    const size = badgeSize(group.devices.length, width - 14, room);
    const head = h(
      "button",
      {
        class: "head",
        type: "button",
        "data-key": `group-${stage}`,
        disabled: stage === IDLE,
        "aria-label": `${groupTitle(group)}${stage === IDLE ? "" : `, averages ${seconds(group.cost_s)}`}`,
      },
      h("i", { class: "stage" }, stage === IDLE ? "–" : String(stage)),
      h("b", { title: nameOf(group) }, nameOf(group)),
      stage === IDLE
        ? h("span", {}, counted(group.devices.length, "device"))
        : h("span", { title: `averages ${seconds(group.cost_s)}` }, group.devices.length < 2 ? null : h("em", {}), averagingText(group)),
    );
    head.addEventListener("click", () => choose.group(stage));
    head.addEventListener("pointerenter", () => point({ stage }));
    head.addEventListener("pointerleave", () => point(null));
    head.addEventListener("focus", () => point({ stage }));
    head.addEventListener("blur", () => point(null));
    const devices = h("div", { class: "devices" }, ...group.devices.map((name, replica) => badge(name, replica, group, size)));
    return h(
      "div",
      {
        class: "column",
        "data-stage": stage,
        role: "group",
        "aria-label": groupTitle(group),
        style: `--stage:${paint};--ink:${ink};--badge:${size}px;--averaging:${kindColor("averaging", theme.dark)}`,
      },
      head,
      devices,
      h("div", { class: "chart" }, h("div", { class: "bar" })),
      h("div", { class: "price" }),
      h("div", { class: "more" }),
    );
  }

  /** @type {(group: Group) => string} */
  const groupTitle = (group) =>
    group.stage === IDLE ? counted(group.devices.length, "idle device") : `Stage ${group.stage}, ${nameOf(group) || counted(group.devices.length, "device")}`;

  /** @type {(group: Group) => string} */
  const averagingText = (group) => (group.devices.length < 2 ? "alone" : `${root.dataset.room === "words" ? "averages " : ""}${brief(group.cost_s)}`);

  /** @type {(name: string, replica: number, group: Group, size: number) => HTMLButtonElement} */
  function badge(name, replica, group, size) {
    let element = badges.get(name);
    if (!element) {
      element = h("button", { type: "button", "data-device": name, "data-key": `device-${name}`, tabindex: "-1" });
      listenTo(element, name);
      badges.set(name, element);
    }
    element.className = `device ${gpuShape(group.gpus?.[replica] ?? gpuOf.get(name) ?? "")}`;
    element.textContent = size < NUMBERED_BADGE ? "" : group.stage === IDLE ? "" : String(replica);
    element.setAttribute("aria-label", deviceWords(name, data).replaceAll("\n", ", "));
    return element;
  }

  /** @type {(hop: Hop, index: number, width: number) => HTMLElement} */
  function hopBetween(hop, index, width) {
    const [a, b] = hop.devices;
    const words = `Hop from stage ${index} to ${index + 1}, ${seconds(hop.seconds)}: waits for ${a} and ${b}, ${linkText(hop.gbps, hop.ms).join(", ")}`;
    const element = h(
      "button",
      {
        class: "hop",
        type: "button",
        "data-edge": index,
        title: words,
        "aria-label": words,
        "data-key": `edge-${index}`,
        style: `left:${(index + 1) * width}px`,
      },
      hopLine(hop),
      h("span", {}, root.dataset.room === "badges" ? "" : seconds(hop.seconds)),
    );
    element.addEventListener("click", () => choose.edge(index));
    element.addEventListener("pointerenter", () => point({ link: hop.devices.slice(0, 2) }));
    element.addEventListener("pointerleave", () => point(null));
    return element;
  }

  /** @type {(hop: Hop) => SVGElement} */
  function hopLine({ gbps, ms }) {
    const dash = linkDash(ms).join(" ");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    line.setAttribute("class", "line");
    line.setAttribute("aria-hidden", "true");
    line.innerHTML = `<line x1="0" y1="5" x2="100%" y2="5" stroke="currentColor" stroke-width="${linkWidth(gbps)}" stroke-dasharray="${dash}"/>`;
    return line;
  }

  /** The bar of the whole cost: the slowest group's averaging, then every hop, with a line at the lower bound. */
  function drawSum() {
    const { total_s: total, averaging_s: averaging, hops: steps = [], bound_s: low, is_proven: proven } = data.cost;
    if (!total) return sum.replaceChildren();
    const theme = readTheme(root);
    const wide = sum.clientWidth || 640;
    const parts = [
      h(
        "div",
        {
          class: "averaging",
          style: `flex-grow:${(100 * averaging) / total};--paint:${kindColor("averaging", theme.dark)};--ink:${inkOn(kindColor("averaging", theme.dark))}`,
          title: `Averaging of the slowest group, ${seconds(averaging)}`,
        },
        (averaging / total) * wide > 110 ? `averaging ${seconds(averaging)}` : (averaging / total) * wide > 50 ? seconds(averaging) : "",
      ),
    ];
    steps.forEach((hop, index) => {
      const part = h(
        "div",
        {
          class: "part",
          "data-edge": index,
          style: `flex-grow:${(100 * hop.seconds) / total}`,
          title: `Hop ${index} to ${index + 1}, ${seconds(hop.seconds)}`,
        },
        (hop.seconds / total) * wide > 38 ? `${index} – ${index + 1}` : "",
      );
      part.addEventListener("click", () => choose.edge(index));
      part.addEventListener("pointerenter", () => point({ link: hop.devices.slice(0, 2) }));
      part.addEventListener("pointerleave", () => point(null));
      parts.push(part);
    });
    const mark = h("div", {
      class: "least",
      style: `left:${(100 * Math.min(1, low / total)).toFixed(2)}%`,
      title: `No plan of this shape takes less than ${seconds(low)}`,
    });
    sum.replaceChildren(...parts, ...(low > 0 && !proven ? [mark] : []));
    bound.textContent = proven ? "proved best in this shape" : low > 0 ? `no plan of this shape takes less than ${seconds(low)}` : "";
    tell();
  }

  /** The parts of the cost. While a device is dragged over a column, the new cost. */
  function tell() {
    const { total_s: total, hops: steps = [] } = data.cost;
    if (!total) return told.replaceChildren();
    const { offers } = state();
    const target = held?.dragging ? held.target : null;
    const partner = target?.device;
    const cost =
      !target || offers.device !== there(held).name
        ? undefined
        : partner
          ? offers.devices?.[partner]?.[0]
          : offers.groups?.find(({ stage }) => stage === target.stage)?.cost_s;
    if (cost === undefined) {
      told.replaceChildren(h("b", {}, seconds(total)), ` communication = slowest averaging${steps.length ? ` + ${counted(steps.length, "hop")}` : ""}`);
      return;
    }
    const swap = partner ?? offers.groups.find(({ stage }) => stage === there(target).stage)?.partner;
    told.replaceChildren(`${seconds(total)} → `, h("b", {}, seconds(cost)), ` if ${there(held).name} and ${swap} swap places`);
  }

  /** Bars and texts of a move to every column; without one, how long each group averages. */
  function showPrices() {
    if (!data) return;
    const { offers } = state();
    const name = held?.dragging ? held.name : data.selected.length === 1 ? data.selected[0] : null;
    const known = name !== null && badges.has(name);
    const ready = known && offers.device === name;
    const home = known ? stageOf(name) : null;
    const most = ready ? Math.max(...offers.groups.map(({ change_s }) => Math.abs(change_s)), 1e-12) : 1;
    const slowest = Math.max(...data.groups.map(({ cost_s }) => cost_s), 0);
    root.dataset.priced = String(known);
    for (const element of columns.children) {
      const stage = Number(element.dataset.stage);
      const [, , chart, price, more] = element.children;
      const bar = there(chart.firstElementChild);
      const offer = ready ? offers.groups.find((place) => place.stage === stage) : null;
      element.classList.toggle("home", known && stage === home);
      element.classList.toggle("target", Boolean(held?.dragging) && there(held).target?.stage === stage);
      element.classList.toggle("cheaper", offer ? offer.change_s < -1e-9 * offers.now_s : false);
      more.textContent = "";
      let share = 0;
      if (!known) {
        const own = data.groups[stage]?.cost_s ?? 0;
        share = slowest > 0 ? own / slowest : 0;
        price.textContent =
          stage === IDLE || !slowest
            ? ""
            : own >= slowest * (1 - 1e-9)
              ? "sets the pace"
              : there(root.dataset.room) in LESS
                ? `${brief(slowest - own)} shorter`
                : `−${brief(slowest - own)}`;
      } else if (stage === home) price.textContent = "here";
      else if (!ready) price.textContent = "…";
      else if (!offer) price.textContent = "–";
      else {
        share = Math.abs(offer.change_s) / most;
        price.textContent = briefly(offer.change_s, offers.now_s);
        if (offer.iteration_change_s !== undefined && offer.iteration_change_s !== null)
          more.textContent = `(${briefly(offer.iteration_change_s, offers.iteration_s)})`;
      }
      bar.style.height = `${(100 * share).toFixed(1)}%`;
      /** @type {HTMLElement} */ (price).title = offer ? `${seconds(offer.cost_s)} communication, if swapped with ${offer.partner}` : "";
    }
    tell();
  }

  /**
   * Selection, and what is lit from elsewhere.
   * @type {(next: Data) => void}
   */
  function mark(next) {
    data = next;
    const chosen = new Set(data.selected);
    for (const [name, element] of badges) {
      const on = chosen.has(name);
      element.classList.toggle("selected", on);
      element.setAttribute("aria-pressed", String(on));
    }
    for (const element of columns.children) {
      const on = data.group >= 0 && Number(element.dataset.stage) === data.group;
      element.classList.toggle("chosen", on);
      there(element.firstElementChild).setAttribute("aria-pressed", String(on));
    }
    const hop = data.edge && data.edge[1] === data.edge[0] + 1 ? data.edge[0] : null;
    for (const element of [...hops.children, ...sum.children]) element.classList.toggle("selected", hop !== null && element.dataset.edge === String(hop));
    const first = badges.get(data.selected[0]) ?? badges.values().next().value;
    for (const element of badges.values()) element.tabIndex = element === first ? 0 : -1;
    light(lit);
    showPrices();
  }

  /**
   * Fades what is not lit: {devices}, {stage}, {replica}, {link}, or null for nothing lit.
   * @type {(what: Pointed) => void}
   */
  function light(what) {
    lit = what;
    if (!data) return;
    const devices = what?.devices ?? what?.link;
    for (const [name, element] of badges) {
      const place = data.places.get(name);
      const on = devices
        ? devices.includes(name)
        : what?.stage !== undefined
          ? place?.stage === what.stage
          : what?.replica !== undefined
            ? place?.replica === what.replica
            : true;
      element.classList.toggle("dim", !on);
    }
    for (const element of columns.children) element.classList.toggle("dim", what?.stage !== undefined && Number(element.dataset.stage) !== what.stage);
  }

  /** @type {(before: Map<string, DOMRect | null>) => void} */
  function glide(before) {
    for (const [name, element] of badges) {
      const [from, to] = [before.get(name), element.getBoundingClientRect()];
      if (!from) continue;
      const [dx, dy] = [from.left - to.left, from.top - to.top];
      if (Math.abs(dx) + Math.abs(dy) > 2)
        element.animate(
          [
            { transform: `translate(${dx}px, ${dy}px)`, zIndex: 2 },
            { transform: "none", zIndex: 2 },
          ],
          { duration: GLIDE_MS, easing: "ease-out" },
        );
    }
  }

  /** @type {(element: HTMLButtonElement, name: string) => void} */
  function listenTo(element, name) {
    element.addEventListener("pointerenter", () => {
      if (!held?.dragging) point({ devices: [name] });
    });
    element.addEventListener("pointerleave", () => {
      if (!held?.dragging) point(null);
    });
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held = { name, x: event.clientX, y: event.clientY, dragging: false, target: null };
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (held?.name !== name || !event.buttons) return;
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.dragging) {
        if (!state().canMove || Math.hypot(dx, dy) < BEGINS) return;
        held.dragging = true;
        point(null);
        root.classList.add("dragging");
        element.classList.add("lifted");
        send({ kind: "lift", device: name });
      }
      element.style.transform = `translate(${dx}px, ${dy}px)`;
      held.target = under(event.clientX, event.clientY, name);
      showPrices();
    });
    element.addEventListener("pointerup", (event) => {
      const was = held;
      if (!was) return;
      const { target, dragging } = was;
      end();
      if (!dragging) choose.device(name, event.shiftKey || event.ctrlKey || event.metaKey);
      else if (target?.device) send({ kind: "drop", device: name, partner: target.device });
      else if (target) send({ kind: "drop", device: name, stage: target.stage });
    });
    element.addEventListener("pointercancel", end);
    // a click by the keyboard or a screen reader has no pointer
    element.addEventListener("click", (event) => {
      if (!event.detail) choose.device(name, event.shiftKey || event.ctrlKey || event.metaKey);
    });
  }

  /** Puts the badge back where the column has it. */
  function end() {
    const element = held && badges.get(held.name);
    held = null;
    root.classList.remove("dragging");
    if (element) {
      element.classList.remove("lifted");
      element.style.transform = "";
    }
    showPrices();
  }

  /**
   * {stage, device} under the pointer, null over the device's own column or none.
   * @type {(x: number, y: number, name: string) => Under}
   */
  function under(x, y, name) {
    const home = stageOf(name);
    /** @type {(box: DOMRect) => boolean} */
    const inside = ({ left, right, top, bottom }) => x >= left && x <= right && y >= top && y <= bottom;
    const found = [...columns.children].find((element) => inside(element.getBoundingClientRect()));
    if (!found || Number(found.dataset.stage) === home) return null;
    const device = [...found.querySelectorAll(".device")].find((element) => element.dataset.device !== name && inside(element.getBoundingClientRect()));
    return { stage: Number(found.dataset.stage), device: device?.dataset.device };
  }

  return {
    root,
    draw,
    mark,
    light,
    showPrices,
    cancel: () => end(),
    dragging: () => Boolean(held?.dragging),
    /** @type {(name: string) => void} */
    roveTo(name) {
      for (const [other, element] of badges) element.tabIndex = other === name ? 0 : -1;
      badges.get(name)?.focus({ preventScroll: false });
    },
    size: () => `${root.clientWidth} x ${root.clientHeight}`,
    drawnSize: () => drawnSize,
  };
}

/**
 * The largest badge size at which this many fit in a width and a height.
 * @type {(n: number, width: number, height: number) => number}
 */
function badgeSize(n, width, height) {
  for (let size = LARGEST_BADGE; size > SMALLEST_BADGE; size--) {
    const across = Math.floor((width + GAP) / (size + GAP));
    if (across >= 1 && Math.ceil(n / across) * (size + GAP) <= height) return size;
  }
  return SMALLEST_BADGE;
}

/**
 * "Tokyo", "Tokyo, Seoul", "Tokyo +3".
 * @type {(regions?: string[]) => string}
 */
function placesOf(regions = []) {
  if (regions.length <= 2) return regions.join(", ");
  return `${regions[0]} +${regions.length - 1}`;
}

/**
 * Three digits that count: "13.3 s".
 * @type {(value: number) => string}
 */
const brief = (value) => (value >= 10 && value < 100 ? `${value.toFixed(1)} s` : seconds(value));

/**
 * "+13.8 s", "−3 ms", "same".
 * @type {(difference: number, of: number) => string}
 */
function briefly(difference, of) {
  if (Math.abs(difference) <= 1e-9 * of) return "same";
  return Math.abs(difference) >= 10 ? `${difference > 0 ? "+" : "−"}${brief(Math.abs(difference))}` : change(difference, of);
}
