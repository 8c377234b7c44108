// The bar over the lab: its steps with their states, and the page's theme told to Python.
import { cleanUps, frame, h, onTraits } from "shared/dom.js";
import { onTheme } from "shared/theme.js";

const SIGNS = { open: "", done: "✓", stale: "↻", busy: "…" };
const SAID = { open: "not yet", done: "done", stale: "out of date", busy: "at work" };

function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = frame("dtfm-shell-bar", "Steps of the lab", "navigation");
  root.removeAttribute("tabindex"); // its buttons take the focus
  el.append(root);

  const lab = () => el.closest(".dtfm-lab");
  const sectionOf = (name) => lab()?.querySelector(`.dtfm-section-${name}`);

  function jump(name) {
    const section = sectionOf(name);
    if (!section) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    section.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
    section.focus({ preventScroll: true });
  }

  function show() {
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const buttons = model.get("steps").map(({ name, title, kind, words }, at) => h("button", {
      type: "button", class: `dtfm-shell-bar-${kind}`, "data-name": name, "aria-keyshortcuts": `Alt+${at + 1}`,
      title: `${words || `${title}: ${SAID[kind]}`} (Alt+${at + 1})`,
      "aria-label": `${at + 1}, ${title}: ${SAID[kind]}. ${words}`, onclick: () => jump(name),
    }, h("i", { "aria-hidden": "true" }, SIGNS[kind] || String(at + 1)), title));
    root.replaceChildren(...buttons);
    if (focused) root.querySelector(`[data-name="${focused}"]`)?.focus({ preventScroll: true });
    nameSections();
  }

  /** Sections are plain boxes of widgets; what they are called is said here. */
  function nameSections() {
    for (const { name, title } of model.get("steps")) {
      const section = sectionOf(name);
      if (!section || section.getAttribute("role")) continue;
      section.setAttribute("role", "region");
      section.setAttribute("aria-label", title);
      section.setAttribute("tabindex", "-1");
      section.setAttribute("data-lm-suppress-shortcuts", "true"); // letters typed here are no commands of the notebook
    }
  }

  function onKey(event) {
    if (!event.altKey || event.ctrlKey || event.metaKey || !lab()?.contains(event.target)) return;
    const step = model.get("steps")[Number(event.code.replace("Digit", "")) - 1];
    if (!step) return;
    event.preventDefault();
    jump(step.name);
  }
  document.addEventListener("keydown", onKey);
  cleanUp.add(() => document.removeEventListener("keydown", onKey));

  /** Any page: JupyterLab says it on its body; elsewhere the background says it. */
  function isDark() {
    const said = document.body.dataset.jpThemeLight;
    if (said) return said === "false";
    const [red, green, blue] = (getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    return 0.299 * red + 0.587 * green + 0.114 * blue < 128 && getComputedStyle(document.body).backgroundColor !== "rgba(0, 0, 0, 0)";
  }
  function sendTheme() {
    if (model.get("dark") === isDark()) return;
    model.set("dark", isDark());
    model.save_changes();
  }

  onTraits(model, ["steps"], show, cleanUp);
  onTheme(sendTheme, cleanUp);
  show();
  sendTheme();
  const later = setTimeout(nameSections, 500); // sections come into the page after this bar
  cleanUp.add(() => clearTimeout(later));
  return cleanUp.run;
}

export default { render };
