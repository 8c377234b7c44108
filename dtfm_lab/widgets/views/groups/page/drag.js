// Dragging a device into another group: every group shows the cost of a drop there, which Python computes.
import { h, svg, targetOf } from "shared/dom.js";
import { seconds } from "shared/axis.js";
import { change, verdict } from "./words.js";
import { there } from "shared/there.js";
/** @import { tooltip } from "shared/canvas.js" */
/** @import { Point } from "shared/types.d.ts" */
/** @import { makeDrawing } from "./drawing.js" */
/** @import { Held, Offers, Places, Pressed, Step } from "../types.d.ts" */

const BEGINS = 5; // pixels

/**
 * `state()` is {step, canMove, offers, places}; `send` takes what Python is to know; `drop` is said to the reader.
 * A press that does not become a drag is `press(target, event)`.
 * @type {(box: HTMLElement, drawing: ReturnType<typeof makeDrawing>, on: { state: () => { step: Step, canMove: boolean, offers: Offers, places: Places }, send: (content: object) => void, press: (target: Pressed, event: PointerEvent) => void, tip: ReturnType<typeof tooltip> }) => { show: () => void, cancel: () => void, dragging: () => boolean }}
 */
export function makeDrag(box, drawing, { state, send, press, tip }) {
  const badges = h("div", { class: "dtfm-offers", "aria-hidden": "true" });
  box.append(badges);
  /** @type {Held | null} */
  let held = null; // {name, x, y, dragging, target}

  /** @type {(event: PointerEvent) => Point} */
  const local = (event) => {
    const { left, top } = drawing.root.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  drawing.root.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const { x, y } = local(event);
    held = { ...drawing.under(x, y), edge: targetOf(event).closest?.(".edge"), x, y, dragging: false, target: null };
    held.name = held.device;
  });

  drawing.root.addEventListener("pointermove", (event) => {
    if (!held?.name || !event.buttons) return;
    const { x, y } = local(event);
    const { step, canMove, places } = state();
    if (!held.dragging) {
      if (!canMove || step === "a" || Math.hypot(x - held.x, y - held.y) < BEGINS) return;
      held.dragging = true;
      held.stage = places.get(held.name)?.stage ?? -1;
      drawing.root.setPointerCapture(event.pointerId);
      drawing.root.classList.add("dragging");
      there(drawing.element(held.name)).classList.add("lifted");
      send({ kind: "lift", device: held.name });
      show();
    }
    const target = drawing.under(x, y, held.name);
    held.target = target && target.stage !== held.stage ? target : null;
    const element = drawing.element(held.name);
    drawing.over.replaceChildren(ghost(there(element), x, y));
    held.at = { x, y };
    tell();
  });

  drawing.root.addEventListener("pointerup", (event) => {
    const was = held;
    end();
    if (!was) return;
    if (!was.dragging) return press(was, event);
    if (was.target?.device) send({ kind: "drop", device: was.name, partner: was.target.device });
    else if (was.target) send({ kind: "drop", device: was.name, stage: was.target.stage });
  });
  drawing.root.addEventListener("pointercancel", end);

  function end() {
    if (held?.dragging) {
      drawing.over.replaceChildren();
      drawing.root.classList.remove("dragging");
      drawing.element(held.name ?? "")?.classList.remove("lifted");
      tip.hide();
    }
    held = null;
    show();
  }

  /** @type {(element: Element, x: number, y: number) => SVGElement} */
  function ghost(element, x, y) {
    const name = there(there(held).name);
    const { r } = drawing.spot(name);
    return svg(
      "g",
      { class: "ghost", style: there(element.getAttribute("style")).replace(/transform:[^;]*;/, "") },
      svg("circle", { cx: x, cy: y, r: Math.max(8, r) }),
      svg("text", { class: "halo", x, y: y - 14, "text-anchor": "middle" }, name),
    );
  }

  /** The price under the pointer, which may be known only while it rests there. */
  function tell() {
    const { offers } = state();
    const { name, target, at } = there(held);
    const { x, y } = there(at);
    const partner = target?.device;
    for (const badge of badges.children) badge.classList.toggle("target", !partner && Number(badge.dataset.stage) === target?.stage);
    if (!partner) return tip.hide(); // a group's badge says it
    if (offers.device !== name) return tip.show("computing the cost …", x, y);
    const [cost, difference] = offers.devices[partner] ?? [];
    if (cost === undefined) return tip.hide();
    tip.show(`with ${partner}: ${verdict(difference, offers.now_s).sign} ${seconds(cost)}, ${change(difference, offers.now_s)}`, x, y);
  }

  /** @type {(stage: number) => import("../types.d.ts").Offer | undefined} */
  const offerOf = (stage) => state().offers.groups?.find((place) => place.stage === stage);

  /** A badge per group, while something is dragged. */
  function show() {
    badges.replaceChildren();
    if (!held?.dragging) return;
    const { offers } = state();
    const ready = offers.device === held.name;
    const { groups, strip } = drawing.placed();
    const spots = groups.map(({ x, y }, stage) => ({ x, y, stage, down: drawing.radiusOf(stage) }));
    if (strip) spots.push({ x: strip.x + strip.width / 2, y: strip.y, stage: -1, down: strip.height / 2 - 8 });
    for (const { x, y, stage, down } of spots) {
      if (stage === held.stage) continue;
      const offer = offerOf(stage);
      if (ready && !offer) continue;
      const price = ready ? offer : undefined;
      const { kind, sign } = price ? verdict(price.change_s, offers.now_s) : { kind: "waiting", sign: "" };
      badges.append(
        h(
          "div",
          { class: `dtfm-offer ${kind}`, "data-stage": stage, style: `left:${x}px;top:${y + Math.min(down, 44) - 6}px` },
          h("span", {}, price ? seconds(price.cost_s) : "…"),
          price ? h("b", {}, `${sign} ${change(price.change_s, offers.now_s)}`) : null,
          price ? h("i", {}, `with ${price.partner}`) : null,
        ),
      );
    }
    if (held.at) tell();
  }

  return { show, cancel: end, dragging: () => Boolean(held?.dragging) };
}
