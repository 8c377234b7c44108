// Explains marked words where they stand, and lists all of them at the key "?".
import { cleanUps, h, onTraits, targetOf } from "shared/dom.js";
import { dialog } from "shared/dialog.js";
import { explainWords } from "shared/words.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

const TYPING = "input, textarea, select, [contenteditable=true]";

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const search = h("input", { type: "search", placeholder: "Find a word", "aria-label": "Find a word", oninput: fill });
  const list = h("dl", { class: "dtfm-words-list", tabindex: "0", "aria-label": "Words" });
  const close = h("button", { type: "button", class: "dtfm-quiet", onclick: () => box.close() }, "Close");
  const head = h("div", { class: "dtfm-dialog-head" }, h("h2", {}, "Words"), search, close);
  const box = dialog(el, { className: "dtfm-words", label: "Words", onClose: closed }, head, list);
  cleanUp.add(box.remove);
  explainWords(el, () => [model.get("words"), model.get("also")], cleanUp);

  function fill() {
    const wanted = search.value.trim().toLowerCase();
    const found = Object.entries(model.get("words"))
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .filter(([word, sentence]) => word.includes(wanted) || (wanted.length > 2 && sentence.toLowerCase().includes(wanted)));
    list.replaceChildren(...found.flatMap(([word, sentence]) => [h("dt", {}, word), h("dd", {}, sentence)]));
    if (!found.length) list.replaceChildren(h("dd", {}, `No word here has “${search.value.trim()}” in it.`));
  }

  function closed() {
    if (!model.get("is_open")) return;
    model.set("is_open", false);
    model.save_changes();
  }

  function onOpen() {
    if (!model.get("is_open")) return box.close();
    search.value = "";
    fill();
    box.open(search);
  }

  /** @type {(event: KeyboardEvent) => void} */
  function onKey(event) {
    const lab = el.closest(".dtfm-lab");
    const here = document.activeElement === document.body || lab?.contains(targetOf(event));
    if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || !lab?.offsetParent || !here || targetOf(event).closest?.(TYPING)) return;
    event.preventDefault();
    event.stopPropagation();
    model.set("is_open", !model.get("is_open"));
    model.save_changes();
  }

  document.addEventListener("keydown", onKey, true);
  cleanUp.add(() => document.removeEventListener("keydown", onKey, true));
  onTraits(model, ["is_open"], onOpen, cleanUp);
  fill();
  requestAnimationFrame(onOpen); // the element stands in the page only after this
  return cleanUp.run;
}

export default view(render);
