// Text on a canvas.

/** Cuts a name to so many pixels. */
export function fitting(context, text, wide) {
  if (context.measureText(text).width <= wide) return text;
  let length = text.length - 1;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > wide) length--;
  return `${text.slice(0, length)}…`;
}
