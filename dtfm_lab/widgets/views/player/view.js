// Plays an iteration: tells every view of the lab the displayed moment, frame by frame, without the kernel.
import { seconds } from "shared/axis.js";
import { isStill, onTime, pulse, tellTime } from "shared/bus.js";
import { cleanUps, frame, h, onTraits, targetOf } from "shared/dom.js";
import { kindColor, readTheme } from "shared/theme.js";
import { remembers } from "shared/memory.js";
import { view } from "shared/view.js";
import { captionAt } from "./page/captions.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

const LASTS_S = 6; // seconds of playback, however long the iteration takes
const REST_S = 0.7; // at the end of an iteration, before the next one
const JUMPS = 12; // in an iteration, where little motion is asked for
const STEPS = 1000; // of the slider
const CAPTIONED_S = 9; // seconds of the first iteration, whose captions are read meanwhile
const READ_S = 2.5; // that the last caption stays after the end
const TYPED_IN = "input:not([type=range]), textarea, select, button, [contenteditable], [role=option], [role=menuitem], [role=tab]";

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const own = {}; // tells this row's moments from those of another row of the same lab
  let at_s = 0,
    /** @type {number | null} */ told = null,
    before_ms = 0,
    frameId = 0,
    rested_s = 0;

  const icon = h("i", { class: "dtfm-player-icon", "aria-hidden": "true" });
  const word = h("span");
  const button = h("button", { type: "button", class: "dtfm-player-play", "aria-keyshortcuts": "Space", onclick: toggle }, icon, word);
  const slider = h("input", { type: "range", min: "0", max: String(STEPS), step: "1", "aria-label": "Moment of the iteration", oninput: scrub });
  const moment = h("output", { class: "dtfm-player-moment" });
  const what = h("span", { class: "dtfm-player-what" });
  const root = frame("dtfm-player", "Play the iteration");
  root.removeAttribute("tabindex"); // its controls take the focus
  const caption = h("div", { class: "dtfm-played-words", hidden: true });
  const seen = remembers("first-iteration");
  root.append(button, slider, moment, what, caption);
  el.append(root);

  const length = () => model.get("length_s");
  const known = () => Math.min(length(), model.get("known_s"));
  const isShown = () => root.offsetParent !== null;

  /** @type {(playing: boolean) => void} */
  function setPlaying(playing) {
    if (model.get("playing") === playing) return;
    model.set("playing", playing);
    model.save_changes();
  }

  const captions = () => (isStill() || seen.has() ? [] : model.get("captions"));
  let captioned = ""; // what is said now

  /** @type {(share: number) => void} */
  function showCaption(share) {
    const found = captionAt(captions(), share);
    caption.hidden = !found;
    if (!found || found.text === captioned) return;
    captioned = found.text;
    const { dark } = readTheme(el);
    caption.replaceChildren(
      h("span", { role: "status" }, found.text),
      ...found.kinds.map((kind) => h("span", {}, h("i", { class: "dtfm-played-words-dot", style: `background:${kindColor(kind, dark)}` }), kind)),
      h("button", { type: "button", class: "dtfm-plain", onclick: endCaptions }, "Skip"),
    );
  }

  function endCaptions() {
    if (model.get("captions").length) seen.set();
    caption.hidden = true;
  }

  /** The first iteration plays by itself, but not where little motion is asked for. */
  function beginCaptions() {
    if (model.get("captions").length && isStill()) setPlaying(false);
  }

  function toggle() {
    endCaptions();
    if (!length()) return;
    if (!model.get("playing") && at_s >= length()) at_s = 0;
    setPlaying(!model.get("playing"));
  }

  function scrub() {
    endCaptions();
    at_s = Math.min(known(), (Number(slider.value) / STEPS) * length());
    setPlaying(false);
    tell(at_s);
  }

  /** @type {(t_s: number | null) => void} */
  function tell(t_s) {
    told = t_s;
    tellTime(el, t_s === null ? null : { t_s, playing: model.get("playing"), by: own });
    showMoment();
  }

  /** @type {(now_ms: number) => void} */
  function step(now_ms) {
    frameId = 0;
    if (!model.get("playing") || !length()) return;
    const passed_s = Math.min(0.1, (now_ms - before_ms) / 1000); // a page that was hidden does not jump
    before_ms = now_ms;
    frameId = requestAnimationFrame(step);
    if (!isShown()) return; // another row of this lab plays
    if (at_s < length()) {
      at_s = Math.min(known(), at_s + (passed_s * length()) / (captions().length ? CAPTIONED_S : LASTS_S));
      rested_s = 0;
      showCaption(at_s / length());
      tell(isStill() ? (Math.floor((at_s / length()) * JUMPS) / JUMPS) * length() : at_s);
    } else if ((rested_s += passed_s) >= (captions().length ? READ_S : REST_S)) {
      at_s = rested_s = 0;
      if (model.get("captions").length) pulse(el); // what limits it comes next
      endCaptions();
      if (!model.get("loops")) setPlaying(false);
      tell(model.get("loops") ? 0 : null);
    }
  }

  function run() {
    if (model.get("playing") && length() && !frameId) {
      before_ms = performance.now();
      frameId = requestAnimationFrame(step);
    }
    show();
  }

  /** The iteration was replaced: the moment stays at the same share of it. */
  let was_s = length();
  function lengthen() {
    if (was_s > 0) at_s *= length() / was_s;
    was_s = length();
    if (!length()) {
      at_s = 0;
      if (told !== null) tell(null);
    } else if (told !== null && !model.get("playing")) tell(at_s);
    run();
  }

  function show() {
    const playing = model.get("playing") && length() > 0;
    word.textContent = playing ? "Pause" : "Play";
    icon.dataset.shows = playing ? "pause" : "play";
    const why = "Nothing to play yet: press Plan to predict an iteration";
    button.disabled = slider.disabled = !length();
    button.title = length() ? `${word.textContent} the iteration on the network (Space)` : why;
    slider.title = length() ? "Drag to any moment of the iteration" : why;
    const source = model.get("source");
    const which = source === "measured" ? `iteration ${model.get("iteration")}, measured` : source;
    what.textContent = length() ? [which, pace(LASTS_S / length())].filter(Boolean).join(" · ") : "nothing to play yet";
    what.title = what.textContent;
    showMoment();
  }

  function showMoment() {
    const share = length() ? Math.min(1, at_s / length()) : 0;
    slider.value = String(Math.round(share * STEPS));
    slider.style.setProperty("--known", `${length() ? (100 * known()) / length() : 0}%`);
    slider.style.setProperty("--at", `${100 * share}%`);
    const text = told === null || !length() ? "" : seconds(at_s);
    if (moment.textContent !== text) moment.textContent = text;
    slider.setAttribute("aria-valuetext", text || "not playing");
  }

  /** @type {(event: KeyboardEvent) => void} */
  function onKey(event) {
    const lab = el.closest(".dtfm-lab");
    if (event.key !== " " || event.defaultPrevented || !lab?.contains(targetOf(event)) || !isShown()) return;
    if (targetOf(event).closest?.(TYPED_IN)) return;
    event.preventDefault();
    toggle();
  }
  document.addEventListener("keydown", onKey);
  cleanUp.add(() => document.removeEventListener("keydown", onKey));
  cleanUp.add(() => cancelAnimationFrame(frameId));

  onTime(
    el,
    (time) => {
      // another row of the same lab
      if (time?.by === own) return;
      told = time === null ? null : time.t_s;
      at_s = told ?? 0;
      showMoment();
    },
    cleanUp,
  );
  onTraits(model, ["captions"], beginCaptions, cleanUp);
  onTraits(model, ["playing", "known_s"], run, cleanUp);
  onTraits(model, ["length_s"], lengthen, cleanUp);
  onTraits(model, ["source", "iteration"], show, cleanUp);
  beginCaptions();
  run();
  return cleanUp.run;
}

/**
 * How much slower, or faster, than the iteration it plays, to two digits.
 * @type {(factor: number) => string}
 */
function pace(factor) {
  const times = Number(Math.max(factor, 1 / factor).toPrecision(2)).toLocaleString("en-US");
  return `${times}\u00a0x\u00a0${factor >= 1 ? "slower" : "faster"} than real time`;
}

export default view(render);
