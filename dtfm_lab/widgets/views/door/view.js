// The door: cards with pictures of real plans, every bundled network with a small picture, and a file.
import { cleanUps, h, onTraits } from "shared/dom.js";
import { dialog } from "shared/dialog.js";
import { dropZone } from "shared/files.js";
import { onTheme, readTheme } from "shared/theme.js";
import { remembers } from "shared/memory.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const wasClosed = remembers("door-closed");
  const gallery = h("div", { class: "dtfm-door-cards" });
  const list = h("div", { class: "dtfm-door-list", hidden: true });
  const body = h("div", { class: "dtfm-door-body" }, gallery, list);
  const line = h("p", { class: "dtfm-door-line", role: "status" });
  const all = h("button", { type: "button", class: "dtfm-quiet", "aria-expanded": "false", onclick: () => showAll(Boolean(list.hidden)) });
  /** @type {HTMLInputElement} */
  const file = h("input", { type: "file", multiple: true, hidden: true, accept: model.get("suffixes"), onchange: () => openFiles([...(file.files ?? [])]) });
  const pick = h("button", { type: "button", class: "dtfm-quiet dtfm-door-file", onclick: () => file.click() }, "or drop a file: YAML, JSON, CSV, npz");
  const box = dialog(
    el,
    { className: "dtfm-door", label: "Open a network", onClose: closed },
    h(
      "div",
      { class: "dtfm-dialog-head" },
      h("h2", {}, "Train one model on many machines far apart"),
      h("button", { type: "button", class: "dtfm-quiet", onclick: () => box.close() }, "Close"),
    ),
    h("p", {}, "Open a network to see its plan at once. Then drag a link's label and watch the plan change."),
    body,
    h("div", { class: "dtfm-door-foot" }, all, h("span", { class: "dtfm-grow" }), pick, file),
    line,
  );
  cleanUp.add(box.remove);
  dropZone(
    box.card,
    sendFiles,
    (text) => {
      line.textContent = text;
    },
    cleanUp,
  );

  /** @type {(content: object, buffers?: ArrayBuffer[]) => void} */
  function send(content, buffers) {
    box.close();
    model.send(content, undefined, buffers);
  }

  /** @type {(names: string[], buffers: ArrayBuffer[]) => void} */
  function sendFiles(names, buffers) {
    send({ kind: "files", names }, buffers);
  }

  /** @type {(files: File[]) => Promise<void>} */
  async function openFiles(files) {
    if (!files.length) return;
    sendFiles(
      files.map((one) => one.name),
      await Promise.all(files.map((one) => one.arrayBuffer())),
    );
    file.value = "";
  }

  /** @type {(shown: boolean) => void} */
  function showAll(shown) {
    list.hidden = !shown;
    body.classList.toggle("dtfm-door-all", shown);
    gallery.hidden = shown;
    all.setAttribute("aria-expanded", String(shown));
    nameAll();
    if (shown) list.querySelector("button")?.focus();
  }

  function nameAll() {
    const count = model.get("networks").length;
    all.textContent = list.hidden ? `all ${count || ""} networks` : "show pictures";
    all.hidden = !count;
  }

  function closed() {
    wasClosed.set();
    if (!model.get("is_open")) return;
    model.set("is_open", false);
    model.save_changes();
  }

  function fill() {
    const { dark } = readTheme(box.box);
    gallery.replaceChildren(
      ...model.get("cards").map(({ name, title, words, picture, picture_dark }) => {
        const card = h(
          "button",
          { type: "button", class: "dtfm-door-card", onclick: () => send({ kind: "choose", name }) },
          h("span", { class: "dtfm-door-picture", "aria-hidden": "true" }),
          h("b", {}, title),
          h("span", {}, words),
        );
        /** @type {HTMLElement} */ (card.firstChild).innerHTML = dark ? picture_dark : picture;
        return card;
      }),
    );
  }

  function fillList() {
    list.replaceChildren(
      ...model.get("networks").map(({ name, devices, words, picture }) => {
        const row = h(
          "button",
          { type: "button", class: "dtfm-door-row", onclick: () => send({ kind: "choose", name }) },
          h("span", { class: "dtfm-door-small", "aria-hidden": "true" }),
          h("span", {}, h("b", {}, name), ` ${devices} devices`, h("span", {}, words)),
        );
        /** @type {HTMLElement} */ (row.firstChild).innerHTML = picture;
        return row;
      }),
    );
    nameAll();
  }

  function onOpen() {
    if (!el.isConnected) return undefined;
    if (!model.get("is_open")) return box.close();
    line.textContent = "";
    showAll(false);
    box.open();
  }

  function onOffer() {
    if (!el.isConnected || !model.get("offered") || model.get("is_open") || wasClosed.has()) return;
    model.set("is_open", true);
    model.save_changes();
  }

  onTraits(model, ["cards"], fill, cleanUp); // only once: a card must not be replaced while it is pressed
  onTraits(model, ["networks"], fillList, cleanUp);
  onTheme(fill, cleanUp);
  onTraits(model, ["is_open"], onOpen, cleanUp);
  onTraits(model, ["offered"], onOffer, cleanUp);
  fill();
  fillList();
  let frame = requestAnimationFrame(function begin() {
    // before the element is in the page, there is no lab to cover
    if (!el.isConnected) {
      frame = requestAnimationFrame(begin);
      return;
    }
    onOffer();
    onOpen();
  });
  cleanUp.add(() => cancelAnimationFrame(frame));
  return cleanUp.run;
}

export default view(render);
