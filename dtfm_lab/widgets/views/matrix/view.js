// All links of a network as cells. Python holds the numbers and does the edits; here cells are shown and selected.
import { onShine, shine } from "shared/bus.js";
import { cleanUps, frame, h, oncePerFrame, onTraits, sized, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { view } from "shared/view.js";
import { isMeant } from "shared/wheel.js";
import { bitmap, paintScale } from "./page/cells.js";
import { placeOf, viewOf } from "./page/frame.js";
import { clipped, paintBorders, paintCells, paintCross, paintFrame, paintNames, paintShade } from "./page/paint.js";
import { cellWords } from "./page/words.js";

const UNIT = { latency: "ms", bandwidth: "Gbit/s" };

function render({ model, el }) {
  const cleanUp = cleanUps();
  let data = null;
  let map = null;
  let place = null;
  let pointer = null;
  let lit = null; // what another view points at
  let told = ""; // the cell that this one has said it points at
  let press = null; // {from: [row, column], picked, pan}

  const root = frame("dtfm-matrix", "Matrix of links", "application");
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No link yet: draw at least two devices, on the canvas or on the map");
  const status = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const n = () => data?.names.length ?? 0;
  const { element: canvas, draw } = sharpCanvas(box, paint, cleanUp);
  canvas.setAttribute("aria-hidden", "true");
  const over = sharpCanvas(box, paintOver, cleanUp);
  const view = viewOf(n, () => {
    draw();
    over.draw();
  });
  const tip = tooltip(box);
  const values = () => (model.get("shows") === "latency" ? data.latency : data.bandwidth);

  function load() {
    const names = model.get("names");
    const others = names.length !== n();
    const [latency, bandwidth] = ["latency_ms", "bandwidth_gbps"].map((name) => typed(model.get(name), Float32Array));
    const complete = names.length > 1 && latency.length === names.length ** 2 && bandwidth.length === latency.length;
    const edges = [0];
    for (const [, count] of model.get("blocks")) edges.push(edges.at(-1) + count);
    const block = (index) => edges.findLastIndex((edge) => edge <= index);
    data = complete
      ? {
          names,
          latency,
          bandwidth,
          edges,
          origin: typed(model.get("origin"), Uint8Array),
          filled: model.get("filled"),
          regionAt: (index) => model.get("blocks")[block(index)]?.[0] ?? "",
        }
      : null;
    empty.hidden = complete;
    root.dataset.cells = String(complete ? names.length ** 2 : 0);
    if (others) view.reset();
    color();
  }

  function color() {
    map = data && bitmap(values(), n(), model.get("shows") === "latency");
    draw();
    over.draw();
    showStatus();
  }

  function paint(context, width, height, theme) {
    place = null;
    if (!data) return;
    place = placeOf(context, width, height, data.names, model.get("blocks"), view, theme);
    clipped(context, place, () => {
      paintCells(context, place, map, values(), n(), view, theme);
      paintBorders(context, place, n(), data.edges, view, theme);
    });
    paintScale(context, map, place.scaleX, place.top + 14, place.bottom, UNIT[model.get("shows")], theme);
  }

  /** What changes with the pointer and the selection, on a canvas of its own: the cells stay as they are. */
  function paintOver(context, width, height, theme) {
    tip.hide();
    if (!data || !place) return;
    const selected = new Set(model.get("selected"));
    const hover = pointer && !press?.pan && place.inside(pointer.x, pointer.y) ? cellAt(pointer) : null;
    const cells = press?.picked ?? picked();
    const shone = litRows();
    tell(hover);
    const strong = (index) => {
      if (hover && hover.includes(index)) return theme.text;
      return selected.has(data.names[index]) || shone?.has(index) ? theme.text : "";
    };
    paintNames(context, place, data.names, model.get("blocks"), data.edges, view, theme, strong);
    clipped(context, place, () => {
      if (shone) paintShade(context, place, n(), shone, theme);
      if (cells) paintFrame(context, place, theme, cells);
      if (hover) paintCross(context, place, ...hover, theme);
    });
    if (hover) tip.show(cellWords(data, ...hover), pointer.x, pointer.y);
    box.style.cursor = press?.pan ? "grabbing" : hover ? "cell" : pointer && range(pointer) ? "pointer" : "default";
  }

  /** Tells every view of the lab which link is pointed at. */
  function tell(hover) {
    const link = hover && hover[0] !== hover[1] ? hover.map((index) => data.names[index]) : null;
    if (String(link ?? "") === told) return;
    told = String(link ?? "");
    shine(root, link && { link });
  }

  /** The rows and columns of what another view points at; null for nothing. */
  function litRows() {
    if (!lit) return null;
    const stages = model.get("highlight").stages ?? {};
    const tasks = model.get("highlight").tasks ?? {};
    const isLit = (name) =>
      (lit.devices ?? lit.link)?.includes(name)
      || (Number.isInteger(lit.stage) && stages[name] === lit.stage)
      || (Number.isInteger(lit.replica) && tasks[name]?.[1] === lit.replica);
    const rows = new Set(data.names.flatMap((name, index) => (isLit(name) ? [index] : [])));
    return rows.size ? rows : null;
  }

  const within = (index) => Math.min(n() - 1, Math.max(0, index));
  const cellAt = ({ x, y }) => [within(place.row(y)), within(place.column(x))];
  const picked = () => {
    const cells = model.get("picked");
    return data && cells.length === 4 && cells.every((index) => index >= 0 && index < n()) ? cells : null;
  };

  /** The cells that a name stands for: a row or a column, or those of a region. */
  function range({ x, y }) {
    const wide = (index) => {
      if (place.named) return [index, index];
      const at = data.edges.findLastIndex((edge) => edge <= index);
      return [data.edges[at], data.edges[at + 1] - 1];
    };
    if (place.beside(x, y)) {
      const [from, to] = wide(within(place.row(y)));
      return [from, 0, to, n() - 1];
    }
    if (place.above(x, y)) {
      const [from, to] = wide(within(place.column(x)));
      return [0, from, n() - 1, to];
    }
    return null;
  }

  function pick(cells) {
    const [row, column, toRow, toColumn] = cells ?? [];
    const one = cells && row === toRow && column === toColumn;
    if (one && row === column) return;
    model.set("picked", cells ?? []);
    model.set("selected_link", cells && row !== column ? [data.names[row], data.names[column]] : []);
    model.save_changes();
    showStatus();
    over.draw();
  }

  function showStatus() {
    const problem = model.get("problem");
    const cells = picked();
    const many = cells && (cells[0] !== cells[2] || cells[1] !== cells[3]);
    const told = !cells ? "" : many ? `${spans(cells)} selected` : cellWords(data, cells[0], cells[1]);
    status.textContent = problem || told || model.get("summary") || (data ? `${(n() * (n() - 1)).toLocaleString("en-US")} directed links` : "");
    status.classList.toggle("dtfm-problem", Boolean(problem));
    root.setAttribute("aria-label", `Matrix of links: ${model.get("shows")} of ${n()} by ${n()} devices${told ? `; ${told}` : ""}`);
  }

  const spans = ([row, column, toRow, toColumn]) => `${1 + Math.abs(toRow - row)} × ${1 + Math.abs(toColumn - column)} cells`;

  const spot = (event) => {
    const { left, top } = box.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  box.addEventListener("pointerdown", (event) => {
    root.focus({ preventScroll: true });
    if (event.button > 1 || !data || !place) return;
    const at = spot(event);
    if (event.button === 1 || event.altKey) {
      event.preventDefault();
      press = { pan: at };
    } else if (place.inside(at.x, at.y)) {
      const cell = cellAt(at);
      const from = event.shiftKey && picked() ? picked().slice(0, 2) : cell;
      press = { from, picked: [...from, ...cell] };
    } else {
      const cells = range(at);
      pick(cells);
      return;
    }
    box.setPointerCapture(event.pointerId);
    over.draw();
  });

  box.addEventListener("pointermove", (event) => {
    pointer = spot(event);
    if (press?.pan) {
      view.pan((press.pan.x - pointer.x) / place.cell, (press.pan.y - pointer.y) / place.cell);
      press.pan = pointer;
    } else if (press) press.picked = [...press.from, ...cellAt(pointer)];
    over.draw();
  });
  box.addEventListener("pointerup", () => {
    const done = press;
    press = null;
    if (done?.picked) pick(done.picked);
    over.draw();
  });
  box.addEventListener("pointercancel", () => {
    press = null;
    over.draw();
  });
  box.addEventListener("pointerleave", () => {
    pointer = null;
    over.draw();
  });
  box.addEventListener("dblclick", () => model.send({ kind: "edit" }));

  const wheel = (event) => {
    if (!data || !place || !isMeant(event, root)) return;
    event.preventDefault();
    event.stopPropagation();
    const { x, y } = spot(event);
    view.zoom(Math.exp(event.deltaY * 0.0018), view.x + (x - place.left) / place.cell, view.y + (y - place.top) / place.cell);
  };
  box.addEventListener("wheel", wheel, { passive: false });
  cleanUp.add(() => box.removeEventListener("wheel", wheel));

  function step(rows, columns, extend) {
    if (!data) return;
    const cells = picked();
    if (!cells) return pick([0, 1, 0, 1]);
    let [row, column] = [within(cells[2] + rows), within(cells[3] + columns)];
    if (extend) return pick([cells[0], cells[1], row, column]);
    if (row === column) [row, column] = [row + rows, column + columns]; // over the diagonal
    if (row < 0 || column < 0 || row >= n() || column >= n()) return;
    pick([row, column, row, column]);
  }

  function show(what) {
    model.set("shows", what);
    model.save_changes();
    color();
  }

  const KEYS = {
    arrowup: (more) => step(-1, 0, more),
    arrowdown: (more) => step(1, 0, more),
    arrowleft: (more) => step(0, -1, more),
    arrowright: (more) => step(0, 1, more),
    l: () => show("latency"),
    b: () => show("bandwidth"),
    "+": () => view.zoom(0.7),
    "=": () => view.zoom(0.7),
    "-": () => view.zoom(1 / 0.7),
    0: view.reset,
    escape: () => {
      press = null;
      pick(null);
    },
    enter: () => {
      if (picked()) model.send({ kind: "edit" });
    },
  };
  root.addEventListener("keydown", (event) => {
    if (event.altKey) return;
    const key = event.key.toLowerCase();
    const travel = { z: event.shiftKey ? "redo" : "undo", y: "redo" }[key];
    let action = KEYS[key];
    if (event.ctrlKey || event.metaKey)
      action = travel ? () => model.send({ kind: travel }) : key === "a" && data ? () => pick([0, 0, n() - 1, n() - 1]) : null;
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(event.shiftKey);
  });

  const reload = oncePerFrame(load, cleanUp); // names and numbers change together
  onTraits(model, ["names", "blocks", "latency_ms", "bandwidth_gbps", "origin"], reload, cleanUp);
  onTraits(
    model,
    ["filled"],
    () => {
      if (data) data.filled = model.get("filled");
    },
    cleanUp,
  );
  onTraits(model, ["shows"], color, cleanUp);
  onTraits(
    model,
    ["picked"],
    () => {
      const cells = picked();
      if (cells && place && !press) view.reach(cells[2], cells[3]);
      showStatus();
      over.draw();
    },
    cleanUp,
  );
  onTraits(model, ["selected"], () => over.draw(), cleanUp);
  onTraits(model, ["problem", "summary"], showStatus, cleanUp);
  onShine(
    root,
    (what, isOwn) => {
      lit = isOwn ? null : what;
      over.draw();
    },
    cleanUp,
  );

  /** Where a cell is in the box, in pixels: for whoever points at it from outside, as tests do. */
  root.whereIs = (row, column) => place && [place.x(column + 0.5), place.y(row + 0.5)];
  box.append(empty);
  root.append(box, status);
  el.append(root);
  sized(model, el, root, box, cleanUp);
  load();
  return cleanUp.run;
}

export default view(render);
