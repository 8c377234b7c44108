// A small card that points at one thing of the lab after another, and never covers what it points at.
import { cleanUps, h, onResize, onTraits } from "shared/dom.js";

const [GAP, LOOK_AGAIN_MS] = [14, 400]; // targets come, go and move while the lab works

function render({ model, el }) {
  const cleanUp = cleanUps();
  const press = (kind) => () => model.send({ kind });
  const count = h("span", { class: "dtfm-tour-count" });
  const title = h("b", {});
  const words = h("p", {});
  const note = h("p", { class: "dtfm-tour-note", role: "status" });
  const act = h("button", { type: "button", onclick: press("act") });
  const back = h("button", { type: "button", class: "dtfm-quiet", onclick: press("back") }, "Back");
  const next = h("button", { type: "button", onclick: press("next") });
  const leave = h("button", { type: "button", class: "dtfm-quiet dtfm-tour-leave", "aria-label": "Leave the tour", title: "Leave the tour (Esc)", onclick: press("leave") }, "✕");
  const card = h("div", { class: "dtfm dtfm-tour", role: "dialog", "aria-label": "Tour", tabindex: "-1", "data-lm-suppress-shortcuts": "true", hidden: true },
    h("header", {}, count, leave), title, words, note, h("footer", {}, back, h("span", { class: "dtfm-grow" }), act, next));
  const ring = h("div", { class: "dtfm-tour-ring", "aria-hidden": "true", hidden: true });
  el.append(card);
  let timer = 0;

  function show() {
    const step = model.get("step"), on = Boolean(step.title), first = card.hidden && on;
    card.hidden = !on;
    clearInterval(timer);
    if (!on) { ring.hidden = true; return; }
    const lab = el.closest(".dtfm-lab");
    if (lab && card.parentNode !== lab) lab.append(ring, card);
    const [at, of, done] = [model.get("at"), model.get("count"), model.get("done")];
    count.textContent = `${at + 1} of ${of}`;
    title.textContent = step.title;
    words.textContent = done ? step.after || step.words : step.words;
    note.textContent = model.get("note");
    act.textContent = step.act;
    act.hidden = done || !step.act;
    back.hidden = at === 0;
    next.textContent = at === of - 1 ? "Finish" : done ? "Next" : "Skip";
    next.classList.toggle("dtfm-primary", done);
    next.classList.toggle("dtfm-quiet", !done);
    act.classList.add("dtfm-primary");
    place();
    timer = setInterval(place, LOOK_AGAIN_MS);
    if (first) card.focus({ preventScroll: true });
  }

  const seen = (one) => one.checkVisibility?.() !== false && one.getClientRects().length && one.getBoundingClientRect().width > 0;

  /** The part of the lab that is on the screen: a notebook may have scrolled some of it away. */
  function visiblePart(lab) {
    const part = { l: 0, t: 0, r: innerWidth, b: innerHeight };
    for (let one = lab; one && one !== document.body; one = one.parentElement) {
      if (one !== lab && getComputedStyle(one).overflowY === "visible") continue;
      const rect = one.getBoundingClientRect();
      Object.assign(part, { l: Math.max(part.l, rect.left), t: Math.max(part.t, rect.top), r: Math.min(part.r, rect.right), b: Math.min(part.b, rect.bottom) });
      if (getComputedStyle(one).position === "fixed") break;
    }
    return part;
  }

  /** Beside what it points at: the first side with room. Where no side has any, in the corner that covers least of it. */
  function place() {
    const lab = el.closest(".dtfm-lab");
    if (!lab || card.hidden || !lab.offsetParent && getComputedStyle(lab).position !== "fixed") return;
    const scale = lab.getBoundingClientRect().width / lab.offsetWidth || 1; // of larger type
    const home = lab.getBoundingClientRect();
    const target = (model.get("step").targets ?? []).map((selector) => [...lab.querySelectorAll(selector)].find(seen)).find(Boolean);
    const room = visiblePart(lab), own = { w: card.offsetWidth, h: card.offsetHeight };
    const [x0, y0, width, height] = [(room.l - home.left) / scale, (room.t - home.top) / scale, (room.r - home.left) / scale, (room.b - home.top) / scale];
    ring.hidden = !target;
    let [left, top] = [width - own.w - GAP, height - own.h - GAP - 30];
    if (target) {
      const rect = target.getBoundingClientRect();
      const box = { l: Math.max(0, (rect.left - home.left) / scale), t: Math.max(0, (rect.top - home.top) / scale), r: Math.min(lab.clientWidth, (rect.right - home.left) / scale), b: Math.min(lab.clientHeight, (rect.bottom - home.top) / scale) };
      Object.assign(ring.style, { left: `${box.l - 4}px`, top: `${box.t - 4}px`, width: `${box.r - box.l + 8}px`, height: `${box.b - box.t + 8}px` });
      const [x, y] = [Math.min(Math.max(x0 + GAP, (box.l + box.r - own.w) / 2), width - own.w - GAP), Math.min(Math.max(y0 + GAP, (box.t + box.b - own.h) / 2), height - own.h - GAP)];
      const sides = [[x, box.b + GAP], [box.r + GAP, y], [box.l - GAP - own.w, y], [x, box.t - GAP - own.h]];
      const corners = [[GAP, height - own.h - GAP - 30], [width - own.w - GAP, height - own.h - GAP - 30], [GAP, y0 + 110], [width - own.w - GAP, y0 + 110]];
      const covered = ([a, b]) => Math.max(0, Math.min(a + own.w, box.r) - Math.max(a, box.l)) * Math.max(0, Math.min(b + own.h, box.b) - Math.max(b, box.t));
      const inside = ([a, b]) => a >= x0 + GAP / 2 && b >= y0 + GAP / 2 && a + own.w <= width && b + own.h <= height;
      [left, top] = sides.find(inside) ?? corners.sort((one, other) => covered(one) - covered(other))[0];
    }
    card.style.left = `${left}px`;
    card.style.top = `${top}px`;
  }

  card.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    press("leave")();
  });
  onTraits(model, ["step", "at", "count", "done", "note"], show, cleanUp);
  onResize(document.documentElement, place, cleanUp);
  cleanUp.add(() => { clearInterval(timer); card.remove(); ring.remove(); });
  requestAnimationFrame(show); // the element stands in the page only after this
  return cleanUp.run;
}

export default { render };
