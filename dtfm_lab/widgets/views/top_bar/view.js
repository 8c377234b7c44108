// The bar over the lab: network, job, live numbers, one next action; and the headline.
import { cleanUps, h, onResize, onTraits, svg } from "shared/dom.js";
import { onTheme } from "shared/theme.js";
import { view } from "shared/view.js";
import { closeMenus, leaveMenus, onMenus, toggleMenu } from "./page/menus.js";
import { labKeys } from "./page/keys.js";
import { bringIntoView, leaveWindow, onWindow, toggleWindow } from "./page/window.js";
import { isDark } from "./page/dark.js";
import { bringBack, canBringBack, onGone } from "./page/gone.js";
import { copyLink, takeLink } from "./page/link.js";
import { nameControls } from "./page/names.js";
import { onWaiting } from "./page/waiting.js";
import { onRecord, record } from "./page/record.js";
import { pulse, shines } from "shared/bus.js";
import { split } from "./page/handle.js";
import { nextStep } from "./page/next.js";
import { there } from "shared/there.js";
/** @import { Message, Render } from "shared/types.d.ts" */
/** @import { Action, Handle, Headline, Traits } from "./types.d.ts" */

const NONE = "–"; // the value of a number that is not there yet
const MOST_LEFT_OUT = 5;
const READ_MS = 6000; // long enough to read a sentence
/** @type {`[${string}`} */
const FOCUSED = "[tabindex], button";
const LAST_PICTURE = { lead: "Python has ended.", rest: "This is the last picture of the lab.", kind: "error" };
const LOGO = [
  [6, 20, 0],
  [13, 9, 3],
  [22, 17, 5],
  [26, 6, 7],
]; // a pipeline of four stages
const VISITOR = "dtfm-visitor";
const COLORS = ["#442F9A", "#804CB4", "#BA6EC1", "#FCB1D0"];

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = h("div", { class: "dtfm dtfm-top", "data-lm-suppress-shortcuts": "true" });
  const bar = h("div", { class: "dtfm-bar", role: "group", "aria-label": "Lab" });
  const headline = h("div", { class: "dtfm-headline", role: "status", "aria-live": "polite" });
  root.append(bar, headline);
  el.append(root);

  /** @type {(name: string) => void} */
  const press = (name) => model.send({ kind: "press", name });
  const still = model.get("still");
  const next = nextStep(model, el, press);
  root.append(next.element);
  /** @type {(name: string, label: string) => HTMLElement & { disabled?: boolean }} */
  const picker = (name, label) =>
    h(
      still ? "div" : "button",
      {
        class: "dtfm-pick",
        ...(still
          ? {}
          : {
              type: "button",
              "data-menu": name,
              "aria-haspopup": "dialog",
              "aria-expanded": "false",
              onclick: (/** @type {{ currentTarget: HTMLElement }} */ event) => toggleMenu(el, name, event.currentTarget),
            }),
      },
      h("strong", {}, label),
      h("span", {}),
    );
  const network = picker("network", ""),
    job = picker("job", "");
  const numbers = h("div", { class: "dtfm-numbers", role: "group", "aria-label": "Live numbers" });
  const more = h(
    "button",
    {
      type: "button",
      class: "dtfm-plain",
      "data-menu": "more",
      "aria-haspopup": "dialog",
      "aria-expanded": "false",
      title: "Save, restore and share: page, link, video. Larger type",
      "aria-label": "Save, share",
      onclick: (event) => toggleMenu(el, "more", event.currentTarget),
    },
    h("span", { class: "dtfm-roomy" }, "Save, share"),
    h("span", { class: "dtfm-brief" }, "Share"),
  );
  const whole = h("button", {
    type: "button",
    class: "dtfm-plain dtfm-whole",
    "aria-label": "Whole window",
    title: "Show the lab in the whole window (F)",
    onclick: () => toggleWindow(el),
  });
  const action = h("button", { type: "button", class: "dtfm-go", onclick: act });
  bar.append(logo(), network, job, numbers, ...(still ? [] : [more, whole, action]));

  const dot = h("i", { class: "dtfm-dot", "aria-hidden": "true" });
  const lead = h("b", {}),
    rest = h("span", {}),
    sentence = h("span", { class: "dtfm-sentence" }, lead, " ", rest);
  const undo = h("button", { type: "button", class: "dtfm-plain", onclick: () => press("undo") }, "Undo");
  const live = h("button", {
    type: "button",
    class: "dtfm-plain dtfm-live",
    role: "switch",
    title: "Live: plan again after every edit",
    onclick: () => {
      model.set("live", !model.get("live"));
      model.save_changes();
    },
  });
  const words = h(
    "button",
    { type: "button", class: "dtfm-plain", "aria-label": "What the words mean", title: "What the words mean (?)", onclick: () => press("words") },
    "?",
  );
  const waiting = h("span", { class: "dtfm-waiting", role: "status" });
  headline.append(dot, sentence, waiting, ...(still ? [] : [undo, live]), words);

  let gone = false; // the kernel, and with it all that Python would say
  let comesBack = false;
  /** @type {{ left: number | string, stop: () => void } | null} */
  let recording = null; // { left, stop } while a video is made
  let closed = false; // the view
  /** @type {{ resolve: () => void, reject: (why: Error) => void, answered: boolean } | null} */
  let killing = null; // while a video waits for the kill that it is to show
  /** @type {Headline | null} */
  let told = null; // what the page itself has to say, until there is news
  let toldUntil = 0; // of performance.now(): until then no news replaces it
  let room = 0; // pixels wide, for the numbers
  /** @type {Map<string, number>} */
  const fitting = new Map(); // room and lengths of the texts -> how much is left out, as measuring lays the page out

  function showPickers() {
    for (const [button, trait, none] of /** @type {[HTMLElement, "network" | "job", string][]} */ ([
      [network, "network", "No network"],
      [job, "job", "No job"],
    ])) {
      const [name, of] = model.get(trait);
      there(button.firstChild).textContent = name || none;
      there(button.lastChild).textContent = of;
      button.title = `${name || none}${of ? `: ${of}` : ""}`;
    }
  }

  function showNumbers() {
    const focused = [...numbers.querySelectorAll(FOCUSED)].indexOf(/** @type {HTMLElement} */ (document.activeElement));
    numbers.replaceChildren(
      ...model.get("numbers").map(({ label, value, was, note, short, bad, word, why, under: [below = "", briefly = ""] = [], ask = {} }) =>
        h(
          "div",
          {
            class: `dtfm-number${below ? " dtfm-leads" : ""}${value === NONE ? " dtfm-none" : ""}`,
            "data-word-of": word,
            title: `${label}: ${value}${note ? `, ${note}` : ""}${below ? `; ${below}` : ""}${why ? `; ${why}` : ""}`,
          },
          h("span", { class: "dtfm-number-label", "data-word": word || null, tabindex: word ? "0" : null }, label),
          h(
            "span",
            { class: "dtfm-number-value" },
            was ? h("s", {}, was, " → ") : null,
            value,
            h("em", { class: `dtfm-long${bad ? " dtfm-bad" : ""}` }, note),
            h("em", { class: `dtfm-short${bad ? " dtfm-bad" : ""}` }, short),
            ask.name && !still ? h("button", { type: "button", class: "dtfm-ask", title: ask.title, onclick: () => press(there(ask.name)) }, ask.label) : null,
          ),
          below
            ? h(
                "span",
                { class: "dtfm-number-under", "data-word": "communication cost", tabindex: "0" },
                h("span", { class: "dtfm-long" }, below),
                h("span", { class: "dtfm-short" }, briefly),
              )
            : null,
        ),
      ),
    );
    fit();
    numbers.querySelectorAll(FOCUSED)[focused]?.focus({ preventScroll: true });
  }

  /** Leaves out what is said elsewhere too, until nothing is cut: long notes, throughput, price, all notes, then what was. */
  function fit() {
    const key = JSON.stringify([room, ...[...numbers.children].map((child) => child.textContent.length)]);
    if (!fitting.has(key)) fitting.set(key, measuredFit());
    numbers.dataset.leftOut = String(fitting.get(key));
  }

  function measuredFit() {
    for (let level = 0; level < MOST_LEFT_OUT; level++) {
      numbers.dataset.leftOut = String(level);
      if ([...numbers.children].reduce((sum, child) => sum + /** @type {HTMLElement} */ (child).offsetWidth, 0) <= numbers.clientWidth) return level;
    }
    return MOST_LEFT_OUT;
  }

  let written = "";
  /** @type {(text: string, handle: Handle) => (string | HTMLElement)[]} */
  function withHandle(text, { text: words = "", devices = [] }) {
    const [before, found, after] = split(text, words);
    if (!found || still) return [text];
    const what = devices.length === 2 ? { link: devices } : { devices };
    const attributes = { type: "button", class: "dtfm-handle", title: "Show it on the network", onclick: takeHandle, ...shines(el, what) };
    return [before, h("button", attributes, found), after];
  }

  function takeHandle() {
    press("handle");
    pulse(el);
  }

  function showHeadline() {
    const { lead: first = "", rest: then = "", kind = "" } = gone ? LAST_PICTURE : (told ?? model.get("headline"));
    const handle = gone || told ? {} : (model.get("headline").handle ?? {});
    if (written !== JSON.stringify([first, then, handle])) {
      // else the focus on the handle would be lost
      written = JSON.stringify([first, then, handle]);
      lead.replaceChildren(...withHandle(first, handle));
      rest.replaceChildren(...withHandle(then, handle));
    }
    headline.dataset.kind = kind;
    sentence.title = `${first} ${then}`;
    undo.hidden = gone || !model.get("can_undo");
    undo.title = `Undo: ${model.get("undo_label")} (Z)`;
    live.hidden = gone;
    const isLive = model.get("live");
    live.setAttribute("aria-checked", String(isLive));
    const note = isLive && model.get("live_note");
    live.replaceChildren(isLive ? "live" : "not live", note ? h("span", {}, ` · ${note}`) : "");
  }

  function act() {
    if (action.getAttribute("aria-disabled") === "true") return;
    if (recording && !gone) return recording.stop();
    if (!gone) return press(there(model.get("action").name));
    comesBack = true;
    showAction();
    bringBack(model).finally(() => {
      comesBack = false;
      showAction();
    });
  }

  function showAction() {
    const { label = "", why_not: why = "" } = gone ? restoring() : recording ? recordingAction(recording.left) : model.get("action");
    action.textContent = label;
    action.title = why;
    action.setAttribute("aria-disabled", String(Boolean(why))); // it stays reachable, and says why
  }

  /** @type {(left: number | string) => Action} */
  function recordingAction(left) {
    if (left !== "") return { label: `Stop recording (${left} s)` };
    return killing ? { label: "Cancel recording" } : { label: "Waiting for permission", why_not: "Allow your browser to record this tab" };
  }

  /** @type {() => Action} */
  function restoring() {
    if (comesBack) return { label: "Restoring…", why_not: "The lab is being restored" };
    return { label: "Restart and restore", why_not: canBringBack(model) ? "" : "This lab was not saved: run its cell again" };
  }

  /**
   * Asks Python for a kill; resolves when it is about to happen. Rejects with the reason if it cannot.
   * @type {() => Promise<void>}
   */
  const askForKill = () =>
    new Promise((resolve, reject) => {
      if (gone || closed) return reject(new Error("the lab has ended"));
      killing = { resolve, reject, answered: false };
      showAction();
      press("record-kill");
    });

  /** @type {(pane: HTMLElement, isKill: boolean) => Promise<void>} */
  async function recordPane(pane, isKill) {
    if (recording) return;
    recording = { left: "", stop: cancelKill };
    showAction();
    closeMenus(el);
    more.focus(); // the keys of the lab go on
    try {
      const tell = (/** @type {number} */ left, /** @type {() => void} */ stop) => {
        recording = { left, stop };
        showAction();
      };
      const name = await record(pane, tell, isKill ? askForKill : undefined);
      told = { lead: "Recorded.", rest: `${name} is among your downloads.` };
    } catch (thrown) {
      const error = /** @type {Error} */ (thrown);
      if (killing && !killing.answered) press("record-kill-cancel"); // nothing is killed without a video
      const refused = error.name === "NotAllowedError";
      told = { lead: "Nothing was recorded:", rest: refused ? "the browser was not allowed to capture this tab." : `${error.message}.`, kind: "error" };
    }
    recording = killing = null;
    showAction();
    showHeadline();
    // A run changes the headline many times a second, and this has to be read.
    toldUntil = performance.now() + READ_MS;
    setTimeout(() => {
      if (performance.now() < toldUntil) return;
      told = null;
      showHeadline();
    }, READ_MS + 50);
  }

  function cancelKill() {
    killing?.reject(new Error("it was cancelled"));
  }

  /** @type {(isGone: boolean) => void} */
  function showGone(isGone) {
    gone = isGone;
    if (gone) killing?.reject(new Error("Python has ended"));
    const lab = el.closest(".dtfm-lab");
    lab?.classList.toggle("dtfm-gone", gone);
    for (const part of /** @type {Iterable<HTMLElement>} */ (lab?.children ?? [])) if (!part.contains(root)) part.inert = gone;
    for (const button of [network, job, more]) button.disabled = gone;
    showHeadline();
    next.show(gone);
    showAction();
  }

  /** @type {(isWhole: boolean) => void} */
  function showWindow(isWhole) {
    whole.textContent = isWhole ? "⤡" : "⤢";
    whole.setAttribute("aria-pressed", String(isWhole));
  }

  function sendTheme() {
    if (model.get("dark") === isDark()) return;
    model.set("dark", isDark());
    model.save_changes();
  }

  onTraits(model, ["network", "job"], showPickers, cleanUp);
  onTraits(model, ["numbers"], showNumbers, cleanUp);
  onTraits(
    model,
    ["headline"],
    () => {
      if (performance.now() >= toldUntil || model.get("headline").kind === "error") told = null;
    },
    cleanUp,
  );
  onTraits(model, ["headline", "can_undo", "undo_label", "live", "live_note"], showHeadline, cleanUp);
  onTraits(model, ["action"], showAction, cleanUp);
  onTraits(model, ["step"], () => next.show(gone), cleanUp);
  /** @type {(message: Message) => void} */
  const onMessage = (message) => {
    if (message?.kind === "menu") toggleMenu(el, message.name, there(root.querySelector(`[data-menu="${message.name}"]`)));
    if (message?.kind === "kill" && killing) {
      killing.answered = true;
      if (message.why_not) killing.reject(new Error(message.why_not));
      else killing.resolve();
    }
    if (message?.kind === "copy") copyLink(message.link, message.address).then((done) => press(done ? "copied" : "not-copied"));
  };
  model.on("msg:custom", onMessage);
  cleanUp.add(() => model.off("msg:custom", onMessage));
  onTheme(sendTheme, cleanUp);
  onMenus(el, cleanUp);
  nameControls(el, cleanUp);
  onWindow(el, showWindow, cleanUp);
  const settled = setTimeout(() => bringIntoView(el), 300); // the lab comes into the page after its children
  cleanUp.add(() => clearTimeout(settled));
  if (!still) onWaiting(model, el, (isLate) => (waiting.textContent = isLate && !gone ? "Waiting for Python…" : ""), cleanUp);
  if (!still) onRecord(el, recordPane, cleanUp);
  cleanUp.add(() => {
    closed = true;
    killing?.reject(new Error("the lab was closed"));
  });
  labKeys(el, { press, toggleWindow: () => toggleWindow(el), leave: () => leaveMenus(el) || leaveWindow(el) }, cleanUp);
  onResize(
    numbers,
    () => {
      if (room !== numbers.clientWidth) {
        room = numbers.clientWidth;
        fit();
      }
    },
    cleanUp,
  );
  showPickers();
  showNumbers();
  showHeadline();
  next.show(gone);
  showAction();
  showWindow(false);
  sendTheme();
  if (!model.get("visitor")) {
    model.set("visitor", visitor(model.get("own_id")));
    model.save_changes();
  }
  onGone(model, showGone, cleanUp).catch(() => {}); // hosts of anywidget beside Jupyter have other kernels
  if (!still) takeLink(model, cleanUp);
  return cleanUp.run;
}

/**
 * The same after a reload, another in another tab.
 * @type {(fresh: string) => string}
 */
function visitor(fresh) {
  try {
    const known = sessionStorage.getItem(VISITOR) ?? fresh;
    sessionStorage.setItem(VISITOR, known);
    return known;
  } catch {
    // a browser that stores nothing
    return fresh;
  }
}

function logo() {
  const lines = LOGO.slice(1).map(([x, y], at) =>
    svg("line", { x1: LOGO[at][0], y1: LOGO[at][1], x2: x, y2: y, stroke: "currentColor", "stroke-width": 1.6, opacity: 0.5 }),
  );
  const dots = LOGO.map(([x, y], at) => svg("circle", { cx: x, cy: y, r: 4.2, fill: COLORS[at] }));
  return svg("svg", { class: "dtfm-logo", viewBox: "0 0 32 26", "aria-hidden": "true" }, ...lines, ...dots);
}

export default view(render);
