// The menu at a device. It lies in the page's top layer, so that no box around the view can cut it off.
import { h } from "shared/dom.js";
import { roving } from "shared/roving.js";

const MARGIN = 8; // pixels to the window's edge
const GAP = 4; // to the tile

export function deviceMenu(root, act, cleanUp) {
  let at = null; // the tile it belongs to
  let shown = "";
  const head = h("div", { class: "dtfm-menu-head" });
  const list = h("div", { role: "menu" });
  const element = h("div", { class: "dtfm-menu", popover: "auto", tabindex: "-1" }, head, list);
  root.append(element);
  const items = () => [...list.querySelectorAll("button:not(:disabled)")];
  const rove = roving(list, items, () => 1);

  element.addEventListener("toggle", (event) => { if (event.newState === "closed") closed(); });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      close();
    }
    event.stopPropagation(); // the notebook has commands on these keys
  });
  const scrolled = () => { if (at) follow(); };
  window.addEventListener("scroll", scrolled, { capture: true, passive: true });
  window.addEventListener("resize", scrolled);
  cleanUp.add(() => {
    window.removeEventListener("scroll", scrolled, { capture: true });
    window.removeEventListener("resize", scrolled);
  });

  function open(tile, what) {
    at = tile;
    shown = "";
    fill(what);
    element.showPopover();
    tile.setAttribute("aria-expanded", "true");
    place();
    (items()[0] ?? element).focus({ preventScroll: true });
  }

  function close() {
    if (element.matches(":popover-open")) element.hidePopover();
  }

  function closed() {
    const focusIsLost = element.contains(document.activeElement) || document.activeElement === document.body;
    at?.removeAttribute("aria-expanded");
    if (focusIsLost && at?.isConnected) at.focus({ preventScroll: true });
    at = null;
  }

  function fill({ device, state, actions, hint }) {
    const content = JSON.stringify([device.name, state.said, actions, hint]);
    if (content === shown) return; // what is being pointed at is not taken away
    shown = content;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.do : null;
    head.replaceChildren(h("b", {}, device.name),
      h("span", {}, [`stage ${device.stages}`, `pipeline ${device.pipeline}`, device.region].filter(Boolean).join(" · ")),
      ...(state.said ? [h("span", {}, state.said)] : []), ...(hint ? [h("p", {}, hint)] : []));
    list.setAttribute("aria-label", `What to do to ${device.name}`);
    list.replaceChildren(...actions.map((action) => h("button", {
      type: "button", role: "menuitem", tabindex: "-1", "data-do": action.do, disabled: !action.possible,
      onclick: () => { close(); act(device.name, action.do); },
    }, h("b", {}, action.name), h("span", {}, action.says))));
    rove();
    if (focused) (list.querySelector(`[data-do="${focused}"]:not(:disabled)`) ?? items()[0])?.focus();
  }

  /** With its tile while the page scrolls; away with it. */
  function follow() {
    const { top, bottom } = at.getBoundingClientRect();
    if (bottom < 0 || top > window.innerHeight) close();
    else place();
  }

  function place() {
    const tile = at.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = element;
    const [right, bottom] = [window.innerWidth - width - MARGIN, window.innerHeight - height - MARGIN];
    let [left, top] = [tile.left, tile.bottom + GAP];
    if (top > bottom) top = tile.top - height - GAP;
    if (top < MARGIN) { // neither below nor above: beside
      top = Math.min(tile.top, bottom);
      left = tile.right + GAP <= right ? tile.right + GAP : tile.left - width - GAP;
    }
    element.style.left = `${Math.max(MARGIN, Math.min(left, right))}px`;
    element.style.top = `${Math.max(MARGIN, top)}px`;
  }

  return { open, close, update: fill, get isOpenFor() { return at?.dataset.device ?? null; } };
}
