// The pages' store in the browser: `ofTab` lasts as long as the tab, `ofBrowser` until the person clears it. A browser that
// blocks storage throws where a page only names it; then what is kept lasts as long as the page.

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

/** Whether `key` can travel in a header at all. fetch() refuses other characters as if the network had failed. */
export const isKey = key => /^[\x20-\x7e\x80-\xff]*$/.test(key);
export const NO_KEY = "This key has a character that no key has, perhaps an invisible one. Copy the key again, without what stands around it.";
