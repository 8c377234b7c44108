// Words of the field that explain themselves: marked by `data-word` in any view, explained by the lab's glossary.
import { h, targetOf } from "./dom.js";

/** @typedef {[words: Record<string, string>, also: Record<string, string>]} Tables */
/** @import { CleanUps, Listening } from "./types.d.ts" */

/**
 * A word that explains itself on hover and focus; `text` is how it reads, where it differs.
 * @type {(term: string, text?: string) => HTMLElement}
 */
export const word = (term, text = term) => h("span", { class: "dtfm-word", "data-word": term, tabindex: "0" }, text);

/**
 * The sentence of a word in any of its forms, or undefined.
 * @type {(term: string, tables: Tables) => string | undefined}
 */
export function meaning(term, [words, also]) {
  const key = term.trim().toLowerCase();
  return words[key] ?? words[also[key]] ?? words[key.replace(/s$/, "")];
}

/**
 * Shows the sentence of any `[data-word]` in the lab of `el`, at hover and focus, until clean-up. `tables()` is [words, also].
 * @type {(el: HTMLElement, tables: () => Tables, cleanUp: CleanUps) => void}
 */
export function explainWords(el, tables, cleanUp) {
  const tip = h("div", { class: "dtfm dtfm-word-tip", role: "tooltip", id: `dtfm-word-${Math.random().toString(36).slice(2)}`, hidden: true });
  /** @type {HTMLElement | null} */
  let shown = null,
    waiting = 0;

  /** @type {(target: HTMLElement) => void} */
  function show(target) {
    const sentence = meaning(target.dataset.word ?? "", tables());
    if (!sentence) return;
    hide();
    shown = target;
    tip.replaceChildren(h("b", {}, target.dataset.word), ` ${sentence}`);
    document.body.append(tip);
    tip.hidden = false;
    target.setAttribute("aria-describedby", tip.id);
    const at = target.getBoundingClientRect(),
      size = tip.getBoundingClientRect();
    const below = at.bottom + 6 + size.height <= innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
    tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
  }

  function hide() {
    clearTimeout(waiting);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.remove();
  }

  /** @type {(event: Event) => HTMLElement | null} */
  const marked = (event) => {
    const target = event.target instanceof Element ? targetOf(event).closest("[data-word]") : null;
    return target && el.closest(".dtfm-lab")?.contains(target) ? target : null;
  };
  /** @type {Listening} */
  const listeners = {
    pointerover: (event) => {
      const target = marked(event);
      if (target === shown) return;
      hide();
      if (target) waiting = window.setTimeout(show, 250, target);
    },
    focusin: (event) => {
      const target = marked(event);
      if (target?.matches(":focus-visible")) show(target);
    },
    focusout: hide,
    pointerdown: hide,
    keydown: (event) => {
      if (event.key === "Escape" && shown) {
        hide();
        event.stopPropagation();
      }
    },
    scroll: hide,
  };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  cleanUp.add(() => {
    hide();
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
  });
}
