// What a browser remembers of a person, for all labs: that something has been seen, or was put away for good.

/**
 * One thing to remember; a browser that stores nothing remembers it for this page.
 * @type {(name: string) => { has: () => boolean, set: () => void }}
 */
export function remembers(name) {
  const key = `dtfm-lab-${name}`;
  let here = false;
  return {
    has() {
      try {
        return here || localStorage.getItem(key) === "yes";
      } catch {
        return here;
      }
    },
    set() {
      here = true;
      try {
        localStorage.setItem(key, "yes");
      } catch {
        /* a page without a memory */
      }
    },
  };
}
