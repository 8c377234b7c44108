// The drawing: cytoscape kept in step with a document, and gestures handed on as plain names.
import cytoscape from "cytoscape";
import edgehandles from "cytoscape-edgehandles";
import { onResize, oncePerFrame } from "shared/dom.js";
import { onTheme, readTheme } from "shared/theme.js";
import { isMeant } from "shared/wheel.js";
import { same } from "./document.js";
import { boxAt, nearestFree } from "./drops.js";
import { deviceId, edgesOf, nodesOf, regionId } from "./elements.js";
import { regionJoining } from "./joining.js";
import { linkFits, lineOf, endsOf, isOneWay } from "./lines.js";
import { routes } from "./routes.js";
import { lineId, MANY_LINKS, sceneOf } from "./scene.js";
import { nearest, sizes, styleSheet } from "./style.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Document, Filled, Highlight, Point } from "shared/types.d.ts" */
/** @import { Bendable, Choice, Ends, LineKind, Scene, Selection, View } from "../types.d.ts" */

cytoscape.use(edgehandles);

/**
 * @typedef {object} Reports
 * @property {() => void} chosen
 * @property {(places: Map<string, Point>, joined?: Map<string, string>) => void} moved
 * @property {(region: string, position: Point) => void} added
 * @property {(kind: LineKind, ends: Ends) => void} joined
 * @property {(data: Named) => void} opened
 * @property {(host: string) => void} tapped
 * @property {(a: string, b: string) => void} swapped
 * @property {(data: Named | null) => void} pointed
 * @property {() => void} changed
 * @property {() => void} resized
 */
/** @typedef {{ id: string, kind: string, name: string, ends: Ends }} Named what cytoscape holds of an element: a line has no name, the others have no ends */
/** @typedef {{ destroy: () => void, enableDrawMode: () => void, disableDrawMode: () => void }} Handles */

const CLOSEST = 1.4; // fitting two devices must not make them huge
const ZOOM_STEP = 1.06; // devices keep their size on the screen, in steps
const MARGIN = { left: 16, right: 16, top: 16 }; // around a fitted drawing
const [RESTYLED_BY, RESTYLED_AFTER_MS] = [1.4, 120]; // restyling everything is too slow for every frame of a zoom
/**
 * `on` holds what the drawing reports: chosen(), moved(places, {device: region that it joined}), added(region, position), joined(kind, [a, b]),
 * opened(element), tapped(host, or empty for anything else), swapped(device, device), pointed({device | region | line} or null), changed() when the picture has to be painted again,
 * resized() when a fitted drawing has other room. `look()` gives {highlight, filled, below}: pixels of what stands below the drawing.
 * @param {HTMLElement} container
 * @param {Reports} on
 * @param {() => { highlight: Highlight, filled: Filled[], below: number }} look
 * @param {CleanUps} cleanUp
 */
export function topologyGraph(container, on, look, cleanUp) {
  const cy = cytoscape({ container, style: [], layout: { name: "preset" }, minZoom: 0.06, maxZoom: 4, boxSelectionEnabled: true });
  cleanUp.add(() => cy.destroy());
  /** @type {Map<string, Point>} */
  const restingPlaces = new Map();
  /** @type {Document} any: null until the first drawing, before which nothing asks for it */
  let document = /** @type {any} */ (null);
  /** @type {Scene} */
  let scene = sceneOf({ name: "", devices: [], regions: [], between: [], links: [], default: { latency_ms: 0, bandwidth_gbps: 0 } }, [], {}, new Set());
  let near = 90;
  let layout = 0; // counts changes that move things relative to each other
  /** @type {Ends | null} */
  let peeked = null;
  let tool = "select";
  /** @type {string | null} */
  let pointed = null; // the device under the pointer, whose many links may have to be drawn
  /** @type {string[]} */
  let coming = []; // devices whose link is about to be selected
  let styled = "";
  let styledZoom = 1;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let settling;
  let unfitted = true;
  /** @type {Map<string, { x1: number, x2: number, y1: number, y2: number }>} */
  let before = new Map(); // regions' boxes before the drag
  /** @type {string | null} */
  let aim = null; // the region that the dragged device would join
  /** @type {string | null} */
  let fitted = null; // the view as it was fitted, to know whether a person has moved it since

  function restyle() {
    const zoom = ZOOM_STEP ** Math.round(Math.log(cy.zoom()) / Math.log(ZOOM_STEP));
    const sheet = { zoom, near, ink: readTheme(container).text };
    on.changed();
    if (JSON.stringify(sheet) === styled) return;
    styled = JSON.stringify(sheet);
    styledZoom = cy.zoom();
    cy.style(/** @type {cytoscape.StylesheetJson} */ (styleSheet(sheet)));
    layout++;
  }
  const restyleSoon = oncePerFrame(restyle, cleanUp);

  /** @type {(next: Document) => void} */
  function draw(next) {
    rememberBoxes();
    document = next;
    compose();
    const nodes = nodesOf(scene, restingPlaces);
    const names = new Set(nodes.map((node) => node.data.id));
    cy.batch(() => {
      nodes.forEach(put); // regions come first, so that a device finds its parent
      putEdges();
      // A region may only go once its devices have moved out: cytoscape removes children with their parent.
      cy.nodes(".device")
        .filter((node) => !names.has(node.id()))
        .remove();
      cy.nodes(".region")
        .filter((node) => !names.has(node.id()))
        .remove();
    });
    restyle();
    route();
  }

  /** If there are many links, only those of chosen or pointed-at things are drawn. */
  function compose() {
    const focus = new Set([
      ...coming,
      ...byKind("device").map((node) => node.data("name")),
      ...byKind("link")
        .map((edge) => edge.data("ends"))
        .flat(),
    ]);
    if (pointed) focus.add(pointed);
    const { highlight, filled } = look();
    scene = sceneOf(document, filled, highlight, focus);
    near = nearest(scene.devices);
  }

  function putEdges() {
    const edges = edgesOf(scene);
    const ids = new Set(edges.map((edge) => edge.data.id));
    cy.batch(() => {
      edges.forEach(put);
      cy.edges(".link, .pair")
        .filter((edge) => !ids.has(edge.id()))
        .remove();
    });
  }

  /** Bends lines around things that they do not join. With too many lines, none is bent. */
  function route() {
    layout++;
    if (scene.lines.length > MANY_LINKS) return;
    const zoom = cy.zoom();
    const { height, width, host } = sizes(zoom, near);
    /** @type {(kind: LineKind, name: string) => Point} */
    const place = (kind, name) => cy.getElementById(kind === "link" ? deviceId(name) : regionId(name)).position();
    /** @type {(kind: LineKind) => (import("../types.d.ts").SceneLine & Bendable)[]} */
    const lines = (kind) =>
      scene.lines
        .filter((line) => line.kind === kind)
        .map((line) => ({
          ...line,
          a: place(kind, line.ends[0]),
          b: place(kind, line.ends[1]),
          twin: line.oneWay && scene.lines.some((other) => other.oneWay && other.ends[0] === line.ends[1] && other.ends[1] === line.ends[0]),
        }))
        .filter(({ a, b }) => a && b);
    const around = scene.devices.map(({ name, shape }) => {
      const { x, y } = place("link", name);
      const [half, wide] = shape === "host" ? [host.height / 2 / zoom, host.width / 2 / zoom] : [(height * 0.72) / zoom, (width * 0.66) / zoom];
      return { owner: name, x1: x - wide, x2: x + wide, y1: y - half, y2: y + half + 15 / zoom };
    });
    const boxes = scene.boxes.map(({ name }) => ({ owner: name, ...boxOf(name) }));
    const all = [...around, ...boxes];
    const [x, y] = [
      ["x1", "x2"],
      ["y1", "y2"],
    ].map(([low, high]) => [
      Math.min(...all.map((one) => one[/** @type {"x1" | "y1"} */ (low)])),
      Math.max(...all.map((one) => one[/** @type {"x2" | "y2"} */ (high)])),
    ]);
    const bounds = { x1: x[0] - 8 / zoom, x2: x[1] + 8 / zoom, y1: y[0] - MARGIN.top / zoom, y2: y[1] + 24 / zoom };
    const bends = new Map(
      /** @type {LineKind[]} */ (["link", "pair"]).flatMap((kind) => [...routes(lines(kind), kind === "link" ? around : boxes, 24 / zoom, bounds)]),
    );
    cy.batch(() =>
      bends.forEach((bend, id) => {
        const edge = cy.getElementById(id);
        if (edge.nonempty() && edge.data("bend") !== bend) edge.data("bend", bend);
      }),
    );
    on.changed();
  }

  /**
   * A region's box in the document's pixels.
   * @type {(name: string) => { x1: number, x2: number, y1: number, y2: number }}
   */
  const boxOf = (name) => {
    const resting = aim === null ? undefined : before.get(name); // a box is not stretched over the one that is aimed at
    if (resting) return resting;
    const { x1, x2, y1, y2 } = cy.getElementById(regionId(name)).boundingBox({ includeLabels: false, includeOverlays: false, includeEdges: false });
    return { x1, x2, y1, y2 };
  };

  function drawEdges() {
    compose();
    putEdges();
    restyle();
    route();
  }
  const drawEdgesSoon = oncePerFrame(drawEdges, cleanUp);
  /** @type {(how?: () => void) => void} */
  const refocus = (how = drawEdges) => {
    if (document.links.length > MANY_LINKS) how();
  };

  /** @type {(element: cytoscape.ElementDefinition) => void} */
  function put(element) {
    const held = cy.getElementById(there(element.data.id));
    if (held.empty()) cy.add(element);
    else update(held, element);
  }

  /** @type {(held: cytoscape.CollectionReturnValue, element: cytoscape.ElementDefinition) => void} */
  function update(held, { data, classes, position }) {
    const { id, source, target, parent, ...rest } = data;
    const before = held.data();
    if (Object.keys(rest).some((key) => before[key] !== rest[key] && !same(before[key], rest[key]))) held.data(rest);
    const empty = String(classes).includes("empty");
    if (held.hasClass("empty") !== empty) held.toggleClass("empty", empty);
    if (data.kind === "device") {
      const owner = /** @type {cytoscape.NodeSingular} */ (held.parent());
      if ((owner.id() ?? undefined) !== parent) held.move({ parent: parent ?? null });
    }
    if (!position || (data.kind !== "device" && !held.isChildless())) return;
    const { x, y } = held.position();
    if (x !== position.x || y !== position.y) held.position(position);
  }

  function rememberBoxes() {
    cy.nodes(".region").forEach((box) => {
      restingPlaces.set(box.data("name"), { ...box.position() });
    });
  }

  /** @type {(elements?: cytoscape.Collection) => void} */
  function fit(elements) {
    cy.resize();
    if (!container.clientWidth) {
      unfitted = true;
      return;
    }
    unfitted = false;
    if (cy.nodes().empty()) return;
    for (let pass = 0; pass < 3; pass++) {
      // sizes on the screen are the same at every zoom, and count in what is fitted
      restyle();
      fitOnce(elements ?? /** @type {cytoscape.Collection} */ (/** @type {unknown} */ (cy.nodes())));
    }
    if (!elements) fitted = viewport();
    restyle();
    route();
  }

  const roomFor = () => ({
    width: container.clientWidth - MARGIN.left - MARGIN.right,
    height: container.clientHeight - MARGIN.top - look().below,
  });

  /** @type {(elements: cytoscape.Collection) => void} */
  function fitOnce(elements) {
    const { x1, x2, y1, y2 } = elements.boundingBox({ includeLabels: false, includeOverlays: false, includeEdges: false });
    const { width: wide, height: high } = roomFor();
    const zoom = Math.min(CLOSEST, wide / Math.max(x2 - x1, 1), high / Math.max(y2 - y1, 1));
    cy.viewport({
      zoom,
      pan: {
        x: MARGIN.left + wide / 2 - ((x1 + x2) / 2) * zoom,
        y: MARGIN.top + high / 2 - ((y1 + y2) / 2) * zoom,
      },
    });
  }

  const viewport = () => JSON.stringify([cy.zoom(), cy.pan()]);

  /** @type {(kind: string) => cytoscape.Collection} */
  const byKind = (kind) => cy.elements(":selected").filter((element) => element.data("kind") === kind);
  /** @type {(kind: LineKind) => import("../types.d.ts").Chosen[]} */
  const lines = (kind) => byKind(kind).map((edge) => ({ ends: edge.data("ends"), oneWay: edge.data("oneWay") }));
  /** @type {() => Selection} */
  const chosen = () => ({
    devices: byKind("device").map((node) => node.data("name")),
    regions: byKind("region").map((node) => node.data("name")),
    links: lines("link"),
    pairs: lines("pair"),
  });

  /**
   * `links` and `pairs` are [a, b]: the line that rules this way, or the only one there is.
   * @type {(choice: Choice) => void}
   */
  function choose({ devices = [], regions = [], links = [], pairs = [] }) {
    const ids = new Set([...devices.map(deviceId), ...regions.map(regionId), ...lineIds("link", links), ...lineIds("pair", pairs)]);
    coming = links.flat(); // with many links, theirs must be drawn before one can be selected
    refocus();
    coming = [];
    cy.batch(() => {
      cy.elements(":selected")
        .filter((element) => !ids.has(element.id()))
        .unselect();
      ids.forEach((id) => {
        const element = cy.getElementById(id);
        if (!element.selected()) element.select();
      });
    });
  }

  /** @type {(kind: LineKind, pairs: Ends[]) => string[]} */
  const lineIds = (kind, pairs) =>
    pairs.map((ends) => {
      const line = lineOf(document, kind, ends) ?? lineOf(document, kind, [ends[1], ends[0]]);
      return line ? lineId(kind, endsOf(line), isOneWay(line)) : lineId(kind, ends, false);
    });

  /**
   * A link without a drawn line, between two devices on display.
   * @type {(ends: Ends | null) => void}
   */
  function peek(ends) {
    const next = ends && ends.every((name) => cy.getElementById(deviceId(name)).nonempty()) ? ends : null;
    if (same(next, peeked)) return;
    peeked = next;
    on.changed();
  }

  /**
   * Brings devices into view, moving as little as possible.
   * @type {(names: string[]) => void}
   */
  function reveal(names) {
    const nodes = cy.collection(
      /** @type {any} any: its types know no list of elements */ (names.map((name) => cy.getElementById(deviceId(name))).filter((node) => node.nonempty())),
    );
    if (nodes.empty()) return;
    const { x1, x2, y1, y2 } = nodes.renderedBoundingBox({ includeLabels: false });
    const inside = x1 >= 0 && y1 >= 0 && x2 <= container.clientWidth && y2 <= container.clientHeight;
    if (!inside) fit(nodes);
  }

  const handles = /** @type {cytoscape.Core & { edgehandles: (options: object) => Handles }} */ (cy).edgehandles({
    canConnect: (/** @type {cytoscape.NodeSingular} */ source, /** @type {cytoscape.NodeSingular} */ target) =>
      source.hasClass("device") && target.hasClass("device") && linkFits(document, [source.data("name"), target.data("name")]),
    edgeParams: () => ({ data: { kind: "preview" } }),
    snap: true,
    snapThreshold: 18,
    hoverDelay: 0,
  });
  cleanUp.add(() => handles.destroy());

  /** @type {(nextTool: string) => void} */
  function use(nextTool) {
    tool = nextTool;
    if (tool === "link") handles.enableDrawMode();
    else handles.disableDrawMode();
    cy.autoungrabify(tool !== "select");
    cy.boxSelectionEnabled(tool === "select");
    container.style.cursor = tool === "select" ? "default" : "crosshair";
  }

  // After the gesture, not during: cytoscape selects what was tapped once its listeners have run.
  /** @type {(work: () => void) => void} */
  const afterwards = (work) => {
    const timer = setTimeout(work, 0);
    cleanUp.add(() => clearTimeout(timer));
  };

  let choosing = false;
  cy.on("select unselect", () => {
    if (choosing) return;
    choosing = true;
    afterwards(() => {
      choosing = false;
      refocus();
      on.changed();
      on.chosen();
    });
  });

  /**
   * The device under a single dragged one, if both have a task: a drop would swap them.
   * @type {string | null}
   */
  let under = null;
  cy.on("grabon", "node.device", () => {
    before = new Map(scene.boxes.map(({ name }) => [name, boxOf(name)]));
  });
  /**
   * The region that a dragged device would join where it is, or null.
   * @type {(node: cytoscape.NodeSingular) => string | null}
   */
  const joining = (node) => {
    const [box, own] = [boxAt(node.position(), before), /** @type {cytoscape.NodeSingular} */ (node.parent()).data("name") ?? ""];
    return box === own ? null : box;
  };
  cy.on("drag", "node.device", ({ target }) => {
    const region = joining(target);
    if (region !== aim) {
      aim = region;
      cy.nodes(".region").forEach((box) => void box.toggleClass("aimed", box.data("name") === region));
      layout++;
      on.changed();
    }
    const alone = cy.nodes(":grabbed").length === 1 && !(target.selected() && byKind("device").length > 1);
    const reach = (0.6 * sizes(cy.zoom(), near).height) / cy.zoom();
    const [at, names] = [target.position(), scene.tasks];
    const other =
      alone && target.data("name") in names
        ? cy
            .nodes(".device")
            .filter((node) => !node.same(target) && node.data("name") in names && Math.hypot(node.position("x") - at.x, node.position("y") - at.y) < reach)
        : [];
    under = other.length ? other[0].data("name") : null;
  });

  let moving = false;
  cy.on("dragfree", "node", ({ target }) => {
    if (moving) return;
    moving = true;
    afterwards(() => {
      moving = false;
      const other = under;
      under = null;
      const joined = target.hasClass("device") ? joinedBy(target) : new Map();
      aim = null;
      cy.nodes(".region").removeClass("aimed");
      if (other) return on.swapped(target.data("name"), other);
      if (target.hasClass("device")) setApart(dragged(target));
      rememberBoxes();
      route();
      on.moved(places(), joined);
    });
  });

  /**
   * All devices that a drag has moved: the selected ones, if the one in hand is among them.
   * @type {(target: cytoscape.NodeSingular) => cytoscape.NodeCollection}
   */
  const dragged = (target) => (target.selected() ? cy.nodes(".device:selected") : cy.nodes(".device").filter((node) => node.same(target)));
  /**
   * {device: region} of those dropped on another region's box.
   * @type {(target: cytoscape.NodeSingular) => Map<string, string>}
   */
  const joinedBy = (target) =>
    new Map(
      dragged(target)
        .toArray()
        .flatMap((node) => {
          const region = joining(/** @type {cytoscape.NodeSingular} */ (node));
          return region === null ? [] : [/** @type {[string, string]} */ ([node.data("name"), region])];
        }),
    );

  /**
   * Moves each of these devices to the nearest place where it covers no other.
   * @type {(moved: cytoscape.NodeCollection) => void}
   */
  function setApart(moved) {
    const { height, width, host } = sizes(cy.zoom(), near);
    const least = (1.1 * (scene.hostOf.size ? host.width : Math.max(height, width))) / cy.zoom();
    moved.forEach((node) => {
      const others = cy
        .nodes(".device")
        .filter((other) => !other.same(node))
        .map((other) => /** @type {cytoscape.NodeSingular} */ (other).position());
      const free = (/** @type {Point} */ { x, y }) => others.every((other) => Math.hypot(other.x - x, other.y - y) >= least);
      const at = node.position();
      if (!free(at)) node.position(nearestFree(at, least / 3, free));
    });
  }

  /** @type {(place: Point) => Point} */
  const rounded = ({ x, y }) => ({ x: Math.round(x * 10) / 10, y: Math.round(y * 10) / 10 });
  /** @type {() => Map<string, Point>} */
  const places = () => new Map(cy.nodes(".device").map((node) => [node.data("name"), rounded(node.position())]));

  cy.on("tap", (event) => {
    if (tool !== "add") return;
    const region = event.target === cy ? "" : event.target.hasClass?.("region") ? event.target.data("name") : null;
    if (region !== null) afterwards(() => on.added(region, rounded(event.position)));
  });
  cy.on("tap", ({ target, originalEvent }) => {
    const { shiftKey, ctrlKey, metaKey } = originalEvent;
    const isHost = tool === "select" && target !== cy && target.data("shape") === "host" && !shiftKey && !ctrlKey && !metaKey;
    afterwards(() => on.tapped(isHost ? target.data("name") : ""));
  });
  // A double click is what the browser takes for one, at the person's own pace; cytoscape allows a quarter of a second,
  // wherever the two taps were. But only cytoscape reports touches.
  /** @type {{ target: any, position: Point }[]} */
  let taps = [];
  cy.on("tap", ({ target, position }) => {
    taps = [taps.at(-1), { target, position }];
  });
  /** @type {(event: MouseEvent) => void} */
  const twice = ({ shiftKey }) => {
    const [first, last] = taps;
    if (tool !== "select" || shiftKey || !last || first?.target !== last.target) return;
    if (last.target === cy) afterwards(() => on.added("", rounded(last.position)));
    else afterwards(() => on.opened(last.target.data()));
  };
  cy.on("dbltap", ({ originalEvent }) => {
    if (originalEvent.type.startsWith("touch")) twice(originalEvent);
  });
  container.addEventListener("dblclick", twice);
  cleanUp.add(() => container.removeEventListener("dblclick", twice));

  cy.on("ehcomplete", (_event, source, target, edges) => {
    edges.remove(); // the document draws the link itself
    afterwards(() => on.joined("link", [source.data("name"), target.data("name")]));
  });

  regionJoining(
    cy,
    () => tool === "link",
    (a, b) => afterwards(() => on.joined("pair", [a, b])),
  );

  cy.on("mouseover", "edge, node", (event) => point(event.target));
  cy.on("mouseout", "edge, node", () => point(null));
  /** @type {(target: any) => void} */
  function point(target) {
    const device = target?.hasClass("device") ? target.data("name") : null;
    if (device !== pointed) {
      pointed = device;
      refocus(drawEdgesSoon);
    }
    on.pointed(target ? target.data() : null);
  }

  cy.on("position", "node", () => {
    layout++;
    on.changed();
  });
  cy.on("pan", on.changed);
  cy.on("zoom", () => {
    clearTimeout(settling);
    layout++;
    on.changed();
    const by = cy.zoom() / styledZoom;
    if (by > RESTYLED_BY || by < 1 / RESTYLED_BY) restyleSoon();
    else settling = setTimeout(restyleSoon, RESTYLED_AFTER_MS);
  });
  cleanUp.add(() => clearTimeout(settling));
  onTheme(restyleSoon, cleanUp);
  onResize(
    container,
    () => {
      cy.resize();
      if (unfitted || fitted === viewport()) on.resized();
    },
    cleanUp,
  );

  // Cytoscape remembers where its box is on the page, and misses the notebook scrolling beneath it.
  const relocate = () => cy.resize();
  for (const event of ["pointerenter", "pointerdown"]) container.addEventListener(event, relocate, { capture: true });
  cleanUp.add(() => {
    for (const event of ["pointerenter", "pointerdown"]) container.removeEventListener(event, relocate, { capture: true });
  });

  /** @type {(event: WheelEvent) => void} */
  const wheel = (event) => cy.userZoomingEnabled(isMeant(event, there(container.closest(".dtfm"))));
  container.addEventListener("wheel", wheel, { capture: true, passive: true });
  cleanUp.add(() => container.removeEventListener("wheel", wheel, { capture: true }));

  return {
    cy,
    draw,
    fit: () => fit(),
    /** Pixels for a fitted drawing; null while it is not on the screen. */
    room: () => (container.clientWidth ? roomFor() : null),
    restyle: restyleSoon,
    chosen,
    choose,
    use,
    peek,
    reveal,
    redrawEdges: drawEdges,
    has: (/** @type {string} */ id) => cy.getElementById(id).nonempty(),
    chooseAll: () => cy.elements().select(),
    get scene() {
      return scene;
    },
    get peeked() {
      return peeked;
    },
    get layout() {
      return layout;
    },
    /** Sizes and places on the screen, in pixels of the container. */
    view() {
      const [zoom, pan] = [cy.zoom(), cy.pan()];
      const toScreen = (/** @type {Point} */ { x, y }) => ({ x: x * zoom + pan.x, y: y * zoom + pan.y });
      const device = (/** @type {string} */ name) => {
        const node = cy.getElementById(deviceId(name));
        return node.nonempty() ? toScreen(node.position()) : null;
      };
      const box = (/** @type {string} */ name) => {
        if (cy.getElementById(regionId(name)).empty()) return null;
        const { x1, x2, y1, y2 } = boxOf(name);
        const [a, b] = [toScreen({ x: x1, y: y1 }), toScreen({ x: x2, y: y2 })];
        return { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
      };
      return {
        zoom,
        apart: near * zoom,
        ...sizes(zoom, near),
        toScreen,
        device,
        box,
        bend: (/** @type {string} */ id) => (cy.getElementById(id).data("bend") ?? 0) * zoom,
      };
    },
    isSelected: (/** @type {string} */ id) => cy.getElementById(id).selected(),
    nSelected: () => cy.elements(":selected").length,
    /** The region that a line is about to be drawn to; empty for none. */
    aimed: () => cy.nodes(".aimed").data("name") ?? "",
    /** The device that would be swapped with the dragged one, or null. */
    under: () => under,
    /** Where a device is in the document, or undefined if it is not drawn. */
    place: (/** @type {string} */ name) => cy.getElementById(deviceId(name)).position(),
    /** The middle of the view, or the nearest free place to it. */
    freePlace() {
      const { x1, x2, y1, y2 } = cy.extent();
      const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
      const boxes = scene.boxes.map(({ name }) => boxOf(name));
      const free = (/** @type {Point} */ place) =>
        !scene.devices.some(({ name }) => {
          const at = cy.getElementById(deviceId(name)).position();
          return Math.hypot(at.x - place.x, at.y - place.y) < 0.8 * near;
        }) && !boxes.some((box) => place.x > box.x1 - near / 2 && place.x < box.x2 + near / 2 && place.y > box.y1 - near / 2 && place.y < box.y2 + near / 2);
      return rounded(nearestFree({ x, y }, near, free));
    },
    nudge(/** @type {number} */ dx, /** @type {number} */ dy) {
      const nodes = cy.nodes(".device").filter((node) => node.selected() || /** @type {cytoscape.NodeSingular} */ (node.parent()).selected());
      nodes.shift({ x: dx, y: dy });
      return nodes.nonempty() ? places() : null;
    },
  };
}
