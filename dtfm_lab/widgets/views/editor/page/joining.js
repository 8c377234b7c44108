// Regions are joined by dragging from box to box: edgehandles cannot aim at a box that the pointer is inside of.
/** @import cytoscape from "cytoscape" */

/**
 * `active()` says whether the tool is in hand, `joined(a, b)` takes two regions' names.
 * @type {(cy: cytoscape.Core, active: () => boolean, joined: (a: string, b: string) => void) => void}
 */
export function regionJoining(cy, active, joined) {
  /** @type {cytoscape.NodeSingular | null} */
  let from = null;
  /** @type {cytoscape.NodeSingular | null} */
  let aim = null;

  /** @type {(place: { x: number, y: number }) => cytoscape.NodeSingular | null} */
  function boxAt({ x, y }) {
    const hit = cy.nodes(".region").filter((box) => {
      const { x1, x2, y1, y2 } = box.boundingBox({ includeLabels: false, includeOverlays: false });
      return !(from && box.same(from)) && x >= x1 && x <= x2 && y >= y1 && y <= y2;
    });
    return hit.nonempty() ? hit[0] : null;
  }

  cy.on("tapstart", "node.region", (event) => {
    if (active() && event.target.hasClass("region")) from = event.target;
  });
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
    if (source && target) joined(source.data("name"), target.data("name"));
  });
}
