// The words of a sentence that are a handle.

/**
 * The text before `words`, these words, and the text after; all of the text before where they are not in it.
 * @type {(text: string, words: string) => [before: string, found: string, after: string]}
 */
export function split(text, words) {
  const at = words ? text.indexOf(words) : -1;
  return at < 0 ? [text, "", ""] : [text.slice(0, at), words, text.slice(at + words.length)];
}
