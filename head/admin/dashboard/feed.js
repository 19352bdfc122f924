// Keeps the stream of updates open. It uses fetch() rather than EventSource, since the key must be
// sent in a header and never in a URL. One stream is open at a time. A change of the query opens a
// new stream, which begins with an update at once. The stream is closed while the page is hidden.

import { NO_KEY, isKey, ofTab } from "./store.js";

const KEY = "cox-admin-key";
const FIRST = { samples: 0, events: 0, walk: 0 };
const SILENT_MS = 6000; // silence after which the stream is opened again

export class Feed {
  #abort = null;
  #retry = 0;
  #timer = 0;
  #at = 0; // time at which #timer fires, in ms of performance.now()
  #opened = -1e9;
  #heard = 0;
  #paused = false;
  #next = FIRST;
  saidAt = null;

  /* `on` holds the callbacks {update(parts), away(why), paused(), login(why)}. `query()` returns
   * the query parameters that the page needs. `saidAt` is the time of the figures that are
   * shown, by this machine's clock, or null. */
  constructor(query, on) {
    this.query = query;
    this.on = on;
    document.addEventListener("visibilitychange", () => document.hidden ? this.#close() : this.open());
    setInterval(() => this.#watch(), 1000);
  }

  set key(value) {
    if (!isKey(value)) return this.on.login(NO_KEY);
    ofTab.setItem(KEY, value);
    this.open();
  }

  set paused(value) {
    this.#paused = value;
    if (value) {
      this.#close();
      this.on.paused();
    } else {
      this.open();
    }
  }

  /* Starts from number 0 again, because another head answers or the same head has restarted. */
  forget() {
    this.#next = FIRST;
  }

  /* Opens the stream with the current query, at most once in 120 ms however often it is called. */
  open(delay = 120 - (performance.now() - this.#opened)) {
    if (this.#paused || document.hidden) return;
    const at = performance.now() + Math.max(0, delay);
    if (this.#timer && this.#at <= at) return; // the timer already opens the stream earlier
    clearTimeout(this.#timer);
    this.#at = at;
    this.#timer = setTimeout(() => this.#run(), Math.max(0, delay));
  }

  #close() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#abort?.abort();
    this.#abort = null;
  }

  #watch() {
    if (this.#abort && performance.now() - this.#heard > SILENT_MS) {
      this.on.away("it sends no updates");
      this.open(0);
    }
  }

  async #run() {
    this.#close();
    this.#opened = performance.now();
    const abort = this.#abort = new AbortController();
    const key = ofTab.getItem(KEY);
    this.#heard = performance.now();
    try {
      const query = new URLSearchParams({ ...this.query(), ...this.#next });
      const r = await fetch("api/stream?" + query,
        { headers: key ? { Authorization: "Bearer " + key } : {}, cache: "no-store", signal: abort.signal });
      if (r.status === 401) {
        this.#abort = null;
        ofTab.removeItem(KEY);
        this.on.login(key ? "That is not the key of this head." : "");
        return;
      }
      if (!r.ok) throw new Error((await r.json().catch(() => null))?.error?.message || "HTTP " + r.status);
      await this.#read(r.body.getReader(), abort);
      throw new Error("the head ended the stream");
    } catch (e) {
      if (abort.signal.aborted) return;
      this.#abort = null;
      this.#retry = Math.min(this.#retry + 1, 5);
      this.on.away(e instanceof TypeError ? "the connection to it failed" : e.message);
      this.open(500 * 2 ** this.#retry * (0.75 + Math.random() / 2));
    }
  }

  async #read(reader, abort) {
    const text = new TextDecoder();
    let held = "", parts = {};
    for (;;) {
      const { value, done } = await reader.read();
      if (done || abort.signal.aborted) return;
      held += text.decode(value, { stream: true });
      for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
        const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(held.slice(0, end)) ?? [];
        if (!name) continue;
        parts[name] = JSON.parse(data);
        if (name !== "done") continue;
        this.#heard = performance.now();
        this.saidAt = Date.now();
        this.#retry = 0;
        this.#next = { samples: parts.samples.next, events: parts.events.next, walk: parts.done.walk };
        this.on.update(parts);
        parts = {};
      }
    }
  }
}
