// The drawing: cytoscape kept in step with a document, and gestures handed on as plain names.
import cytoscape from "cytoscape";
import edgehandles from "cytoscape-edgehandles";
import { onResize, oncePerFrame } from "../shared/dom.js";
import { onTheme, readTheme } from "../shared/theme.js";
import { linkFits } from "./document.js";
import { deviceId, elementsOf, linkId, pairId, regionId } from "./elements.js";
import { styleSheet } from "./style.js";

cytoscape.use(edgehandles);

const MANAGED_CLASSES = ["empty", "slow", "one-way"];
const CLOSEST = 1.4; // fitting two devices must not make giants of them

/**
 * `on` holds what the drawing reports: chosen(), moved(places), added(region, position),
 * linked(source, target), connected(regionA, regionB). `look()` gives {gpus, stages}.
 */
export function topologyGraph(container, on, look, cleanUp) {
  const cy = cytoscape({ container, style: [], layout: { name: "preset" }, minZoom: 0.08, maxZoom: 4, boxSelectionEnabled: true });
  cleanUp.add(() => cy.destroy());
  const restingPlaces = new Map();
  let document = null;
  let tool = "select";
  let unfitted = true;
  let fitted = null; // the view as it was fitted, to know whether a person has moved it since

  const restyle = () => {
    const { gpus, stages } = look();
    cy.style(styleSheet({ theme: readTheme(container), zoom: cy.zoom(), gpus, stages, nLines: cy.edges(".link, .pair").length, nRegions: cy.nodes(".region").length }));
    cy.nodes(".device").toggleClass("staged", Object.keys(stages).length > 0);
  };
  const restyleSoon = oncePerFrame(restyle, cleanUp);

  function draw(next) {
    rememberBoxes();
    document = next;
    const wanted = elementsOf(document, restingPlaces);
    const wantedIds = new Set(wanted.map((element) => element.data.id));
    cy.batch(() => {
      for (const element of wanted) { // regions come first, so that a device finds its parent
        const held = cy.getElementById(element.data.id);
        if (held.empty()) cy.add(element);
        else update(held, element);
      }
      // A region may only go once its devices have moved out: cytoscape removes children with their parent.
      cy.edges().filter((edge) => !wantedIds.has(edge.id())).remove();
      cy.nodes(".device").filter((node) => !wantedIds.has(node.id())).remove();
      cy.nodes(".region").filter((node) => !wantedIds.has(node.id())).remove();
    });
    restyle();
  }

  function update(held, { data, classes, position }) {
    const { id, source, target, parent, ...rest } = data;
    held.data(rest);
    for (const name of MANAGED_CLASSES) held.toggleClass(name, classes.split(" ").includes(name));
    if (data.kind === "device" && (held.parent().id() ?? undefined) !== parent) held.move({ parent: parent ?? null });
    if (position && (data.kind === "device" || held.isChildless())) held.position(position);
  }

  function rememberBoxes() {
    cy.nodes(".region").forEach((box) => { restingPlaces.set(box.data("name"), { ...box.position() }); });
  }

  function fit() {
    cy.resize();
    if (!container.clientWidth) { unfitted = true; return; }
    unfitted = false;
    if (cy.nodes().empty()) return;
    for (let pass = 0; pass < 2; pass++) { // text scales with zoom, and counts in the box that is fitted
      restyle();
      cy.fit(undefined, 34);
    }
    if (cy.zoom() > CLOSEST) { cy.zoom(CLOSEST); cy.center(); }
    fitted = viewport();
    restyle();
  }

  const viewport = () => JSON.stringify([cy.zoom(), cy.pan()]);

  const byKind = (kind) => cy.elements(":selected").filter((element) => element.data("kind") === kind);
  const chosen = () => ({
    devices: byKind("device").map((node) => node.data("name")),
    regions: byKind("region").map((node) => node.data("name")),
    links: byKind("link").map((edge) => ({ source: edge.data("from"), target: edge.data("to") })),
    pairs: byKind("pair").map((edge) => edge.data("regions")),
  });

  function choose({ devices = [], regions = [], links = [], pairs = [] }) {
    const ids = new Set([...devices.map(deviceId), ...regions.map(regionId), ...links.map(linkId), ...pairs.map(pairId)]);
    cy.batch(() => cy.elements().forEach((element) => { ids.has(element.id()) ? element.select() : element.unselect(); }));
  }

  const handles = cy.edgehandles({
    canConnect: (source, target) => source.hasClass("device") && target.hasClass("device")
      && linkFits(document, source.data("name"), target.data("name")),
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
    afterwards(() => { choosing = false; on.chosen(); });
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

  cy.on("ehcomplete", (_event, source, target, edges) => {
    edges.remove(); // the document draws the link itself
    afterwards(() => on.linked(source.data("name"), target.data("name")));
  });

  // edgehandles cannot aim at a box that the pointer is inside of; boxes are joined here.
  let from = null;
  let aim = null;
  cy.on("tapstart", "node.region", (event) => { if (tool === "link" && event.target.hasClass("region")) from = event.target; });
  cy.on("tapdrag", (event) => {
    if (!from) return;
    aim?.removeClass("aimed");
    aim = boxAt(event.position);
    aim?.addClass("aimed");
  });
  cy.on("tapend", () => {
    const [source, target] = [from, aim];
    aim?.removeClass("aimed");
    from = aim = null;
    if (source && target) afterwards(() => on.connected(source.data("name"), target.data("name")));
  });

  function boxAt({ x, y }) {
    const hit = cy.nodes(".region").filter((box) => {
      const { x1, x2, y1, y2 } = box.boundingBox({ includeLabels: false, includeOverlays: false });
      return !box.same(from) && x >= x1 && x <= x2 && y >= y1 && y <= y2;
    });
    return hit.nonempty() ? hit[0] : null;
  }

  cy.on("mouseover", "edge, node", (event) => point(event.target));
  cy.on("mouseout", "edge, node", () => cy.elements(".pointed").removeClass("pointed"));
  function point(target) {
    cy.elements(".pointed").removeClass("pointed");
    target.union(target.connectedEdges()).addClass("pointed");
  }

  cy.on("zoom", restyleSoon);
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
    cy, draw, fit, restyle: restyleSoon, chosen, choose, use,
    chooseAll: () => cy.elements().select(),
    nudge(dx, dy) {
      const nodes = cy.nodes(".device").filter((node) => node.selected() || node.parent().selected());
      nodes.shift({ x: dx, y: dy });
      return nodes.nonempty() ? places() : null;
    },
  };
}
