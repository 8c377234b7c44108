// Python answers within a moment, or the page says that it is busy: what was pressed meanwhile is done once it is free.
/** @import { CleanUps, Model } from "shared/types.d.ts" */
/** @import { Traits } from "../types.d.ts" */

export const SLOW_MS = 400; // after which a page that does not answer seems broken

/**
 * Asks Python for a sign of life: `ask` at what a person does, `answered` when it comes. `show` tells whether it is late.
 * @type {(send: () => void, show: (isLate: boolean) => void, clock?: { setTimeout: (work: () => void, ms: number) => any, clearTimeout: (id: any) => void }) => { ask: () => void, answered: () => void }} any: a timer's, which Node and browsers type otherwise
 */
export function signOfLife(send, show, clock = globalThis) {
  /** @type {any} any: see above */
  let timer = null;
  return {
    ask() {
      if (timer !== null) return; // one answer is enough
      try {
        send();
      } catch {
        return; // there is no kernel, which the page says by itself
      }
      timer = clock.setTimeout(() => show(true), SLOW_MS);
    },
    answered() {
      if (timer !== null) clock.clearTimeout(timer);
      timer = null;
      show(false);
    },
  };
}

/**
 * `handler(isLate)` when Python takes long to answer a click or a key in the lab, and when it has answered.
 * @type {(model: Model<Traits>, el: HTMLElement, handler: (isLate: boolean) => void, cleanUp: CleanUps) => void}
 */
export function onWaiting(model, el, handler, cleanUp) {
  const { ask, answered } = signOfLife(() => model.send({ kind: "ping" }), handler);
  /** @type {(event: Event) => void} */
  const onInput = ({ target }) => {
    if (target instanceof Node && el.closest(".dtfm-lab")?.contains(target)) ask();
  };
  /** @type {(message: { kind?: string }) => void} */
  const onMessage = (message) => {
    if (message?.kind === "pong") answered();
  };
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, onInput, true);
  model.on("msg:custom", onMessage);
  cleanUp.add(() => {
    for (const kind of ["pointerdown", "keydown"]) document.removeEventListener(kind, onInput, true);
    model.off("msg:custom", onMessage);
  });
}
