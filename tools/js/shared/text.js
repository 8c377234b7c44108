// Names that have too little room. What tells names apart stands at their end, as in node-17 or site b: it stays.

const TELLING = / ?\+\d+$|[-_ ./]?[a-z]?\d+$|[-_ ./][a-z]$/i;

/**
 * Cuts a name before its telling end until it fits.
 * @type {(name: string, fits: (text: string) => boolean) => string}
 */
export function shortened(name, fits) {
  if (fits(name)) return name;
  const end = TELLING.exec(name)?.[0] ?? "";
  let length = name.length - end.length - 1;
  while (length > 1 && !fits(`${name.slice(0, length)}…${end}`)) length--;
  const least = `${name.slice(0, Math.max(1, length))}…${end}`;
  if (fits(least)) return least;
  let tail = end;
  while (tail.length > 1 && !fits(`…${tail}`)) tail = tail.slice(1);
  return `…${tail}`;
}

/**
 * Cuts a name on a canvas to so many pixels.
 * @type {(context: CanvasRenderingContext2D, name: string, wide: number) => string}
 */
export const fitting = (context, name, wide) => shortened(name, (text) => context.measureText(text).width <= wide);
