// The drawing: cytoscape kept in step with a document, and gestures handed on as plain names.
import cytoscape from "cytoscape";
import edgehandles from "cytoscape-edgehandles";
import { onResize, oncePerFrame } from "shared/dom.js";
import { onTheme, readTheme } from "shared/theme.js";
import { same } from "./document.js";
import { deviceId, edgesOf, MANY_LINKS, lineId, nodesOf, regionId } from "./elements.js";
import { regionJoining } from "./joining.js";
import { linkFits, lineOf, endsOf, isOneWay } from "./lines.js";
import { crowding, styleSheet } from "./style.js";

cytoscape.use(edgehandles);

const MANAGED_CLASSES = ["empty", "slow", "one-way", "filled"];
const CLOSEST = 1.4; // fitting two devices must not make giants of them
const ZOOM_STEP = 1.06; // texts grow and shrink in steps
const [RESTYLED_BY, RESTYLED_AFTER_MS] = [1.4, 120]; // to restyle everything is no work for every frame of a zoom
const PEEK = "peek";

/**
 * `on` holds what the drawing reports: chosen(), moved(places), added(region, position),
 * joined(kind, [a, b]), opened(region). `look()` gives {gpus, stages, filled}.
 */
export function topologyGraph(container, on, look, cleanUp) {
  const cy = cytoscape({ container, style: [], layout: { name: "preset" }, minZoom: 0.06, maxZoom: 4, boxSelectionEnabled: true });
  cleanUp.add(() => cy.destroy());
  const restingPlaces = new Map();
  let document = null;
  let tool = "select";
  let pointed = null; // the device under the pointer, of which many links may have to be drawn
  let coming = []; // devices of which a link is about to be selected
  let styled = "";
  let styledZoom = 1;
  let settling = 0;
  let unfitted = true;
  let fitted = null; // the view as it was fitted, to know whether a person has moved it since

  function restyle() {
    const { gpus, stages } = look();
    const zoom = ZOOM_STEP ** Math.round(Math.log(cy.zoom()) / Math.log(ZOOM_STEP));
    const crowd = crowding(cy.edges(".link, .pair").length, cy.nodes(".region").length);
    const sheet = { theme: readTheme(container), zoom, gpus, stages, ...crowd };
    if (JSON.stringify(sheet) === styled) return;
    styled = JSON.stringify(sheet);
    styledZoom = cy.zoom();
    cy.style(styleSheet(sheet));
    cy.nodes(".device").toggleClass("staged", Object.keys(stages).length > 0);
  }
  const restyleSoon = oncePerFrame(restyle, cleanUp);

  function draw(next) {
    rememberBoxes();
    document = next;
    const nodes = nodesOf(document, restingPlaces);
    const names = new Set(nodes.map((node) => node.data.id));
    cy.batch(() => {
      nodes.forEach(put); // regions come first, so that a device finds its parent
      drawEdges();
      // A region may only go once its devices have moved out: cytoscape removes children with their parent.
      cy.nodes(".device").filter((node) => !names.has(node.id())).remove();
      cy.nodes(".region").filter((node) => !names.has(node.id())).remove();
    });
    if (Object.keys(look().stages).length) cy.nodes(".device").addClass("staged");
    restyle();
  }

  /** The lines that help: of many links, those of what is chosen or pointed at. */
  function drawEdges() {
    const focus = new Set([...coming, ...byKind("device").map((node) => node.data("name")), ...byKind("link").map((edge) => edge.data("ends")).flat()]);
    if (pointed) focus.add(pointed);
    const edges = edgesOf(document, look().filled, focus);
    const ids = new Set(edges.map((edge) => edge.data.id));
    cy.batch(() => {
      edges.forEach(put);
      cy.edges(".link, .pair").filter((edge) => !ids.has(edge.id())).remove();
    });
  }
  const drawEdgesSoon = oncePerFrame(() => { drawEdges(); restyle(); }, cleanUp);
  const refocus = (how = drawEdges) => { if (document.links.length > MANY_LINKS) how(); };

  function put(element) {
    const held = cy.getElementById(element.data.id);
    if (held.empty()) cy.add(element);
    else update(held, element);
  }

  function update(held, { data, classes, position }) {
    const { id, source, target, parent, ...rest } = data;
    const before = held.data();
    if (Object.keys(rest).some((key) => before[key] !== rest[key] && !same(before[key], rest[key]))) held.data(rest);
    const wanted = classes.split(" ");
    for (const name of MANAGED_CLASSES) if (held.hasClass(name) !== wanted.includes(name)) held.toggleClass(name, wanted.includes(name));
    if (data.kind === "device" && (held.parent().id() ?? undefined) !== parent) held.move({ parent: parent ?? null });
    if (!position || (data.kind !== "device" && !held.isChildless())) return;
    const { x, y } = held.position();
    if (x !== position.x || y !== position.y) held.position(position);
  }

  function rememberBoxes() {
    cy.nodes(".region").forEach((box) => { restingPlaces.set(box.data("name"), { ...box.position() }); });
  }

  function fit(elements) {
    cy.resize();
    if (!container.clientWidth) { unfitted = true; return; }
    unfitted = false;
    if (cy.nodes().empty()) return;
    for (let pass = 0; pass < 2; pass++) { // text scales with zoom, and counts in the box that is fitted
      restyle();
      cy.fit(elements, 34);
    }
    if (cy.zoom() > CLOSEST) { cy.zoom(CLOSEST); cy.center(elements); }
    if (!elements) fitted = viewport();
    restyle();
  }

  const viewport = () => JSON.stringify([cy.zoom(), cy.pan()]);

  const byKind = (kind) => cy.elements(":selected").filter((element) => element.data("kind") === kind);
  const lines = (kind) => byKind(kind).map((edge) => ({ ends: edge.data("ends"), oneWay: edge.data("oneWay") }));
  const chosen = () => ({
    devices: byKind("device").map((node) => node.data("name")),
    regions: byKind("region").map((node) => node.data("name")),
    links: lines("link"),
    pairs: lines("pair"),
  });

  /** `links` and `pairs` are [a, b]: the line that rules this way, or the only one there is. */
  function choose({ devices = [], regions = [], links = [], pairs = [] }) {
    const ids = new Set([...devices.map(deviceId), ...regions.map(regionId), ...lineIds("link", links), ...lineIds("pair", pairs)]);
    coming = links.flat(); // of many links, theirs must be there before one of them can be selected
    refocus();
    coming = [];
    cy.batch(() => {
      cy.elements(":selected").filter((element) => !ids.has(element.id())).unselect();
      ids.forEach((id) => { const element = cy.getElementById(id); if (!element.selected()) element.select(); });
    });
  }

  const lineIds = (kind, pairs) => pairs.map((ends) => {
    const line = lineOf(document, kind, ends) ?? lineOf(document, kind, [ends[1], ends[0]]);
    return line ? lineId(kind, endsOf(line), isOneWay(line)) : lineId(kind, ends, false);
  });

  /** A line that no document holds: the way between two devices that are looked at. */
  function peek(ends) {
    const held = cy.getElementById(PEEK);
    if (ends && same(held.data("ends"), ends)) return;
    held.remove();
    if (ends && ends.every((name) => cy.getElementById(deviceId(name)).nonempty()))
      cy.add({ group: "edges", data: { id: PEEK, kind: "peek", ends, label: "", gbps: 1, source: deviceId(ends[0]), target: deviceId(ends[1]) }, classes: "peek", selectable: false });
  }

  /** Brings devices into view: moves as little as may be. */
  function reveal(names) {
    const nodes = cy.collection(names.map((name) => cy.getElementById(deviceId(name))).filter((node) => node.nonempty()));
    if (nodes.empty()) return;
    const { x1, x2, y1, y2 } = nodes.renderedBoundingBox({ includeLabels: false });
    const inside = x1 >= 0 && y1 >= 0 && x2 <= container.clientWidth && y2 <= container.clientHeight;
    if (!inside) fit(nodes);
  }

  const handles = cy.edgehandles({
    canConnect: (source, target) => source.hasClass("device") && target.hasClass("device")
      && linkFits(document, [source.data("name"), target.data("name")]),
    edgeParams: () => ({ data: { kind: "preview", gbps: 1 } }),
    snap: true, snapThreshold: 18, hoverDelay: 0,
  });
  cleanUp.add(() => handles.destroy());

  function use(nextTool) {
    tool = nextTool;
    if (tool === "link") handles.enableDrawMode();
    else handles.disableDrawMode();
    cy.autoungrabify(tool !== "select");
    cy.boxSelectionEnabled(tool === "select");
    container.style.cursor = tool === "select" ? "default" : "crosshair";
  }

  // After the gesture, not during: cytoscape selects what was tapped once its listeners have run.
  const afterwards = (work) => { const timer = setTimeout(work, 0); cleanUp.add(() => clearTimeout(timer)); };

  let choosing = false;
  cy.on("select unselect", () => {
    if (choosing) return;
    choosing = true;
    afterwards(() => { choosing = false; refocus(); restyle(); on.chosen(); });
  });

  let moving = false;
  cy.on("dragfree", "node", () => {
    if (moving) return;
    moving = true;
    afterwards(() => {
      moving = false;
      rememberBoxes();
      on.moved(places());
    });
  });

  const rounded = ({ x, y }) => ({ x: Math.round(x * 10) / 10, y: Math.round(y * 10) / 10 });
  const places = () => new Map(cy.nodes(".device").map((node) => [node.data("name"), rounded(node.position())]));

  cy.on("tap", (event) => {
    if (tool !== "add") return;
    const region = event.target === cy ? "" : event.target.hasClass?.("region") ? event.target.data("name") : null;
    if (region !== null) afterwards(() => on.added(region, rounded(event.position)));
  });
  // Cytoscape takes any two quick taps for a double one, wherever they were.
  let taps = [null, null];
  cy.on("tap", (event) => { taps = [taps[1], event.target]; });
  cy.on("dbltap", "node.region", ({ target, originalEvent }) => {
    if (tool === "select" && target.hasClass("region") && taps[0] === taps[1] && !originalEvent?.shiftKey) afterwards(() => on.opened(target.data("name")));
  });

  cy.on("ehcomplete", (_event, source, target, edges) => {
    edges.remove(); // the document draws the link itself
    afterwards(() => on.joined("link", [source.data("name"), target.data("name")]));
  });

  regionJoining(cy, () => tool === "link", (a, b) => afterwards(() => on.joined("pair", [a, b])));

  cy.on("mouseover", "edge, node", (event) => point(event.target));
  cy.on("mouseout", "edge, node", () => point(null));
  function point(target) {
    const device = target?.hasClass("device") ? target.data("name") : null;
    if (device !== pointed) { pointed = device; refocus(drawEdgesSoon); }
    cy.elements(".pointed").removeClass("pointed");
    target?.union(target.connectedEdges()).addClass("pointed");
  }

  cy.on("zoom", () => {
    clearTimeout(settling);
    const by = cy.zoom() / styledZoom;
    if (by > RESTYLED_BY || by < 1 / RESTYLED_BY) restyleSoon();
    else settling = setTimeout(restyleSoon, RESTYLED_AFTER_MS);
  });
  cleanUp.add(() => clearTimeout(settling));
  onTheme(restyleSoon, cleanUp);
  onResize(container, () => { cy.resize(); if (unfitted || fitted === viewport()) fit(); }, cleanUp);

  // Cytoscape remembers where its box is on the page, and misses the notebook scrolling beneath it.
  const relocate = () => cy.resize();
  for (const event of ["pointerenter", "pointerdown"]) container.addEventListener(event, relocate, { capture: true });
  cleanUp.add(() => { for (const event of ["pointerenter", "pointerdown"]) container.removeEventListener(event, relocate, { capture: true }); });

  // As with every canvas here, a wheel on its way down the notebook is let through.
  const wheel = (event) => cy.userZoomingEnabled(event.ctrlKey || event.metaKey || container.closest(".dtfm").contains(window.document.activeElement));
  container.addEventListener("wheel", wheel, { capture: true, passive: true });
  cleanUp.add(() => container.removeEventListener("wheel", wheel, { capture: true }));

  return {
    cy, draw, fit: () => fit(), restyle: restyleSoon, chosen, choose, use, peek, reveal,
    redrawEdges: drawEdgesSoon,
    chooseAll: () => cy.elements().not(".peek").select(),
    find(names) {
      const found = new Set(names.map(deviceId));
      cy.batch(() => cy.nodes(".device").forEach((node) => { node.toggleClass("found", found.has(node.id())); }));
    },
    /** The middle of what is seen, or the nearest place beside it where nobody stands. */
    freePlace() {
      const { x1, x2, y1, y2 } = cy.extent();
      const place = rounded({ x: (x1 + x2) / 2, y: (y1 + y2) / 2 });
      const taken = () => cy.nodes(".device").some((node) => Math.hypot(node.position("x") - place.x, node.position("y") - place.y) < 40);
      while (taken()) place.x += 60;
      return place;
    },
    nudge(dx, dy) {
      const nodes = cy.nodes(".device").filter((node) => node.selected() || node.parent().selected());
      nodes.shift({ x: dx, y: dy });
      return nodes.nonempty() ? places() : null;
    },
  };
}
