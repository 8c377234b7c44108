// The menu of faults. It lies in the page's top layer, so that no box around the view can cut it off.
import { focusedIn, h } from "shared/dom.js";
import { roving } from "shared/roving.js";
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Menu } from "../types.d.ts" */

const MARGIN = 8; // pixels to the window's edge
const GAP = 4; // to the button

/** @type {(root: HTMLElement, button: HTMLElement, act: (device: string, action: string) => void, choose: (name: string) => void, cleanUp: CleanUps) => { toggle: () => void, close: () => void, fill: (menu: Menu) => void }} */
export function faultMenu(root, button, act, choose, cleanUp) {
  let shown = "",
    listed = "";
  /** @type {HTMLSelectElement} */
  const pick = h("select", { "aria-label": "Device to disturb", onchange: () => choose(pick.value) });
  const said = h("p", { "aria-live": "polite" });
  const list = h("div", { role: "menu" });
  const element = h("div", { class: "dtfm-faults", popover: "auto", tabindex: "-1" }, h("label", {}, "Device ", pick), said, list);
  root.append(element);
  /** @type {() => HTMLElement[]} */
  const items = () => [...list.querySelectorAll("button:not(:disabled)")];
  const rove = roving(list, items, () => 1);
  const isOpen = () => element.matches(":popover-open");

  element.addEventListener("toggle", (/** @type {ToggleEvent} */ event) => {
    button.setAttribute("aria-expanded", String(event.newState === "open"));
    if (event.newState === "closed" && (element.contains(document.activeElement) || document.activeElement === document.body))
      button.focus({ preventScroll: true });
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
    event.stopPropagation(); // the notebook has commands on these keys
  });
  const moved = () => {
    if (isOpen()) place();
  };
  window.addEventListener("scroll", moved, { capture: true, passive: true });
  window.addEventListener("resize", moved);
  cleanUp.add(() => {
    window.removeEventListener("scroll", moved, { capture: true });
    window.removeEventListener("resize", moved);
  });

  function toggle() {
    if (isOpen()) return close();
    element.showPopover();
    place();
    (items()[0] ?? pick).focus({ preventScroll: true });
  }

  function close() {
    if (isOpen()) element.hidePopover();
  }

  /** @type {(menu: Menu) => void} */
  function fill({ devices, device, state, actions, hint }) {
    const names = JSON.stringify(devices.map(({ name, condition }) => [name, condition]));
    if (names !== listed) {
      listed = names;
      pick.replaceChildren(
        ...devices.map((one) =>
          h("option", { value: one.name }, [`${one.name}, stage ${one.stages}, pipeline ${one.pipeline}`, one.condition].filter(Boolean).join(": ")),
        ),
      );
    }
    if (pick.value !== device.name) pick.value = device.name;
    const busy = typeof state.busy === "number" ? `${(state.busy * 100).toFixed(0)} % of the iteration computing` : "";
    const now = hint || [state.said, busy].filter(Boolean).join(" · ");
    if (said.textContent !== now) said.textContent = now;
    const content = JSON.stringify([device.name, actions, hint]);
    if (content === shown) return; // never replace a button while it is pointed at or pressed
    shown = content;
    const focused = focusedIn(list)?.dataset.do ?? null;
    list.setAttribute("aria-label", `What to do to ${device.name}`);
    list.replaceChildren(
      ...actions.map((action) =>
        h(
          "button",
          {
            type: "button",
            role: "menuitem",
            tabindex: "-1",
            "data-do": action.do,
            disabled: !action.possible,
            title: action.possible ? "" : hint || `${device.name} cannot be ${action.done} now`,
            onclick: () => {
              close();
              act(device.name, action.do);
            },
          },
          h("b", {}, action.name),
          h("span", {}, action.says),
        ),
      ),
    );
    rove();
    if (focused) (list.querySelector(`[data-do="${focused}"]:not(:disabled)`) ?? items()[0])?.focus();
  }

  function place() {
    const near = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = element;
    const [right, bottom] = [window.innerWidth - width - MARGIN, window.innerHeight - height - MARGIN];
    const top = near.bottom + GAP > bottom ? near.top - height - GAP : near.bottom + GAP;
    element.style.left = `${Math.max(MARGIN, Math.min(near.left, right))}px`;
    element.style.top = `${Math.max(MARGIN, Math.min(top, bottom))}px`;
  }

  return { toggle, close, fill };
}
