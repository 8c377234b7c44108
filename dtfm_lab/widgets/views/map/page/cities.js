// The cities between the regions: dots and names where there is room.
/** @import { Box, Camera, City, CitySpot, Context, Place, Theme } from "../types.d.ts" */

/**
 * Cities {name, place} so that the first few of them are spread over the world: names of these come first.
 * @type {(cities: [string, number, number][]) => City[]}
 */
export function spread(cities) {
  const rest = cities.map(([name, longitude, latitude]) => ({ name, place: /** @type {Place} */ ([longitude, latitude]), far: Infinity }));
  const order = [];
  let next = rest.find(({ name }) => name === "London") ?? rest[0];
  while (next) {
    order.push(next);
    rest.splice(rest.indexOf(next), 1);
    for (const city of rest) city.far = Math.min(city.far, Math.hypot(city.place[0] - next.place[0], city.place[1] - next.place[1]));
    next = rest.reduce((best, city) => (!best || city.far > best.far ? city : best), rest[0]);
  }
  return order;
}

/**
 * `cities` are {name, at}; `boxes` are [left, top, right, bottom] that no name may cover; the name `without` is written elsewhere.
 * @type {(context: Context, cities: CitySpot[], camera: Camera, look: { width: number, height: number, theme: Theme, boxes: Box[], without?: string }) => void}
 */
export function paintCities(context, cities, camera, { width, height, theme, boxes, without }) {
  const taken = [...boxes];
  /** @type {(box: Box) => boolean} */
  const free = ([left, top, right, bottom]) => !taken.some(([l, t, r, b]) => left < r && right > l && top < b && bottom > t);
  const seen = cities
    .map((city) => ({ ...city, at: camera.toScreen(...city.at) }))
    .filter(({ at: [x, y] }) => x > -5 && x < width + 5 && y > -5 && y < height + 5);
  context.fillStyle = theme.softText;
  context.globalAlpha = 0.8;
  for (const {
    at: [x, y],
  } of seen) {
    if (!free([x, y, x, y])) continue;
    context.beginPath();
    context.arc(x, y, 2, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
  context.font = theme.font;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 3;
  for (const {
    name,
    at: [x, y],
  } of seen) {
    if (name === without) continue;
    const box = [x - 3, y - 7, x + context.measureText(name).width + 7, y + 7];
    if (!free(box)) continue;
    taken.push(box);
    context.strokeStyle = theme.surface;
    context.strokeText(name, x + 5, y);
    context.fillStyle = theme.softText;
    context.fillText(name, x + 5, y);
  }
}

/**
 * A pin with a name at a place that is looked for and has no card.
 * @type {(context: Context, at: [number, number] | number[], name: string, theme: Theme) => void}
 */
export function paintPin(context, [x, y], name, theme) {
  context.fillStyle = theme.text;
  context.beginPath();
  context.arc(x, y - 15, 6, 0.8 * Math.PI, 2.2 * Math.PI);
  context.lineTo(x, y);
  context.closePath();
  context.fill();
  context.fillStyle = theme.surface;
  context.beginPath();
  context.arc(x, y - 15, 2.2, 0, 2 * Math.PI);
  context.fill();
  context.font = `650 ${theme.font}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = theme.surface;
  context.strokeText(name, x + 10, y - 14);
  context.fillStyle = theme.text;
  context.fillText(name, x + 10, y - 14);
}
