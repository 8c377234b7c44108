/** Whether the page is dark. JupyterLab says it on its body; elsewhere the background says it. */
export function isDark() {
  const said = document.body.dataset.jpThemeLight;
  if (said) return said === "false";
  const color = getComputedStyle(document.body).backgroundColor;
  const [red, green, blue] = (color.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128 && color !== "rgba(0, 0, 0, 0)";
}
