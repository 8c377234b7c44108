// What part of the world is seen: Miller's projection, a centre and a scale; zoom, pan and flight.

const DEEPEST = 60; // pixels a degree: closer, the coarse outline says nothing
const [NORTH, SOUTH] = [millerY(83), millerY(-62)];
const FLIGHT_MS = 420;
const WORTH_TURNING = 60; // degrees that the view must get narrower by, to give up the usual cut through the Pacific
const NARROWEST = 22; // degrees: in less, nobody would know the coast

/** A latitude downwards, in degrees of the equator. */
export function millerY(latitude) {
  return (-180 / Math.PI) * 1.25 * Math.log(Math.tan(Math.PI / 4 + (0.4 * latitude * Math.PI) / 180));
}

/** `box` is what the view fills; `changed()` asks for a repaint. */
export function cameraOf(box, changed, cleanUp) {
  let [x, y, scale] = [0, 0, 3];
  let flying = 0;
  let touched = false; // a person looked elsewhere: fitting again would take that away
  cleanUp.add(() => cancelAnimationFrame(flying));

  const size = () => [box.clientWidth, box.clientHeight];
  const least = () => Math.max(1, size()[0] / 360);

  function look(nextX, nextY, nextScale) {
    const [, height] = size();
    scale = Math.min(DEEPEST, Math.max(least(), nextScale));
    const half = height / 2 / scale;
    x = ((((nextX + 180) % 360) + 360) % 360) - 180;
    y = SOUTH - NORTH > 2 * half ? Math.min(SOUTH - half, Math.max(NORTH + half, nextY)) : (NORTH + SOUTH) / 2;
    changed();
  }

  /** The turn of a longitude that is nearest to the middle of the view. */
  const turned = (longitude) => longitude + 360 * Math.round((x - longitude) / 360);
  const toScreen = (planeX, planeY) => {
    const [width, height] = size();
    return [width / 2 + (planeX - x) * scale, height / 2 + (planeY - y) * scale];
  };

  function zoom(factor, px, py) {
    const [width, height] = size();
    const [dx, dy] = [(px ?? width / 2) - width / 2, (py ?? height / 2) - height / 2];
    const next = Math.min(DEEPEST, Math.max(least(), scale * factor));
    const kept = 1 / scale - 1 / next; // what is under the pointer stays there
    stop();
    touched = true;
    look(x + dx * kept, y + dy * kept, next);
  }

  function pan(dx, dy) {
    stop();
    touched = true;
    look(x - dx / scale, y - dy / scale, scale);
  }

  function stop() {
    cancelAnimationFrame(flying);
    flying = 0;
  }

  function fly(toX, toY, toScale) {
    stop();
    touched = true;
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return look(toX, toY, toScale);
    const [fromX, fromY, fromScale] = [x, y, scale];
    const [wayX, wayY] = [toX + 360 * Math.round((x - toX) / 360) - x, toY - y];
    const begin = performance.now();
    const step = (now) => {
      const t = Math.min(1, (now - begin) / FLIGHT_MS);
      const eased = t * t * (3 - 2 * t);
      look(fromX + wayX * eased, fromY + wayY * eased, fromScale * (toScale / fromScale) ** eased);
      flying = t < 1 ? requestAnimationFrame(step) : 0;
    };
    flying = requestAnimationFrame(step);
  }

  /** Shows these places (longitude, latitude) with free margins (left, top, right, bottom); the world if there are none. */
  function fit(places, [left, top, right, bottom]) {
    stop();
    touched = false;
    const [width, height] = size();
    if (!width || !height) return;
    if (!places.length) return look(10, millerY(25), least());
    const [west, east] = span(places.map(([longitude]) => longitude));
    const ys = places.map(([, latitude]) => millerY(latitude));
    const [north, south] = [Math.min(...ys), Math.max(...ys)];
    const [wide, tall] = [Math.max(60, width - left - right), Math.max(60, height - top - bottom)];
    const fitting = Math.min(DEEPEST, Math.max(least(), Math.min(wide / Math.max(NARROWEST, east - west), tall / Math.max(NARROWEST / 3, south - north))));
    look((west + east) / 2 + (right - left) / 2 / fitting, (north + south) / 2 + (bottom - top) / 2 / fitting, fitting);
  }

  return {
    turned, toScreen, zoom, pan, fly, fit, look,
    get scale() { return scale; },
    get centre() { return [x, y]; },
    get touched() { return touched; },
    get flying() { return flying !== 0; },
  };
}

/** West and east of the narrowest window that holds these longitudes, or the usual one if that is hardly wider. */
function span(longitudes) {
  const sorted = [...longitudes].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted.at(-1)];
  let [widest, after] = [360 - (last - first), 0];
  for (let at = 1; at < sorted.length; at++)
    if (sorted[at] - sorted[at - 1] > widest) [widest, after] = [sorted[at] - sorted[at - 1], at];
  if (!after || 360 - widest + WORTH_TURNING > last - first) return [first, last];
  return [sorted[after], sorted[after - 1] + 360];
}
