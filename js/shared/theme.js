// Colours: the notebook's own variables for surfaces and text, Okabe-Ito for data.

export const ORANGE = "#E69F00";
export const SKY = "#56B4E9";
export const GREEN = "#009E73";
export const YELLOW = "#F0E442";
export const BLUE = "#0072B2";
export const VERMILLION = "#D55E00";
export const PURPLE = "#CC79A7";
export const CRIMSON = "#C2003B"; // the critical path, in a white casing
export const GREY = "#8a8a8a";

/** For things told apart by colour; vermillion is kept for "look here". */
export const CATEGORIES = [BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW];

export const categoryColor = (index) => CATEGORIES[index % CATEGORIES.length];

/** One colour per pipeline stage, the same in every canvas. */
export const stageColor = (stage) => [SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE][stage % 6];

/** Black or white, whichever reads better on a colour. */
export function inkOn(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 ? "#111111" : "#ffffff";
}

/** The colours in force where `element` stands; canvases cannot use CSS variables themselves. */
export function readTheme(element) {
  const style = getComputedStyle(element);
  const variable = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: variable("--jp-ui-font-color1", "#212121"),
    softText: variable("--jp-ui-font-color2", "#616161"),
    surface: variable("--jp-layout-color1", "#ffffff"),
    raised: variable("--jp-layout-color2", "#eeeeee"),
    border: variable("--jp-border-color1", "#bdbdbd"),
    softBorder: variable("--jp-border-color2", "#e0e0e0"),
    font: "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
  };
}

/** Whether a surface of this colour is dark. */
export function isDark(color) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(color)?.[1];
  if (!hex) return false;
  const wide = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return parseInt(wide.slice(2, 4), 16) < 128;
}

/** Calls `handler` when the notebook changes its theme, until clean-up. */
export function onTheme(handler, cleanUp) {
  // JupyterLab names the theme on the body a moment before its style sheet is in force.
  let settled = 0;
  const observer = new MutationObserver(() => {
    handler();
    clearTimeout(settled);
    settled = setTimeout(handler, 300);
  });
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ["class", "data-jp-theme-name", "data-jp-theme-light", "data-theme"],
  });
  cleanUp.add(() => { observer.disconnect(); clearTimeout(settled); });
}

const RAMP = ["#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154"]; // viridis, light is cheap

/** A colour for a share between 0 (cheap) and 1 (dear). */
export function rampColor(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  const channel = (hex, index) => parseInt(hex.slice(1 + 2 * index, 3 + 2 * index), 16);
  const mix = [0, 1, 2].map((index) => {
    const from = channel(RAMP[low], index);
    return Math.round(from + (channel(RAMP[low + 1], index) - from) * (at - low));
  });
  return `#${mix.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}
