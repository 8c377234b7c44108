// What the views of one lab tell each other on the page, without the kernel: what is pointed at, and the time played.
/** @import { CleanUps, Moment, Pointed } from "./types.d.ts" */

/** @type {(el: Element) => Element} */
const rootOf = (el) => el.closest(".dtfm-lab") ?? el;

/** @type {(el: Element, name: string, detail: object) => void} */
function send(el, name, detail) {
  document.dispatchEvent(new CustomEvent(name, { detail: { from: el, root: rootOf(el), ...detail } }));
}

/**
 * `handler(detail)` for what another view, or this one, of the same lab has sent, until clean-up.
 * @type {(el: Element, name: string, handler: (detail: { from: Element, what: Pointed, time: Moment }) => void, cleanUp: CleanUps) => void}
 */
function receive(el, name, handler, cleanUp) {
  /** @type {(event: Event) => void} */
  const listen = (event) => {
    const { detail } = /** @type {CustomEvent} */ (event);
    if (detail.root === rootOf(el)) handler(detail);
  };
  document.addEventListener(name, listen);
  cleanUp.add(() => document.removeEventListener(name, listen));
}

/**
 * Says what is pointed at: {devices: [names]}, {stage}, {replica} or {link: [from, to]}; null for nothing any more.
 * @type {(el: Element, what: Pointed) => void}
 */
export function shine(el, what) {
  pointedAt = null;
  send(el, "dtfm-shine", { what });
}
/** @type {EventTarget | null} */
let pointedAt = null; // the element of which `shines` said so last

/**
 * The handler of an element that says what it stands for while it is pointed at: until it is left, hidden or taken away.
 * @type {(el: Element, what: Pointed) => { onpointerenter: (event: { currentTarget: Element }) => void }}
 */
export const shines = (el, what) => ({
  onpointerenter({ currentTarget }) {
    shine(el, what);
    pointedAt = currentTarget;
    const look = () => {
      if (pointedAt !== currentTarget) return; // something else is pointed at since
      if (currentTarget.matches(":hover"))
        requestAnimationFrame(look); // one that is taken away is told of no leave
      else shine(el, null);
    };
    requestAnimationFrame(look);
  },
});

/**
 * `handler(what, isOwn)` whenever something else is pointed at; `isOwn` where this very view has said so.
 * @type {(el: Element, handler: (what: Pointed, isOwn: boolean) => void, cleanUp: CleanUps) => void}
 */
export const onShine = (el, handler, cleanUp) => receive(el, "dtfm-shine", ({ what, from }) => handler(what, from === el), cleanUp);

/**
 * Asks the pictures of this lab to pulse where the plan is limited.
 * @type {(el: Element) => void}
 */
export const pulse = (el) => send(el, "dtfm-pulse", {});

/**
 * `handler()` whenever the pictures of this lab are asked to pulse.
 * @type {(el: Element, handler: () => void, cleanUp: CleanUps) => void}
 */
export const onPulse = (el, handler, cleanUp) => receive(el, "dtfm-pulse", () => handler(), cleanUp);

/**
 * Says which moment of the iteration is shown: {t_s, playing}; null for none.
 * @type {(el: Element, time: Moment) => void}
 */
export const tellTime = (el, time) => send(el, "dtfm-time", { time });

/**
 * `handler(time)` at every moment that is played.
 * @type {(el: Element, handler: (time: Moment) => void, cleanUp: CleanUps) => void}
 */
export const onTime = (el, handler, cleanUp) => receive(el, "dtfm-time", ({ time }) => handler(time), cleanUp);

/** Whether the reader has asked for little motion. */
export const isStill = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
