// Things pointed at anywhere in the lab stay lit here, the rest fades. A line marks the played moment.
import { isStill, onShine, onTime, shine } from "shared/bus.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Moment } from "shared/types.d.ts" */
/** @import { Context, Place, Pointed, Theme, Unit } from "../types.d.ts" */

const FADED = 0.28; // of a row that is not meant
const FADE_MS = 150;
const AFTER = 0.55; // of what is still to come, hidden
const PLATE = 18; // pixels of height

/**
 * `point(what)` tells the other views; `paint(context, place, theme, unit)` draws what they tell. `changed()` asks for that.
 * @type {(root: HTMLElement, changed: () => void, cleanUp: CleanUps) => { point: (what: Pointed) => void, paint: (context: Context, place: Place, theme: Theme, moment: (time: number) => string) => void }}
 */
export function lights(root, changed, cleanUp) {
  let said = "null";
  let meant = /** @type {Pointed} */ (null);
  let share = 0; // of the fading, 0 to 1
  let pending = 0;
  let time = /** @type {Moment} */ (null);
  cleanUp.add(() => cancelAnimationFrame(pending));
  cleanUp.add(() => point(null));

  /** @type {(what: Pointed) => void} */
  function point(what) {
    const now = JSON.stringify(what);
    if (now === said) return;
    said = now;
    shine(root, what);
  }

  /** @type {(to: number) => void} */
  function fade(to) {
    cancelAnimationFrame(pending);
    const [begin, began] = [share, performance.now()];
    /** @type {(now: number) => void} */
    const step = (now) => {
      const done = isStill() ? 1 : Math.min(1, (now - began) / FADE_MS);
      share = begin + (to - begin) * done;
      if (done < 1) pending = requestAnimationFrame(step);
      else if (!to) meant = null;
      changed();
    };
    pending = requestAnimationFrame(step);
  }

  onShine(
    root,
    (what) => {
      if (what) meant = what;
      fade(what ? 1 : 0);
    },
    cleanUp,
  );
  onTime(
    root,
    (now) => {
      time = now;
      changed();
    },
    cleanUp,
  );

  /** @type {(unit: Unit) => boolean} */
  function isMeant({ stage, replica, names, isOpen, depth }) {
    const { devices, link, stage: one, replica: pipeline } = there(meant);
    const named = devices ?? link;
    if (named) return names.some((name) => named.includes(name ?? "")) && (!isOpen || depth > 0 || names.every((name) => named.includes(name ?? "")));
    if (one !== undefined) return stage === one;
    return pipeline === undefined || replica < 0 || replica === pipeline;
  }

  /** @type {(context: Context, place: Place, theme: Theme, moment: (time: number) => string) => void} */
  function paint(context, place, theme, moment) {
    if (meant && share > 0 && place.shown.some(isMeant)) {
      context.fillStyle = theme.surface;
      context.globalAlpha = share * (1 - FADED);
      place.shown.forEach((unit, slot) => {
        const top = Math.max(place.top, place.slotTop(slot));
        const bottom = Math.min(place.rowsBottom, place.slotTop(slot) + place.heightOf(slot));
        if (bottom > top && !isMeant(unit)) context.fillRect(0, top, place.right + 1, bottom - top);
      });
      context.globalAlpha = 1;
    }
    if (time) paintTime(context, place, theme, moment);
  }

  /** @type {(context: Context, place: Place, theme: Theme, moment: (time: number) => string) => void} */
  function paintTime(context, place, theme, moment) {
    const { t_s } = there(time);
    const x = Math.min(place.right, Math.max(place.left, place.x(t_s)));
    context.fillStyle = theme.surface;
    context.globalAlpha = AFTER;
    context.fillRect(x, place.top, place.right - x + 1, place.rowsBottom - place.top);
    context.globalAlpha = 1;
    context.fillStyle = theme.text;
    context.fillRect(x - 0.75, place.top - 4, 1.5, place.rowsBottom - place.top + 4);
    context.font = `600 ${theme.font}`;
    const text = moment(t_s);
    const width = context.measureText(text).width + 12;
    const left = Math.min(place.right + 12 - width, x - width / 2);
    const under = [...place.labels, ...place.ticks].filter((label) => label.from < left + width + 6 && label.to > left - 6); // half a label says nothing
    const from = Math.min(left - 6, ...under.map((label) => label.from - (label.isBeyond ? 14 : 2))),
      to = Math.max(left + width + 6, ...under.map((label) => label.to));
    context.fillStyle = theme.surface;
    context.fillRect(from, 0, to - from, place.top - 4);
    context.fillStyle = theme.text;
    context.beginPath();
    context.roundRect(left, place.top - 5 - PLATE, width, PLATE, 4);
    context.fill();
    context.fillStyle = theme.surface;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, left + width / 2, place.top - 4.5 - PLATE / 2);
    context.font = theme.font;
  }

  return { point, paint };
}
