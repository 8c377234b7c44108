// Looks down on the globe: Lambert's azimuthal equal-area projection.
/** @import { Camera, Context, Globe, Ground, Place, Spot, Theme } from "../types.d.ts" */

const ROUND_THE_WORLD = 200; // degrees: where the widest gap in longitude is smaller, the world is seen from a pole
const BEHIND = -0.64; // cosine of 130 degrees from the centre: what is further is moved to the picture's edge
const NARROWEST = 0.2; // radii of the globe: in a smaller picture no one would recognise the coast
const DISC = 1.4; // radius of the disc against the furthest place from its centre
const LARGEST = 1.7;

/** @type {(degrees: number) => number} */
const radians = (degrees) => (degrees * Math.PI) / 180;
/** @type {(a: number[], b: number[]) => number} */
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
/** @type {(a: number[], b: number[]) => number[]} */
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
/** @type {(a: number[]) => number[]} */
const unit = (a) => {
  const size = Math.hypot(...a) || 1;
  return a.map((part) => part / size);
};

/** @type {(place: Place) => number[]} */
function onSphere([longitude, latitude]) {
  const [l, p] = [radians(longitude), radians(latitude)];
  return [Math.cos(p) * Math.cos(l), Math.cos(p) * Math.sin(l), Math.sin(p)];
}

/**
 * The view of places [longitude, latitude]: at their middle with north up, or at a pole with the widest gap up.
 * @type {(places: Place[]) => Globe}
 */
export function globeOf(places) {
  const longitudes = places.map(([longitude]) => longitude).sort((a, b) => a - b);
  const gaps = longitudes.map((longitude, at) => (at + 1 < longitudes.length ? longitudes[at + 1] : longitudes[0] + 360) - longitude);
  const widest = gaps.indexOf(Math.max(...gaps));
  /** @type {number[][]} */
  let [towards, up] = [[], []];
  if (gaps[widest] < ROUND_THE_WORLD) {
    const mean = places.reduce((sum, [, latitude]) => sum + latitude, 0) / places.length;
    const top = radians(longitudes[widest] + gaps[widest] / 2);
    [towards, up] = [
      [0, 0, mean > -15 ? 1 : -1],
      [Math.cos(top), Math.sin(top), 0],
    ];
  } else {
    const spheres = places.map(onSphere);
    towards = unit([0, 1, 2].map((axis) => spheres.reduce((sum, point) => sum + point[axis], 0)));
    up = unit([-towards[2] * towards[0], -towards[2] * towards[1], 1 - towards[2] ** 2]);
  }
  const right = cross(up, towards);

  /**
   * [x, y] with y downwards; 1.41 is 90 degrees from the centre.
   * @type {(place: Place) => Spot}
   */
  function project(place) {
    const point = onSphere(place);
    const depth = dot(point, towards);
    const [x, y] = [dot(point, right), -dot(point, up)];
    if (depth >= BEHIND) {
      const stretch = Math.sqrt(2 / (1 + depth));
      return [x * stretch, y * stretch];
    }
    const edge = Math.sqrt(2 * (1 - BEHIND)) / (Math.hypot(x, y) || 1);
    return [x * edge, y * edge];
  }

  const seen = places.map(project);
  const polar = gaps[widest] < ROUND_THE_WORLD;
  /** @type {(axis: number) => number} */
  const middle = (axis) => (Math.min(...seen.map((point) => point[axis])) + Math.max(...seen.map((point) => point[axis]))) / 2;
  const centre = polar ? [0, 0] : [middle(0), middle(1)];
  const reach = Math.max(...seen.map(([x, y]) => Math.hypot(x - centre[0], y - centre[1])));
  return { project, centre, radius: Math.min(LARGEST, Math.max(NARROWEST, reach * DISC)), shows: (place) => dot(onSphere(place), towards) > BEHIND };
}

/**
 * The land as one path in the globe's units; `tenths` are rings: a count, then so many longitudes and latitudes.
 * @type {(tenths: Int16Array, globe: Globe) => Path2D}
 */
export function landPath(tenths, globe) {
  const path = new Path2D();
  for (let at = 0; at < tenths.length;) {
    const count = tenths[at++];
    /** @type {Place[]} */
    const ring = Array.from({ length: count }, (_, point) => [tenths[at + 2 * point] / 10, tenths[at + 2 * point + 1] / 10]);
    at += 2 * count;
    if (!ring.some(globe.shows)) continue;
    ring.forEach((place, point) => path[point ? "lineTo" : "moveTo"](...globe.project(place)));
    path.closePath();
  }
  return path;
}

/**
 * Paints the disc, circles and land; `toScreen` maps the layout's pixels to the box, which the camera has zoomed `k` times.
 * @type {(context: Context, look: { land: Path2D, globe: Globe, ground: Ground }, camera: { toScreen: Camera["toScreen"], k: number }, theme: Theme & { land: string }) => void}
 */
export function paintGround(context, { land, globe, ground }, { toScreen, k }, theme) {
  const [x, y] = toScreen(ground.x, ground.y);
  const scale = ground.scale * k;
  const open = k < 0.97; // from afar, all of the globe
  const radius = (open ? 1.75 : globe.radius) * scale;
  if (radius <= 0) return; // a box that is not laid out yet
  context.save();
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.clip();
  context.translate(x - globe.centre[0] * scale, y - globe.centre[1] * scale);
  context.scale(scale, scale);
  context.fillStyle = theme.land;
  context.fill(land, "nonzero");
  context.strokeStyle = theme.softBorder; // a coast is seen where sea and land are nearly one grey
  context.lineWidth = 0.8 / scale;
  context.stroke(land);
  context.restore();
  context.strokeStyle = theme.softBorder;
  context.lineWidth = 1;
  context.globalAlpha = 0.7;
  for (const share of [1, 0.55]) {
    context.beginPath();
    context.arc(x, y, radius * share, 0, 2 * Math.PI);
    context.stroke();
  }
  context.globalAlpha = 1;
}
