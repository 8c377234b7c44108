// An open host: its devices as buttons in their stages' colours, and the links between them.
import { shines } from "shared/bus.js";
import { h, svg } from "shared/dom.js";
import { linkDrag, linkLabel } from "shared/link_drag.js";
import { linkWidth } from "shared/links.js";
import { roving } from "shared/roving.js";
import { placesOf, trafficOf } from "shared/tasks.js";
import { inkOn, kindColor, stageColor } from "shared/theme.js";
import { hostBox } from "./hosts.js";
import { control } from "./geometry.js";
import { pairKey, stemOf } from "./scene.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Conditions, Model, Point, Theme } from "shared/types.d.ts" */
/** @import { Frame, Light, Running, Scene, SceneDevice } from "../types.d.ts" */

/** @typedef {Pick<SceneDevice, "name" | "gpu" | "members" | "cells">} Host */
/**
 * `top` and `bottom` are pixels that are left free above and below the card, if there is room.
 * @typedef {object} Look
 * @property {Theme} theme
 * @property {number} width
 * @property {number} height
 * @property {number} top
 * @property {number} bottom
 * @property {Set<string>} parts
 * @property {Pick<Light, "device"> | null} light
 * @property {Pick<Running, "computing"> | null} run
 * @property {Record<string, string>} conditions
 */

const WIDE = { x: 62, y: 60 }; // pixels from one device to the next
const CLOSE = { x: 50, y: 43 }; // the same on a small picture
const SMALL = { width: 420, height: 300 }; // pixels of a picture that is small
const ROOM = { width: 1.6, height: 1 }; // the card's shape
const MOST_FAINT = 16; // devices, above which links that the plan does not use are left out
const MANY_USED = 12; // links that the plan uses, above which they are thin
const BOW = 0.2; // of its length that a link bends, so that it goes round the devices between its ends
const [EDGE, BELOW] = [8, 22]; // pixels between the card and the canvas' edge, and the host's box with its name

/**
 * A host's devices over a picture of the network. `chosen(device)` selects a device, `left()` closes the card; `read(host)` and `set(host, conditions)` are the numbers of
 * the links inside, which do not change where the picture is `still`.
 * @template T
 * @param {HTMLElement} root
 * @param {Model<T>} model
 * @param {{ chosen: (device: string) => void, left: () => void, read: (host: string) => Conditions, set: (host: string, conditions: Conditions) => void, still?: boolean }} on
 * @param {CleanUps} cleanUp
 */
export function hostCard(root, model, on, cleanUp) {
  const title = h("strong");
  const about = h("span");
  const lines = svg("svg", { "aria-hidden": "true" });
  const grid = h("div", { class: "dtfm-gpus-inside", role: "group" }, lines);
  const label = linkLabel("links inside the host", on.still);
  const close = h("button", { type: "button", class: "dtfm-icon", "aria-label": "Close the host", title: "Close (Esc)", onclick: () => on.left() }, "×");
  const foot = h("div", { class: "dtfm-inside" }, h("span", {}, "between any two"), label.element);
  const element = h("div", { class: "dtfm-host", role: "dialog", hidden: true }, h("div", { class: "dtfm-host-head" }, title, about, close), grid, foot);
  /** @type {HTMLButtonElement[]} */
  let buttons = [];
  /** @type {Host | null} */
  let shown = null;
  let columns = 1;
  let pitch = WIDE;
  let drawnLines = "";
  if (!on.still)
    linkDrag(
      label.element,
      model,
      {
        read: () => on.read(there(shown).name),
        set: (conditions) => on.set(there(shown).name, conditions),
        show: (conditions) => label.write(conditions),
      },
      cleanUp,
    );
  const keepStop = roving(
    grid,
    () => buttons,
    () => columns,
  );

  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    on.left();
  });

  /** @type {(host: Host) => void} */
  function build(host) {
    const { members, gpu, name } = host;
    columns = hostBox(members.length, ROOM).columns;
    const rows = Math.ceil(members.length / columns);
    const middles = middlesOf(members.length);
    const stem = stemOf(members);
    buttons = members.map((device, at) => {
      const button = h("button", {
        type: "button",
        class: "dtfm-gpu",
        title: device,
        onclick: () => on.chosen(device),
        ...shines(root, { devices: [device] }),
      });
      button.append(h("b"), h("span", {}, device.slice(stem)));
      Object.assign(button.style, { left: `${middles[at].x}px`, top: `${middles[at].y}px` });
      return button;
    });
    Object.assign(grid.style, { width: `${columns * pitch.x}px`, height: `${rows * pitch.y}px` });
    lines.setAttribute("viewBox", `0 0 ${columns * pitch.x} ${rows * pitch.y}`);
    grid.replaceChildren(lines, ...buttons);
    title.textContent = name;
    about.textContent = `${members.length} × ${gpu}`;
    element.setAttribute("aria-label", `Host ${name}, ${members.length} devices`);
    drawnLines = "";
    keepStop();
  }

  /** @type {(n: number) => Point[]} */
  const middlesOf = (n) => Array.from({ length: n }, (_, at) => ({ x: ((at % columns) + 0.5) * pitch.x, y: (Math.floor(at / columns) + 0.5) * pitch.y }));

  /** @type {(host: Host, theme: Theme) => void} */
  function drawLines({ members, cells, name }, theme) {
    const conditions = on.read(name);
    const key = JSON.stringify([cells, theme.dark, conditions]);
    if (key === drawnLines) return;
    drawnLines = key;
    label.write(conditions); // an undo changes it, too
    const places = placesOf(Object.fromEntries(members.flatMap((device, at) => (cells[at] ? [[device, there(cells[at])]] : []))));
    const uses = new Map(trafficOf(places).map(({ ends, use }) => [pairKey(ends), use]));
    const middles = middlesOf(members.length);
    const pairs = members.flatMap((one, at) =>
      members.slice(at + 1).map((other, by) => ({ use: uses.get(pairKey([one, other])), a: middles[at], b: middles[at + 1 + by] })),
    );
    const wanted = pairs.filter(({ use }) => use || members.length <= MOST_FAINT).sort((one, other) => Number(Boolean(one.use)) - Number(Boolean(other.use)));
    const width = uses.size > MANY_USED ? 1.5 : Math.max(1.5, linkWidth(conditions.bandwidth_gbps) / 2);
    lines.replaceChildren(
      ...wanted.map(({ use, a, b }) => {
        const c = control(a, b, Math.hypot(b.x - a.x, b.y - a.y) > 1.5 * pitch.x ? BOW * Math.hypot(b.x - a.x, b.y - a.y) : 0);
        const stroke = use === "hop" ? theme.text : use ? kindColor("averaging", theme.dark) : theme.border;
        return svg("path", {
          d: `M${a.x} ${a.y}Q${c.x} ${c.y} ${b.x} ${b.y}`,
          stroke,
          "stroke-width": use ? width : 1,
          opacity: use ? 0.62 : 0.5,
        });
      }),
    );
  }

  return {
    element,
    focus: () => (buttons.find(({ tabIndex }) => tabIndex === 0) ?? buttons[0])?.focus({ preventScroll: true }),
    /**
     * Shows a host beside its box, as it is now; null shows none.
     * @type {(host: Host | null, frame: Pick<Frame, "x" | "y" | "height"> | undefined, scene: Pick<Scene, "nStages" | "absent" | "slow" | "bound">, look: Look) => void}
     */
    show(host, frame, scene, { theme, width, height, top, bottom, parts, light, run, conditions }) {
      const isOpen = Boolean(host && frame);
      if (element.hidden === isOpen) element.hidden = !isOpen;
      if (!host || !frame) {
        shown = null;
        return;
      }
      const fitting = width < SMALL.width || height < SMALL.height ? CLOSE : WIDE;
      const isOther = fitting !== pitch || !shown || shown.name !== host.name || shown.gpu !== host.gpu || shown.members.join() !== host.members.join();
      [shown, pitch] = [host, fitting];
      if (isOther) build(host);
      drawLines(host, theme);
      const computing = new Map((run?.computing ?? []).map(({ device, kind }) => [device, kindColor(kind, theme.dark)]));
      host.members.forEach((device, at) => {
        const [button, task, condition] = [buttons[at], host.cells[at], conditions[device] ?? ""];
        const fill = task ? stageColor(task[0], scene.nStages, theme.dark) : theme.surface;
        /** @type {Partial<CSSStyleDeclaration>} */
        const style = {
          background: fill,
          color: task ? inkOn(fill) : theme.text,
          opacity: String(condition === "killed" || scene.absent.has(device) ? 0.35 : light && !light.device(device) ? 0.28 : 1),
          boxShadow: computing.has(device) ? `0 0 0 3px ${computing.get(device)}` : "",
        };
        Object.assign(button.style, style);
        there(button.firstChild).textContent = task ? String(task[0]) : "–";
        button.setAttribute("aria-pressed", String(parts.has(device)));
        button.classList.toggle("dtfm-wrong", condition === "slow" || scene.slow.has(device));
        button.classList.toggle("dtfm-binds", scene.bound.has(device));
        const role = task ? `stage ${task[0]}, pipeline ${task[1]}` : "idle";
        button.setAttribute("aria-label", [device, role, condition].filter(Boolean).join(", "));
      });
      const [wide, high] = [element.offsetWidth, element.offsetHeight];
      const left = Math.max(EDGE, Math.min(width - wide - EDGE, frame.x - wide / 2));
      const below = frame.y + frame.height / 2 + BELOW;
      const above = Math.max(top, Math.min(frame.y - frame.height / 2 - EDGE - high, height - bottom - high));
      const over = Math.max(EDGE, Math.min(above, height - EDGE - high)); // a small picture has no room but over all else
      element.style.transform = `translate(${Math.round(left)}px, ${Math.round(below + high < height - bottom ? below : over)}px)`;
    },
  };
}
