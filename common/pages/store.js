// Stores values for the pages in the browser: `ofTab` lasts as long as the tab, `ofBrowser` until
// the user clears it. A browser that blocks storage throws an error as soon as a page uses it. The
// values are then kept as long as the page is open.

function storeOf(name) {
  try {
    const store = window[name], probe = "cox-probe";
    store.setItem(probe, "");
    store.removeItem(probe);
    return store;
  } catch {
    const kept = new Map();
    return { getItem: key => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: key => kept.delete(key) };
  }
}

export const ofTab = storeOf("sessionStorage"), ofBrowser = storeOf("localStorage");

/* Returns true when an HTTP header can carry `key`. fetch() reports other characters as a
 * network failure. */
export const isKey = key => /^[\x20-\x7e\x80-\xff]*$/.test(key);
export const NO_KEY = "This key has a character that no key has, perhaps an invisible one. Copy the key again, without what stands around it.";
