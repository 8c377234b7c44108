// A GPU's kind by its shape: data-centre cards are circles, laptops and processors boxes, consumer cards triangles.
const LAPTOP = /laptop|cpu|mobile|apple|\bm[1-4]\b|none|mx\d/i;
const CONSUMER = /rtx|gtx|geforce|titan|radeon|\brx\b|^\d{4}(\s?ti)?$/i;
const WORKSTATION = /rtx\s?a\d|rtx\s?pro|ada generation|\brtx\s?\d{4}\s?ada/i;

/**
 * "circle", "box" or "triangle".
 * @type {(name: string | undefined) => "circle" | "box" | "triangle"}
 */
export function gpuShape(name) {
  if (!name || LAPTOP.test(name)) return "box";
  return CONSUMER.test(name) && !WORKSTATION.test(name) ? "triangle" : "circle";
}
