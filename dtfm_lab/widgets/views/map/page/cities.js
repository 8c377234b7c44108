// The cities between the regions: dots, and names where there is room.
import { millerY } from "./camera.js";

const DOTS_FROM = 2.2; // pixels a degree
const NAMES_FROM = 5;

/** Cities {name, place} so that the first few of them are spread over the world: names of these come first. */
export function spread(cities) {
  const rest = cities.map(([name, longitude, latitude]) => ({ name, place: [longitude, latitude], plane: [longitude, millerY(latitude)], far: Infinity }));
  const order = [];
  let next = rest.find(({ name }) => name === "London") ?? rest[0];
  while (next) {
    order.push(next);
    rest.splice(rest.indexOf(next), 1);
    for (const city of rest) city.far = Math.min(city.far, Math.hypot(city.plane[0] - next.plane[0], city.plane[1] - next.plane[1]));
    next = rest.reduce((best, city) => (!best || city.far > best.far ? city : best), null);
  }
  return order;
}

/** `boxes` are [left, top, right, bottom] that no name may cover; `eager` shows names however far away, never that of `without`. */
export function paintCities(context, cities, camera, { width, height, theme, boxes, eager, without }) {
  if (camera.scale < DOTS_FROM && !eager) return;
  const taken = [...boxes];
  const free = ([left, top, right, bottom]) => !taken.some(([l, t, r, b]) => left < r && right > l && top < b && bottom > t);
  const seen = cities
    .map((city) => ({ ...city, at: camera.toScreen(camera.turned(city.place[0]), city.plane[1]) }))
    .filter(({ at: [x, y] }) => x > -5 && x < width + 5 && y > -5 && y < height + 5);
  context.fillStyle = theme.softText;
  context.globalAlpha = eager ? 0.9 : 0.55;
  for (const { at: [x, y] } of seen) {
    context.beginPath();
    context.arc(x, y, eager ? 2 : 1.5, 0, 2 * Math.PI);
    context.fill();
  }
  if (camera.scale >= NAMES_FROM || eager) {
    context.font = theme.font.replace("12px", "10.5px");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.globalAlpha = 0.85;
    for (const { name, at: [x, y] } of seen) {
      if (name === without) continue;
      const wide = context.measureText(name).width;
      const box = [x - 3, y - 7, x + wide + 7, y + 7];
      if (!free(box)) continue;
      taken.push(box);
      halo(context, name, x + 5, y, theme);
    }
  }
  context.globalAlpha = 1;
}

/** Text that reads on land, sea and lines. */
export function halo(context, text, x, y, theme, color = theme.softText) {
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = theme.surface;
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}
