// The Gantt chart: predicted bars, and over them measured ones as they arrive.
import { cleanUps, frame, h, onTraits, oncePerFrame, oncePerMessage, targetOf, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { onTheme, readTheme } from "shared/theme.js";
import { view } from "shared/view.js";
import { Bars, barUnder, COLUMNS, counterpart, joined, LATE, NO_BARS } from "./page/bars.js";
import { chartPainter } from "./page/chart.js";
import { gapAt } from "./page/gaps.js";
import { gliding } from "./page/gliding.js";
import { lights } from "./page/lights.js";
import { minimap } from "./page/minimap.js";
import { navigation } from "./page/navigate.js";
import { pinnedBar } from "./page/pinned_bar.js";
import { rowButtons } from "./page/row_buttons.js";
import { offer, picture, unpacked } from "./page/save.js";
import { shareStrip } from "./page/shares.js";
import { BAR_TRAITS, extent, readRest, readUpper, TEXT_TRAITS } from "./page/state.js";
import { describe, linkOf, moment } from "./page/words.js";
/** @import { Context, Message, Paint, Point, Pointed, Render } from "shared/types.d.ts" */
/** @import { Bar, Columns, Place, State, Traits, Unit } from "./types.d.ts" */

const STREAMED = { ...COLUMNS, ...LATE };
const HINT = "Click, then scroll to zoom (or Ctrl + scroll) · drag to pan · double-click for all";
const KEYS = "Keys: + - 0 and the arrows, P for the critical path, M for messages, comma and full stop from bar to bar, Esc.";
const RESTED = 160; // milliseconds without a move
const PNG_RATIO = 2;

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  /** @type {State} any: the rest of it is read before anything is drawn */
  let state = /** @type {any} */ ({ upper: NO_BARS, lower: NO_BARS, ghost: NO_BARS, ends: [], gaps: [], open: -1, overlays: false });
  /** @type {Columns[]} */
  let parts = []; // of the lower bars, as they came
  let pointer = /** @type {Point | null} */ (null);
  let place = /** @type {Place | null} */ (null);
  let isNew = true;
  let version = 0;
  let paints = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let rest;
  let moving = false;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const hint = h("span", { class: "dtfm-gantt-hint", title: `${HINT}. ${KEYS}` }, HINT);
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" });
  const busy = h("div", { class: "dtfm-gantt-busy", role: "status", hidden: true });
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const tangle = h("span", { class: "dtfm-tangle", "aria-live": "polite" });
  const pathToggle = toggle("show_path", "Critical path", "Highlight the chain of actions and messages that sets the iteration's length (P)");
  const messagesToggle = toggle("show_messages", "Messages", "Show messages as arrows from sender to receiver (M)");
  const zooms = h(
    "span",
    { class: "dtfm-gantt-zooms", role: "group", "aria-label": "Zoom" },
    .../** @type {[string, string, () => void][]} */ ([
      ["−", "Zoom out (-)", () => view.zoom(1 / 0.6)],
      ["+", "Zoom in (+)", () => view.zoom(0.6)],
      ["All", "Show the whole iteration (0)", () => view.reset()],
    ]).map(([text, help, onclick]) => h("button", { type: "button", title: help, "aria-label": help, onclick }, text)),
  );
  const root = frame("dtfm-gantt", "Schedule");
  const heading = h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), messagesToggle, pathToggle);
  root.append(heading, legend, box);
  el.append(root);
  el.classList.add("dtfm-gantt-place");

  const paintChart = chartPainter();
  const { draw: drawAll } = sharpCanvas(box, paint, cleanUp);
  const { draw: drawPointer } = sharpCanvas(box, paintPointer, cleanUp); // so that a hover repaints no bars
  const rows = rowButtons({ pressed: pressRow, pointed: (unit) => light.point(unit && whatIs(unit)), scrolled: () => draw() });
  box.append(rows.element, empty, busy);
  const tip = tooltip(box);
  const light = lights(root, () => drawPointer(), cleanUp);
  const glide = gliding(() => {
    follow();
    draw();
  }, cleanUp);
  const pinned = pinnedBar(() => (state.overlays ? state.lower : state.upper), about, drawPointer);
  const view = navigation(
    root,
    box,
    () => extentNow().whole,
    () => place,
    { changed: moved, clicked, scrolls: () => place !== null && place.contentHeight > place.rowsBottom - place.top + 1 },
    cleanUp,
  );
  const overview = minimap(
    () => place && { state, left: place.left, right: place.right, whole: extentNow().whole },
    () => version,
    view,
    cleanUp,
  );
  const shares = shareStrip();
  root.append(overview.element, shares.element, h("div", { class: "dtfm-gantt-foot" }, pinned.element, caption, tangle, hint, zooms));
  cleanUp.add(() => clearTimeout(rest));

  function draw() {
    drawAll();
    drawPointer();
    overview.draw();
  }

  /** @type {(isMoving: boolean) => void} */
  function moved(isMoving) {
    moving = isMoving;
    clearTimeout(rest);
    if (moving)
      rest = setTimeout(() => {
        moving = false;
        if (root.dataset.hurried) drawAll();
      }, RESTED);
    draw();
  }

  /** @type {(event: MouseEvent) => Point} */
  const spotOf = (event) => {
    const { left, top } = box.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  box.addEventListener("pointermove", (event) => {
    pointer = targetOf(event).closest(".dtfm-gantt-row") ? null : spotOf(event);
    drawPointer();
  });
  box.addEventListener("pointerleave", () => {
    pointer = null;
    light.point(null);
    drawPointer();
  });
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const button = { p: pathToggle, m: messagesToggle }[event.key.toLowerCase()];
    if (button && !button.hidden) flip(button === pathToggle ? "show_path" : "show_messages");
    else if (event.key === "," || event.key === ".") step(event.key === "," ? -1 : 1);
    else if (event.key === "Escape" && pinned.isPinned()) pinned.pin(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  /** @type {(trait: "show_path" | "show_messages", text: string, help: string) => HTMLButtonElement} */
  function toggle(trait, text, help) {
    return h(
      "button",
      {
        type: "button",
        title: help,
        "aria-pressed": "false",
        hidden: true,
        onclick: () => flip(trait),
      },
      text,
    );
  }

  /** @type {(trait: "show_path" | "show_messages") => void} */
  function flip(trait) {
    model.set(trait, !model.get(trait));
    model.save_changes();
  }

  /** With bars on their way, and the time axis too. */
  function follow() {
    state = { ...state, isGliding: glide.isOn(), ends: glide.isOn() ? state.ends : model.get("ends") };
  }
  const settled = () => extent(state.upper, state.lower, state.ends, model.get("time_unit"), model.get("interval"), state.gaps);
  function extentNow() {
    const last = settled();
    return { ...last, whole: glide.span(last.whole) };
  }
  const nothing = () => !state.upper.count && !state.lower.count;

  /** @type {Paint} */
  function paint(context, width, height, theme) {
    place = null;
    drawPointer(); // report the thing under a resting pointer again, even in the same frame
    if (nothing()) return;
    const look = {
      width,
      height,
      theme,
      ratio: window.devicePixelRatio || 1,
      span: view.visible(),
      whole: extentNow().whole,
      moving,
      scroll: rows.scroll(),
      fill: !model.get("height"),
    };
    const painted = paintChart(context, look, { ...state, upper: glide.bars(state.upper), unit: settled().unit });
    place = painted.place;
    rows.show(place);
    root.dataset.hurried = painted.hurried ? "true" : "";
    tangle.textContent = painted.tangle ? `${painted.tangle.toLocaleString("en-US")} messages in view: zoom in to see them` : "";
    root.dataset.paints = String(++paints);
    if (isNew) root.dataset.painted = String(performance.now());
    isNew = false;
    overview.draw();
  }

  /** @type {Paint} */
  function paintPointer(context, _width, _height, theme) {
    tip.hide();
    if (!place || nothing()) return;
    const { unit } = settled();
    pinned.outline(context, place, theme);
    light.paint(context, place, theme, (time) => moment(time, { ...unit, decimals: Math.max(0, unit.decimals - 2) }));
    if (!pointer || view.dragging()) return;
    const { x, y } = pointer;
    if (x < place.left || x > place.right || y < place.top) return light.point(null);
    const spot = place.under(y);
    const found = barAt(x, y);
    light.point(found ? whatIsBar(found) : spot ? whatIs(place.shown[spot.slot]) : null);
    context.strokeStyle = theme.softText;
    context.globalAlpha = 0.6;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, place.top);
    context.lineTo(Math.round(x) + 0.5, place.rowsBottom);
    context.stroke();
    context.globalAlpha = 1;
    const words = wordsAt(x, y);
    if (words.length) tip.show(words.join("\n"), x, y);
  }

  /** @type {(unit: Unit) => Pointed} */
  const whatIs = ({ stage, depth, device, nMembers }) => (nMembers && stage >= 0 && !depth ? { stage } : device ? { devices: [device] } : null);

  /** @type {(bar: Bar) => Pointed} */
  function whatIsBar(bar) {
    const link = state.kinds[bar.kind]?.message ? linkOf(bar, state) : null;
    if (link) return { link };
    return state.devices[bar.row] ? { devices: [state.devices[bar.row]] } : null;
  }

  /** @type {(x: number, y: number) => Bar | null} */
  function barAt(x, y) {
    const spot = place?.under(y);
    if (!place || !spot || x < place.left || x > place.right) return null;
    return barUnder(state.overlays ? state.lower : state.upper, spot.row, spot.lane, state.lanes, place.time(x), 1.5 / place.scale);
  }

  /** @type {(x: number, y: number) => string[]} */
  function wordsAt(x, y) {
    if (!place) return [];
    const gap = gapAt(x, y, place, state);
    if (gap) return [gap.tip];
    const found = barAt(x, y);
    if (found) return about(found);
    const spot = place.under(y);
    if (spot && state.upper.count && !glide.isOn()) return waiting(spot.row, place.time(x));
    return [];
  }

  /** @type {(bar: Bar) => string[]} */
  function about(bar) {
    const [upper, lower] = state.overlays ? [counterpart(state.upper, bar), bar] : [bar, null];
    return describe({ upper, lower }, { ...state, several: state.perPipeline > 0, unit: settled().unit });
  }

  /**
   * What a row waits for where it has no bar.
   * @type {(row: number, time: number) => string[]}
   */
  function waiting(row, time) {
    const bars = state.overlays ? state.lower : state.upper;
    let [next, soonest] = [-1, Infinity];
    for (let kind = 0; kind < bars.nKinds; kind++) {
      if (state.kinds[kind]?.message || state.kinds[kind]?.family === undefined) continue;
      const [begin, stop] = bars.strip(row, kind);
      for (let at = begin; at < stop; at++) if (bars.start[at] >= time && bars.start[at] < soonest) [next, soonest] = [at, bars.start[at]];
    }
    if (next < 0) return [];
    const { kind, microbatch } = bars.bar(next);
    return [`${state.names[row]} · waits for ${state.kinds[kind].name}${microbatch >= 0 ? ` ${microbatch}` : ""} until ${moment(soonest, settled().unit)}`];
  }

  /** @type {(event: PointerEvent) => void} */
  function clicked(event) {
    const { x, y } = spotOf(event);
    const spot = place?.under(y);
    if (!place || !spot) return;
    const found = barAt(x, y);
    const unit = place.shown[spot.slot];
    if (found) pinned.pin(found);
    else if (unit.nMembers) return open(unit);
    choose(state.devices[spot.row], event.shiftKey);
  }

  /**
   * A press on a row's label: a stage opens or closes and is selected, a device is selected.
   * @type {(unit: Unit, event: { shiftKey: boolean }) => void}
   */
  function pressRow(unit, event) {
    if (unit.nMembers) {
      open(unit);
      model.set("selected_stage", unit.isOpen ? -1 : unit.stage);
      model.set("selected", []);
      model.save_changes();
    } else choose(unit.device || undefined, event.shiftKey);
  }

  /** @type {(unit: Unit) => void} */
  function open(unit) {
    state.open = unit.isOpen ? -1 : unit.id;
    showTexts();
  }

  /** @type {(device: string | undefined, more: boolean) => void} */
  function choose(device, more) {
    if (device === undefined) return;
    const before = model.get("selected");
    const kept = more ? before.filter((name) => name !== device) : [];
    model.set("selected", more && before.includes(device) ? kept : [...kept, device]);
    model.set("selected_stage", -1);
    model.save_changes();
  }

  /**
   * Pin the next bar of the row, or the one before.
   * @type {(by: number) => void}
   */
  function step(by) {
    if (nothing() || !place) return;
    const found = pinned.neighbour(by, place.shown[0].rows[0], place.from);
    if (!found) return;
    pinned.pin(found);
    choose(state.devices[found.row], false);
    const [from, to] = view.visible();
    if (found.start < from || found.end > to) view.look(found.start - (to - from) / 2, found.start + (to - from) / 2);
  }

  function loadUpper() {
    const [before, spanBefore] = [{ ...state, upper: glide.bars(state.upper) }, nothing() ? null : extentNow().whole];
    const isOfOldRows = before.upper.count > 0 && sameRows();
    if (glide.isOn()) before.upper = frozen(before.upper);
    state = { ...state, ...readUpper(model), ends: model.get("ends") };
    if (!isOfOldRows) {
      glide.stop();
      state.open = -1;
      view.reset();
    } else if (spanBefore && state.upper.count) glide.begin(before.upper, state.upper, spanBefore, settled().whole);
    if (isOfOldRows && !view.isWhole()) view.look(view.visible()[0], view.visible()[1]);
    shownRows = rowsNow();
    state.isGliding = glide.isOn();
    changed();
  }

  let shownRows = "";
  const rowsNow = () => JSON.stringify([model.get("rows").length, model.get("units").map(({ stage, members }) => [stage, members?.length])]);
  const sameRows = () => rowsNow() === shownRows;
  /**
   * Bars in mid-glide, the start of the next glide.
   * @type {(bars: Bars) => Bars}
   */
  const frozen = (bars) => Object.assign(Object.create(bars), { start: bars.start.slice(), end: bars.end.slice() });

  function loadLower() {
    const columns = joined(/** @type {any[]} any: measured columns all have `late` */ (parts), STREAMED);
    parts = [columns];
    state.lower = columns.start.length ? new Bars(columns) : NO_BARS;
    state.overlays = columns.start.length > 0 || model.get("measured_iteration") >= 0; // one that has just begun has no bar yet
    state.ends = model.get("ends");
    changed();
  }

  function changed() {
    isNew = true;
    showTexts();
    pinned.follow();
  }

  function showShares() {
    shares.element.hidden = nothing() || !model.get("shares").length;
    if (!shares.element.hidden) shares.show(model.get("shares"), readTheme(box).dark);
  }

  function showTexts() {
    version++;
    state = { ...state, ...readRest(model, state) };
    const { upper, lower, path, messages, perPipeline } = state;
    const [height, isBare] = [model.get("height"), model.get("bare")];
    title.textContent = model.get("title");
    caption.textContent = caption.title = model.get("caption");
    empty.textContent = model.get("empty_words");
    busy.textContent = [model.get("stale"), model.get("busy")].filter(Boolean).join(" · ");
    busy.hidden = !busy.textContent;
    box.classList.toggle("dtfm-gantt-stale", Boolean(model.get("stale")));
    empty.hidden = !nothing() || !busy.hidden;
    for (const [name, is] of /** @type {[string, boolean][]} */ ([
      ["dtfm-gantt-fills", !height],
      ["dtfm-gantt-bare", isBare],
    ]))
      root.classList.toggle(name, is);
    el.classList.toggle("dtfm-gantt-fills", !height);
    box.style.height = height ? `${height}px` : "";
    showShares();
    root.setAttribute(
      "aria-label",
      [`${model.get("title")}: ${upper.count} predicted and ${lower.count} measured bars`, ...state.gaps.map(({ tip }) => tip)].join(". "),
    );
    root.setAttribute("aria-busy", String(!busy.hidden));
    for (const [name, count] of Object.entries({
      predicted: upper.count,
      measured: lower.count,
      path: path.bar.length,
      messages: messages.leaves.length,
      gaps: state.gaps.length,
    }))
      root.dataset[name] = String(count);
    for (const element of [hint, legend]) element.hidden = nothing() || isBare;
    heading.hidden = isBare;
    zooms.hidden = nothing();
    overview.element.hidden = nothing() || !model.get("overview");
    rows.element.hidden = nothing();
    for (const [button, trait, count] of /** @type {[HTMLButtonElement, "show_path" | "show_messages", number][]} */ ([
      [pathToggle, "show_path", path.bar.length],
      [messagesToggle, "show_messages", messages.leaves.length],
    ])) {
      button.hidden = !count;
      button.setAttribute("aria-pressed", String(model.get(trait)));
    }
    legend.replaceChildren(
      ...used().map(({ name, shades }) => swatch("dtfm-swatch", shades[0], name)),
      ...(state.overlays ? [swatch("dtfm-swatch dtfm-swatch-ghost", "currentColor", "line: predicted")] : []),
      ...(perPipeline ? [h("span", {}, "paler: a device's later stages")] : []),
    );
    draw();
  }

  /** @type {(dark?: boolean) => import("./types.d.ts").DressedKind[]} */
  const used = (dark = readTheme(box).dark) => state.kindsIn(dark).filter((_, kind) => state.upper.has(kind) || state.lower.has(kind));

  const reloadUpper = oncePerMessage(loadUpper, cleanUp); // the columns change together
  const reloadLower = oncePerFrame(loadLower, cleanUp);
  const reloadTexts = oncePerFrame(showTexts, cleanUp);

  /** @type {(message: Message, buffers: DataView[]) => void} */
  function receive(message, buffers) {
    if (message.kind === "measured") {
      if (message.reset) parts = [];
      parts.push(
        /** @type {any} any: column by column, by its name */ (
          Object.fromEntries(
            Object.entries(STREAMED).map(([name, type], at) => [name, typed(buffers[at], /** @type {import("./types.d.ts").ArrayType} */ (type))]),
          )
        ),
      );
      reloadLower();
    } else if (message.kind === "file") {
      unpacked(buffers[0], message.type).then((blob) => offer(blob, message.name));
    } else if (message.kind === "png" && !nothing()) {
      const [width, height] = [box.clientWidth, box.clientHeight];
      const shown = { title: model.get("title"), caption: model.get("caption"), legend: used(false), width, height, ratio: PNG_RATIO };
      const keep = (/** @type {Context} */ context, /** @type {import("shared/types.d.ts").Theme} */ theme) =>
        paintChart(
          context,
          { width, height, theme, ratio: PNG_RATIO, span: view.visible(), whole: extentNow().whole, moving: false, fill: !model.get("height") },
          { ...state, unit: settled().unit },
        );
      picture(shown, keep)
        .then((blob) => offer(blob, message.name))
        .then(draw);
    }
  }

  onTheme(reloadTexts, cleanUp); // the strip and the legend are no canvas, which follows by itself
  onTraits(model, BAR_TRAITS, reloadUpper, cleanUp);
  onTraits(model, TEXT_TRAITS, reloadTexts, cleanUp);
  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  loadUpper();
  model.send({ kind: "hello" }); // Python answers with the lower bars so far
  return cleanUp.run;
}

/** @type {(className: string, color: string, text: string) => HTMLElement} */
function swatch(className, color, text) {
  return h("span", {}, h("i", { class: className, style: `color:${color}` }), text);
}

export default view(render);
