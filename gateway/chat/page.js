// Provides small helpers for the page. All text is set with textContent and text nodes. HTML is
// never made from data.

export const $ = id => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

/** Writes the text only when it has changed, so that a live region announces each text once. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const number = v => tenths.format(v);
export const seconds = ms => ms < 1000 ? `${Math.round(ms)} ms` : `${number(ms / 1000)} s`;

/** Formats a log-probability as a percentage, such as "83.2 %" or "0.004 %". */
export function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  return (p >= 99.95 ? "100" : p >= 1 ? p.toFixed(1) : p >= 0.0005 ? p.toPrecision(1) : "< 0.001") + " %";
}

/** Copies text. Without the clipboard API (plain HTTP from another machine) it selects a hidden
 * field and copies that field's text. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const held = make("textarea", { value: text, className: "hidden" }), was = document.activeElement;
  document.body.append(held);
  held.select();
  const done = document.execCommand("copy");
  held.remove();
  was?.focus();
  return done;
}
