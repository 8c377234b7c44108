// The code that does the same as the screen: a button that asks for it and copies it, and a box to select it from.
import { cleanUps, frame, h, onTraits } from "shared/dom.js";

const COPIED_MS = 4000;

function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = frame("dtfm-as-python", "Copy as Python");
  root.removeAttribute("tabindex"); // the button and the box take the focus
  const button = h("button", { type: "button", onclick: ask, title: "The cells that do the same as what is on the screen" },
    "Copy as Python");
  const hide = h("button", { type: "button", onclick: put_away, hidden: true }, "Hide");
  const told = h("span", { class: "dtfm-as-python-told", role: "status" });
  const box = h("pre", { class: "dtfm-as-python-code", tabindex: "0", "aria-label": "The code", hidden: true });
  box.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "a") { event.preventDefault(); select(); }
  });
  root.append(h("div", { class: "dtfm-as-python-bar" }, button, hide, told), box);
  el.append(root);
  let wanted = false;
  let fade = 0;
  cleanUp.add(() => clearTimeout(fade));

  function ask() {
    wanted = true;
    model.send({ kind: "make" });
  }

  function put_away() {
    model.set("code", "");
    model.save_changes();
  }

  function select() {
    const range = document.createRange();
    range.selectNodeContents(box);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  function tell(text) {
    told.textContent = text;
    clearTimeout(fade);
    fade = setTimeout(() => { told.textContent = model.get("problem"); }, COPIED_MS);
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(model.get("code"));
      tell("copied");
    } catch { // no secure context, or the page may not
      select();
      let done = false;
      try { done = document.execCommand("copy"); } catch { /* told below */ }
      tell(done ? "copied" : "selected: press Ctrl+C to copy");
    }
  }

  function show() {
    const code = model.get("code");
    const busy = model.get("busy");
    button.disabled = busy;
    button.textContent = busy ? "Writing…" : "Copy as Python";
    box.textContent = code;
    box.hidden = hide.hidden = !code;
    told.textContent = model.get("problem");
    told.classList.toggle("dtfm-problem", Boolean(model.get("problem")));
    if (code && !busy && wanted) { wanted = false; copy(); }
  }

  onTraits(model, ["code", "busy", "problem"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default { render };
