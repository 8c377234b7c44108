/**
 * The value itself, which is there: for what only the reader of the code can know. Nothing is checked.
 * @type {<T>(value: T | null | undefined) => T}
 */
export function there(value) {
  return /** @type {any} */ (value); // any: JSDoc has no other word for TypeScript's `value!`
}
