// A plan's coarsened graph: device groups in path order, and the matching behind each hop.
import { cleanUps, frame, h, onResize, oncePerFrame, onTraits } from "./shared/dom.js";
import { sharpCanvas, tooltip } from "./shared/canvas.js";
import { drawRing } from "./groups/ring.js";
import { cellUnder, paintMatrix } from "./groups/matrix.js";
import { showEdge, showGroup, showHint } from "./groups/details.js";
import { seconds } from "./shared/axis.js";

const MOST_IN_RING = 16; // above, a node-link drawing is a ball of wool
const NO_EDGE = -1;

function render({ model, el }) {
  const cleanUp = cleanUps();
  let openStage = null; // which group's devices the side lists; only while no edge is selected

  const title = h("strong");
  const hint = h("span", { style: "color:var(--dtfm-soft-text);font-size:12px" });
  const box = h("div", { class: "dtfm-box" });
  const side = h("div", { class: "dtfm-groups-side", "aria-live": "polite" });
  const empty = h("div", { class: "dtfm-empty" }, "No plan yet");
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const root = frame("dtfm-groups", "Device groups");
  const main = h("div", { class: "dtfm-groups-main" }, box, side);
  root.append(h("div", { class: "dtfm-heading" }, title, hint), main, caption);
  el.append(root);

  const plan = () => ({
    groups: model.get("groups"), weights: model.get("weights"), matchings: model.get("matchings"),
    edge: model.get("selected_edge"), openStage,
  });
  const isMatrix = () => model.get("groups").length > MOST_IN_RING;

  const canvas = sharpCanvas(box, paint, cleanUp);
  const tip = tooltip(box);
  box.append(empty);
  let grid = null;

  function paint(context, width, height, theme) {
    grid = isMatrix() ? paintMatrix(context, width, height, plan(), theme) : null;
  }
  canvas.element.addEventListener("pointermove", (event) => {
    const cell = grid && cellUnder(grid, event.offsetX, event.offsetY);
    canvas.element.style.cursor = cell && Math.abs(cell.row - cell.column) <= 1 ? "pointer" : "default";
    if (!cell) return tip.hide();
    const { groups, weights } = plan();
    const [from, to] = [groups[cell.row].stage, groups[cell.column].stage];
    const text = from === to
      ? `stage ${from}: synchronisation ${seconds(groups[cell.row].cost_s)}`
      : `stage ${from} – stage ${to}: ${seconds(weights[cell.row]?.[cell.column] ?? NaN)}`;
    tip.show(text, event.offsetX, event.offsetY);
  });
  canvas.element.addEventListener("pointerleave", tip.hide);
  canvas.element.addEventListener("click", (event) => {
    const cell = grid && cellUnder(grid, event.offsetX, event.offsetY);
    if (!cell) return;
    if (cell.row === cell.column) selectGroup(cell.row);
    else if (Math.abs(cell.row - cell.column) === 1) selectEdge(Math.min(cell.row, cell.column));
  });

  function selectEdge(edge) {
    openStage = null;
    model.set("selected_edge", model.get("selected_edge") === edge ? NO_EDGE : edge);
    model.save_changes();
    show();
  }

  function selectGroup(stage) {
    openStage = openStage === stage ? null : stage;
    model.set("selected_edge", NO_EDGE);
    model.save_changes();
    show();
  }

  const show = oncePerFrame(showNow, cleanUp);

  function showNow() {
    const { groups, edge } = plan();
    if (openStage !== null && openStage >= groups.length) openStage = null;
    for (const element of [box, side]) element.style.height = `${model.get("height")}px`;
    title.textContent = model.get("title");
    hint.textContent = !groups.length ? "" : isMatrix() ? "in path order · seconds between any two groups"
      : "in path order · at a node: seconds of synchronisation, at a line: seconds of the hop";
    caption.textContent = model.get("caption");
    root.setAttribute("aria-label", `${model.get("title")}: ${groups.length} device groups in path order`);
    root.dataset.groups = String(groups.length);
    empty.hidden = groups.length > 0;
    side.hidden = !groups.length;
    showRing();
    canvas.draw();
    if (edge >= 0 && edge < groups.length - 1) showEdge(side, plan());
    else if (openStage !== null) showGroup(side, plan());
    else showHint(side, isMatrix());
  }

  function showRing() {
    const { clientWidth: width, clientHeight: height } = box;
    if (!width || !height) return; // a notebook takes cells out of the page while they are scrolled away
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset?.key : null;
    box.querySelector(".dtfm-ring")?.remove();
    if (plan().groups.length && !isMatrix()) box.append(drawRing(width, height, plan(), { selectEdge, selectGroup }));
    if (focused) box.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  }

  let drawnFor = "";
  function resized() {
    const size = `${box.clientWidth} x ${box.clientHeight}`;
    if (!box.clientWidth || size === drawnFor) return;
    drawnFor = size;
    show();
  }

  onTraits(model, ["selected_edge"], () => { if (model.get("selected_edge") !== NO_EDGE) openStage = null; }, cleanUp);
  onTraits(model, ["groups", "weights", "matchings", "selected_edge", "title", "caption", "height"], show, cleanUp);
  onResize(box, resized, cleanUp);
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    openStage = null;
    selectEdge(model.get("selected_edge"));
    event.stopPropagation();
  });
  showNow();
  return cleanUp.run;
}

export default { render };
