// The outline of the continents, from the bytes that Python sends.
import { millerY } from "./camera.js";

/** One path in the plane of the map; `tenths` are rings: a count, then so many longitudes and latitudes. */
export function landPath(tenths) {
  const path = new Path2D();
  for (let at = 0; at < tenths.length;) {
    const count = tenths[at++];
    for (let point = 0; point < count; point++, at += 2)
      path[point ? "lineTo" : "moveTo"](tenths[at] / 10, millerY(tenths[at + 1] / 10));
    path.closePath();
  }
  return path;
}

export function paintLand(context, path, camera, width, theme) {
  const [left] = camera.centre.map((middle) => middle - width / 2 / camera.scale);
  const right = left + width / camera.scale;
  for (let turn = Math.floor((left - 200) / 360); turn <= Math.ceil((right + 200) / 360); turn++) {
    const [x, y] = camera.toScreen(turn * 360, 0);
    context.save();
    context.translate(x, y);
    context.scale(camera.scale, camera.scale);
    context.fillStyle = theme.raised;
    context.fill(path, "evenodd");
    context.strokeStyle = theme.border;
    context.lineWidth = 0.7 / camera.scale;
    context.stroke(path);
    context.restore();
  }
}
