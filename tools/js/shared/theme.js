// Colours: the notebook's own variables for surfaces and text, Okabe-Ito for data.
/** @import { CleanUps, Kind, Theme } from "./types.d.ts" */

export const ORANGE = "#E69F00";
export const SKY = "#56B4E9";
export const GREEN = "#009E73";
export const YELLOW = "#F0E442";
export const BLUE = "#0072B2";
export const PURPLE = "#CC79A7";
export const GREY = "#8a8a8a";

/** For things told apart by colour; vermillion is kept for "look here". */
export const CATEGORIES = [BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW];

/**
 * The stage's colour on an ordered ramp from indigo to rose, unique at any number of stages; its number stands on it or
 * beside it. The ramp is even in OKLCH; figures/palette.py has the same one.
 * @type {(stage: number, nStages: number, dark?: boolean) => string}
 */
export function stageColor(stage, nStages, dark = false) {
  const key = `${stage}/${nStages}/${dark}`;
  if (!rampColors.has(key)) {
    const t = nStages > 1 ? stage / (nStages - 1) : 0;
    const lightness = dark ? 0.47 + 0.39 * t : 0.4 + 0.44 * t;
    rampColors.set(key, fromOklch(lightness, 0.165 + 0.02 * Math.sin(Math.PI * t) - 0.07 * t, ((285 + 68 * t) * Math.PI) / 180));
  }
  return /** @type {string} */ (rampColors.get(key));
}
/** @type {Map<string, string>} */
const rampColors = new Map();

/**
 * Hexadecimal sRGB; channels outside the gamut are clipped.
 * @type {(lightness: number, chroma: number, hue: number) => string}
 */
function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue),
    b = chroma * Math.sin(hue);
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
  ];
  return `#${linear
    .map((channel) =>
      toByte(Math.min(1, Math.max(0, channel)))
        .toString(16)
        .padStart(2, "0")
        .toUpperCase(),
    )
    .join("")}`;
}

/**
 * A linear channel from 0 to 1 as a byte of sRGB.
 * @type {(linear: number) => number}
 */
const toByte = (linear) => Math.round(255 * (linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055));

/** @type {Record<Kind, [string, string]>} */
const KINDS = {
  forward: ["#3b8fd0", "#5fb0ec"],
  backward: ["#e0981b", "#f0b044"],
  averaging: ["#1f9d74", "#3fc298"],
  step: ["#8a8a92", "#9a9aa4"],
};

/**
 * The hue of a kind of action, "forward", "backward", "averaging" or "step", the same in every view.
 * @type {(kind: Kind, dark?: boolean) => string}
 */
export const kindColor = (kind, dark = false) => KINDS[kind][dark ? 1 : 0];

/**
 * For what is wrong, slowed or dead, and nothing else.
 * @type {(dark?: boolean) => string}
 */
export const alarm = (dark = false) => (dark ? "#ff6377" : "#c8283e");

/**
 * White or a dark plum, whichever has more contrast on a colour by WCAG's luminance.
 * @type {(hex: string) => string}
 */
export function inkOn(hex) {
  const [red, green, blue] = [1, 3, 5]
    .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) ** 2 > 1.05 * (PLUM_LUMINANCE + 0.05) ? "#1B0F1D" : "#ffffff";
}
const PLUM_LUMINANCE = 0.007;

const KEPT_MS = 500; // how long a theme is taken to last where nobody tells of its end
/** @type {WeakMap<Element, { theme: Theme, until: number }>} */
let themes = new WeakMap(); // lab, or element outside of one -> {theme, until}

/**
 * The colours in force where `element` stands; canvases cannot use CSS variables themselves.
 * @type {(element: Element) => Theme}
 */
export function readTheme(element) {
  const place = element.closest(".dtfm-lab") ?? element;
  const known = themes.get(place);
  if (known && performance.now() < known.until) return known.theme;
  const theme = freshTheme(element);
  if (element.isConnected) themes.set(place, { theme, until: performance.now() + KEPT_MS });
  return theme;
}

/**
 * To read a style lays the page out, so it is not done at every frame.
 * @type {(element: Element) => Theme}
 */
function freshTheme(element) {
  const style = getComputedStyle(element);
  /** @type {(name: string, fallback: string) => string} */
  const variable = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: variable("--jp-ui-font-color1", "#212121"),
    softText: variable("--jp-ui-font-color2", "#616161"),
    surface: variable("--jp-layout-color1", "#ffffff"),
    raised: variable("--jp-layout-color2", "#eeeeee"),
    border: variable("--jp-border-color1", "#bdbdbd"),
    softBorder: variable("--jp-border-color2", "#e0e0e0"),
    dark: isDark(variable("--jp-layout-color1", "#ffffff")),
    font: "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
  };
}

/**
 * Whether a surface of this colour is dark.
 * @type {(color: string) => boolean}
 */
export function isDark(color) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(color)?.[1];
  if (!hex) return false;
  const wide = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return parseInt(wide.slice(2, 4), 16) < 128;
}

/** After a theme is named: when it is read again in any case, and how long for a late style sheet, in tenths of a second. */
const SETTLED_LOOKS = 3,
  MOST_LOOKS = 50;
const paper = () => getComputedStyle(document.body).getPropertyValue("--jp-layout-color0");

/**
 * Calls `handler` when the notebook changes its theme, until clean-up.
 * @type {(handler: () => void, cleanUp: CleanUps) => void}
 */
export function onTheme(handler, cleanUp) {
  // JupyterLab names the theme on the body before its style sheet is in force: a moment, or a second on a busy machine.
  let looking = 0;
  const changed = () => {
    themes = new WeakMap();
    handler();
  };
  const observer = new MutationObserver(() => {
    changed();
    clearInterval(looking);
    let looks = 0,
      seen = paper();
    looking = window.setInterval(() => {
      const now = paper();
      looks += 1;
      if (now !== seen || looks === SETTLED_LOOKS) changed();
      seen = now;
      if (looks === MOST_LOOKS) clearInterval(looking);
    }, 100);
  });
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ["class", "data-jp-theme-name", "data-jp-theme-light", "data-theme"],
  });
  cleanUp.add(() => {
    observer.disconnect();
    clearInterval(looking);
  });
}

const RAMP = ["#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154"]; // viridis, light is cheap

/**
 * A colour for a share between 0 (cheap) and 1 (dear).
 * @type {(share: number) => string}
 */
export function rampColor(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  /** @type {(hex: string, index: number) => number} */
  const channel = (hex, index) => parseInt(hex.slice(1 + 2 * index, 3 + 2 * index), 16);
  const mix = [0, 1, 2].map((index) => {
    const from = channel(RAMP[low], index);
    return Math.round(from + (channel(RAMP[low + 1], index) - from) * (at - low));
  });
  return `#${mix.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}
