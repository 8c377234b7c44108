// A placement arranged by hand: a row a stage, a column a pipeline; two clicks, or a drag, exchange two devices.
import { seconds } from "shared/axis.js";
import { shine } from "shared/bus.js";
import { cleanUps, frame, h, oncePerFrame, onTraits } from "shared/dom.js";
import { roving } from "shared/roving.js";
import { inkOn, onTheme, readTheme, stageColor } from "shared/theme.js";

const SAME = 1e-9;

function render({ model, el }) {
  const cleanUp = cleanUps();
  let held = null; // name of the device that was clicked first
  let base = 0, since = performance.now();

  const clock = h("b");
  const numbers = h("div", { class: "dtfm-hand-numbers" });
  const meter = h("div", { class: "dtfm-hand-meter", role: "meter", "aria-label": "Score", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i"));
  const board = h("div", { class: "dtfm-hand-board", role: "group", "aria-label": "Devices by stage and pipeline; choose two to exchange them" });
  const note = h("div", { class: "dtfm-hand-note", "aria-live": "polite" });
  const empty = h("div", { class: "dtfm-empty" });
  const root = frame("dtfm-arrange", "Arrange the devices by hand");
  root.removeAttribute("tabindex"); // its devices take the focus
  root.append(numbers, meter, board, note, empty);
  el.append(root);
  const devices = () => [...board.querySelectorAll("button")];
  const rove = roving(board, devices, () => model.get("state").rows?.[0].length ?? 1);
  const draw = oncePerFrame(update, cleanUp);

  function choose(name) {
    if (held && held !== name) model.send({ kind: "swap", devices: [held, name] });
    held = held ? null : name;
    mark();
  }

  function mark() {
    const hinted = model.get("hinted");
    for (const button of devices()) {
      button.setAttribute("aria-pressed", String(button.dataset.name === held));
      button.classList.toggle("dtfm-hinted", hinted.includes(button.dataset.name));
    }
    note.textContent = held ? `${held}: choose the device that it changes places with; Esc lets go.` : model.get("note") || "Choose two devices, or drag one onto another: they change places.";
  }

  function device(name, color) {
    return h("button", {
      type: "button", draggable: "true", tabindex: "-1", "data-name": name, title: name,
      style: color ? `background:${color};color:${inkOn(color)}` : null, class: color ? null : "dtfm-idle",
      onclick: () => choose(name),
      ondragstart: (event) => { held = name; event.dataTransfer.setData("text/plain", name); event.dataTransfer.effectAllowed = "move"; mark(); },
      ondragover: (event) => { if (held) event.preventDefault(); },
      ondrop: (event) => { event.preventDefault(); if (held && held !== name) choose(name); },
      ondragend: () => { held = null; mark(); },
      onpointerenter: () => shine(root, { devices: [name] }), onpointerleave: () => shine(root, null),
    }, h("span", {}, name));
  }

  function update() {
    const state = model.get("state"), height = model.get("height");
    root.style.height = height ? `${height}px` : "";
    root.classList.toggle("dtfm-none", !state.rows);
    empty.textContent = model.get("hint");
    empty.hidden = Boolean(state.rows);
    if (!state.rows) return;
    [base, since] = [state.seconds, performance.now()];
    const { dark } = readTheme(root), { rows, groups_s: groups, hops_s: hops } = state;
    const slowest = Math.max(...groups), dearest = Math.max(...hops, 0);
    const focused = board.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    board.style.setProperty("--dtfm-pipelines", rows[0].length);
    board.replaceChildren(...rows.flatMap((names, stage) => {
      const color = stageColor(stage, rows.length, dark);
      const counts = groups[stage] >= slowest * (1 - SAME);
      const hop = stage < hops.length ? h("div", { class: `dtfm-hand-hop${hops[stage] >= dearest * (1 - SAME) ? " dtfm-worst" : ""}`, title: `The slowest pair between stages ${stage} and ${stage + 1}; every hop counts` }, `hop ${seconds(hops[stage])}`) : null;
      return [
        h("div", { class: "dtfm-hand-stage" }, h("b", { style: `background:${color};color:${inkOn(color)}` }, String(stage))),
        ...names.map((name) => device(name, color)),
        h("div", { class: `dtfm-hand-cost${counts ? " dtfm-worst" : ""}`, title: counts ? "The slowest group: it counts" : "Only the slowest group counts" },
          h("span", {}, `group ${seconds(groups[stage])}`), hop),
      ];
    }), ...(state.idle.length ? [h("div", { class: "dtfm-hand-stage" }, "idle"), h("div", { class: "dtfm-hand-idle" }, ...state.idle.map((name) => device(name, null)))] : []));
    rove();
    if (focused) devices().find(({ dataset }) => dataset.name === focused)?.focus({ preventScroll: true });
    showNumbers(state);
    mark();
    tick();
  }

  function showNumbers(state) {
    const value = (number) => (number > 0 ? seconds(number) : "…");
    const item = (label, content, kind = "") => h("div", { class: kind }, h("span", {}, label), h("strong", {}, content));
    const score = state.planner_s ? (state.beaten ? "100, beaten!" : String(Math.floor(state.score))) : "…";
    numbers.replaceChildren(
      item("Yours", value(state.now_s), "dtfm-now"), item(state.proved ? "Planner, proved" : "Planner", value(state.planner_s)),
      item("Bound", value(state.bound_s)), item("Moves", `${state.moves}${state.hints ? `, ${state.hints} shown` : ""}`),
      item("Clock", clock), item(state.best ? `Score, best ${state.best}` : "Score, of 100", score, "dtfm-score"));
    meter.setAttribute("aria-valuenow", String(Math.floor(state.score)));
    meter.firstElementChild.style.width = `${state.score}%`;
    root.dataset.moves = String(state.moves);
  }

  function tick() {
    const passed = base ? base + (performance.now() - since) / 1000 : 0;
    clock.textContent = `${Math.floor(passed / 60)}:${String(Math.floor(passed % 60)).padStart(2, "0")}`;
  }

  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !held) return;
    event.stopPropagation();
    held = null;
    mark();
  });
  const ticking = setInterval(tick, 500);
  cleanUp.add(() => clearInterval(ticking));
  onTraits(model, ["state", "hint", "height"], draw, cleanUp);
  onTraits(model, ["hinted", "note"], mark, cleanUp);
  onTheme(draw, cleanUp);
  draw();
  return cleanUp.run;
}

export default { render };
