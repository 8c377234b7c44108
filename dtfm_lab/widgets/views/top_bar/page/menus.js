// Menus of the lab: boxes of widgets that lie over it. One is open at a time; Escape and a click elsewhere close it.

const labOf = (el) => el.closest(".dtfm-lab");
const boxOf = (el, name) => labOf(el)?.querySelector(`.dtfm-menu-${name}`);

/** Opens the menu below its button, or closes it. */
export function toggleMenu(el, name, button) {
  const box = boxOf(el, name);
  const open = box && !box.classList.contains("dtfm-open");
  closeMenus(el);
  if (!open) return;
  const lab = labOf(el).getBoundingClientRect(), place = button.getBoundingClientRect();
  box.classList.add("dtfm-open");
  box.setAttribute("role", "dialog");
  box.setAttribute("aria-label", button.textContent);
  box.style.left = `${Math.max(8, Math.min(place.left - lab.left, lab.width - box.offsetWidth - 12))}px`;
  button.setAttribute("aria-expanded", "true");
  box.querySelector("select, input:not([type=hidden]), button")?.focus({ preventScroll: true });
}

/** Closes the bar's menus, and those of panes, whose buttons Python listens to. */
export function closeMenus(el, except = null) {
  const lab = labOf(el);
  if (!lab) return false;
  let any = false;
  for (const box of lab.querySelectorAll(".dtfm-menu.dtfm-open")) if (!box.contains(except)) { box.classList.remove("dtfm-open"); any = true; }
  for (const button of lab.querySelectorAll("[data-menu][aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
  for (const button of lab.querySelectorAll(".dtfm-more-button.mod-active"))
    if (!button.closest(".dtfm-more")?.contains(except)) { button.click(); any = true; }
  return any;
}

export function onMenus(el, cleanUp) {
  const onPointer = ({ target }) => {
    if (!(target instanceof Element) || target.closest(".dtfm-menu, .dtfm-more, [data-menu]")) return;
    closeMenus(el);
  };
  document.addEventListener("pointerdown", onPointer, true);
  cleanUp.add(() => document.removeEventListener("pointerdown", onPointer, true));
}
