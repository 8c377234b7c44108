// All links of a network as cells. Python holds the numbers and does the edits; here cells are shown and selected.
import { onShine, shine } from "shared/bus.js";
import { cleanUps, frame, h, oncePerFrame, onTraits, sized, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
import { isMeant } from "shared/wheel.js";
import { bitmap, paintScale } from "./page/cells.js";
import { placeOf, viewOf } from "./page/frame.js";
import { clipped, paintBorders, paintCells, paintCross, paintFrame, paintNames, paintShade } from "./page/paint.js";
import { cellWords } from "./page/words.js";
/** @import { Paint, Point, Pointed, Render } from "shared/types.d.ts" */
/** @import { Bitmap, Cell, Cells, Data, Place, Traits } from "./types.d.ts" */

/** @type {Record<string, string>} */
const UNIT = { latency: "ms", bandwidth: "Gbit/s" };

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  /** @type {Data | null} */
  let data = null;
  /** @type {Bitmap | null} */
  let map = null;
  /** @type {Place | null} */
  let place = null;
  /** @type {Point | null} */
  let pointer = null;
  /** @type {Pointed} */
  let lit = null; // what another view points at
  let told = ""; // the cell that this one has said it points at
  /** @type {{ from?: Cells, picked?: Cells, pan?: Point } | null} */
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
  /** @type {() => Float32Array} */
  const values = () => (model.get("shows") === "latency" ? there(data).latency : there(data).bandwidth);

  function load() {
    const names = model.get("names");
    const others = names.length !== n();
    const [latency, bandwidth] = /** @type {const} */ (["latency_ms", "bandwidth_gbps"]).map((name) => typed(model.get(name), Float32Array));
    const complete = names.length > 1 && latency.length === names.length ** 2 && bandwidth.length === latency.length;
    const edges = [0];
    for (const [, count] of model.get("blocks")) edges.push(edges.at(-1) + count);
    /** @type {(index: number) => number} */
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

  /** @type {Paint} */
  function paint(context, width, height, theme) {
    place = null;
    if (!data) return;
    const [known, bits] = [data, there(map)];
    const now = (place = placeOf(context, width, height, data.names, model.get("blocks"), view, theme));
    clipped(context, now, () => {
      paintCells(context, now, bits, values(), n(), view, theme);
      paintBorders(context, now, n(), known.edges, view, theme);
    });
    paintScale(context, bits, place.scaleX, place.top + 14, place.bottom, UNIT[model.get("shows")], theme);
  }

  /**
   * What changes with the pointer and the selection, on a canvas of its own: the cells stay as they are.
   * @type {Paint}
   */
  function paintOver(context, width, height, theme) {
    tip.hide();
    if (!data || !place) return;
    const selected = new Set(model.get("selected"));
    const [known, seen] = [data, place];
    const hover = pointer && !press?.pan && place.inside(pointer.x, pointer.y) ? cellAt(pointer) : null;
    const cells = press?.picked ?? picked();
    const shone = litRows();
    tell(hover);
    /** @type {(index: number) => string} */
    const strong = (index) => {
      if (hover && hover.includes(index)) return theme.text;
      return selected.has(known.names[index]) || shone?.has(index) ? theme.text : "";
    };
    paintNames(context, seen, known.names, model.get("blocks"), known.edges, view, theme, strong);
    clipped(context, place, () => {
      if (shone) paintShade(context, seen, n(), shone, theme);
      if (cells) paintFrame(context, seen, theme, cells);
      if (hover) paintCross(context, seen, ...hover, theme);
    });
    if (hover && pointer) tip.show(cellWords(data, ...hover), pointer.x, pointer.y);
    box.style.cursor = press?.pan ? "grabbing" : hover ? "cell" : pointer && range(pointer) ? "pointer" : "default";
  }

  /**
   * Tells every view of the lab which link is pointed at.
   * @type {(hover: Cell | null) => void}
   */
  function tell(hover) {
    const link = hover && hover[0] !== hover[1] ? hover.map((index) => there(data).names[index]) : null;
    if (String(link ?? "") === told) return;
    told = String(link ?? "");
    shine(root, link && { link });
  }

  /** The rows and columns of what another view points at; null for nothing. */
  function litRows() {
    if (!lit) return null;
    const pointed = lit;
    const stages = model.get("highlight").stages ?? {};
    const tasks = model.get("highlight").tasks ?? {};
    /** @type {(name: string) => boolean} */
    const isLit = (name) =>
      (pointed.devices ?? pointed.link)?.includes(name)
      || (Number.isInteger(pointed.stage) && stages[name] === pointed.stage)
      || (Number.isInteger(pointed.replica) && tasks[name]?.[1] === pointed.replica);
    const rows = new Set(there(data).names.flatMap((name, index) => (isLit(name) ? [index] : [])));
    return rows.size ? rows : null;
  }

  /** @type {(index: number) => number} */
  const within = (index) => Math.min(n() - 1, Math.max(0, index));
  /** @type {(at: Point) => Cell} */
  const cellAt = ({ x, y }) => [within(there(place).row(y)), within(there(place).column(x))];
  /** @type {() => Cells | null} */
  const picked = () => {
    const cells = model.get("picked");
    return data && cells.length === 4 && cells.every((index) => index >= 0 && index < n()) ? cells : null;
  };

  /**
   * The cells that a name stands for: a row or a column, or those of a region.
   * @type {(at: Point) => Cells | null}
   */
  function range({ x, y }) {
    /** @type {(index: number) => [number, number]} */
    const wide = (index) => {
      if (there(place).named) return [index, index];
      const at = there(data).edges.findLastIndex((edge) => edge <= index);
      return [there(data).edges[at], there(data).edges[at + 1] - 1];
    };
    if (there(place).beside(x, y)) {
      const [from, to] = wide(within(there(place).row(y)));
      return [from, 0, to, n() - 1];
    }
    if (there(place).above(x, y)) {
      const [from, to] = wide(within(there(place).column(x)));
      return [0, from, n() - 1, to];
    }
    return null;
  }

  /** @type {(cells: Cells | null) => void} */
  function pick(cells) {
    const [row, column, toRow, toColumn] = cells ?? [];
    const one = cells && row === toRow && column === toColumn;
    if (one && row === column) return;
    model.set("picked", cells ?? []);
    model.set("selected_link", cells && row !== column ? [there(data).names[row], there(data).names[column]] : []);
    model.save_changes();
    showStatus();
    over.draw();
  }

  function showStatus() {
    const problem = model.get("problem");
    const cells = picked();
    const many = cells && (cells[0] !== cells[2] || cells[1] !== cells[3]);
    const told = !cells ? "" : many ? `${spans(cells)} selected` : cellWords(there(data), cells[0], cells[1]);
    status.textContent = problem || told || model.get("summary") || (data ? `${(n() * (n() - 1)).toLocaleString("en-US")} directed links` : "");
    status.classList.toggle("dtfm-problem", Boolean(problem));
    root.setAttribute("aria-label", `Matrix of links: ${model.get("shows")} of ${n()} by ${n()} devices${told ? `; ${told}` : ""}`);
  }

  /** @type {(cells: Cells) => string} */
  const spans = ([row, column, toRow, toColumn]) => `${1 + Math.abs(toRow - row)} × ${1 + Math.abs(toColumn - column)} cells`;

  /** @type {(event: MouseEvent) => Point} */
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
      const from = event.shiftKey && picked() ? there(picked()).slice(0, 2) : cell;
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
      view.pan((press.pan.x - pointer.x) / there(place).cell, (press.pan.y - pointer.y) / there(place).cell);
      press.pan = pointer;
    } else if (press) press.picked = [...there(press.from), ...cellAt(pointer)];
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

  /** @type {(event: WheelEvent) => void} */
  const wheel = (event) => {
    if (!data || !place || !isMeant(event, root)) return;
    event.preventDefault();
    event.stopPropagation();
    const { x, y } = spot(event);
    view.zoom(Math.exp(event.deltaY * 0.0018), view.x + (x - place.left) / place.cell, view.y + (y - place.top) / place.cell);
  };
  box.addEventListener("wheel", wheel, { passive: false });
  cleanUp.add(() => box.removeEventListener("wheel", wheel));

  /** @type {(rows: number, columns: number, extend: boolean) => void} */
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

  /** @type {(what: Traits["shows"]) => void} */
  function show(what) {
    model.set("shows", what);
    model.save_changes();
    color();
  }

  /** @type {Record<string, (more: boolean) => void>} */
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
    /** @type {((more: boolean) => void) | null} */
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
  Object.assign(root, { whereIs: (/** @type {number} */ row, /** @type {number} */ column) => place && [place.x(column + 0.5), place.y(row + 0.5)] });
  box.append(empty);
  root.append(box, status);
  el.append(root);
  sized(model, el, root, box, cleanUp);
  load();
  return cleanUp.run;
}

export default view(render);
