// Shows a box with a token's probability and its alternatives. The pointer, or the arrow keys in a
// focused answer, choose the token. Screen readers get the box's text from the live region.
import { $, make, percent, put } from "./page.js";

const TOKENS_MAX = 4; // most tokens of one span, because a character has at most 4 bytes
const BYTES = /^bytes:(?=(\\x[0-9a-f]{2})+$)/; // the API's name of an incomplete character
const UNSEEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g;
const escaped = c => c < "\u0100" ? "\\x" + c.charCodeAt().toString(16).padStart(2, "0") : "\\u" + c.charCodeAt().toString(16).padStart(4, "0");

/** Makes white space, bytes, control characters and invisible marks visible. */
export const visible = text => text.replace(BYTES, "").replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(UNSEEN, escaped) || "(empty)";

let picked = null;

export function hidePeek() {
  picked?.classList.remove("picked");
  picked = null;
  $("peek").hidden = true;
}

function row(option, isChosen) {
  const bar = make("b");
  bar.style.width = Math.min(100, 100 * Math.exp(option.logprob)).toFixed(1) + "%";
  return make("div", { className: isChosen ? "chosen" : "" }, make("code", { textContent: visible(option.text) }), make("i", {}, bar),
    make("span", { textContent: percent(option.logprob) }));
}

function rowsOf(token, most) {
  const options = token.top.slice(0, most), at = options.findIndex(o => o.text === token.text);
  const rows = options.map((o, i) => row(o, i === at));
  if (at < 0) rows.push(row(token, true));
  return rows;
}

function show(element, tokens, aloud) {
  const known = tokens.filter(t => Number.isFinite(t.logprob));
  if (!known.length) return hidePeek();
  picked?.classList.remove("picked");
  picked = element;
  element.classList.add("picked");
  const box = $("peek");
  const most = known.length > 1 ? 3 : 8, left = known.length - TOKENS_MAX;
  box.replaceChildren(...known.slice(0, TOKENS_MAX).flatMap((t, i) => i ? [make("hr"), ...rowsOf(t, most)] : rowsOf(t, most)),
    ...(left > 0 ? [make("p", { textContent: `and ${left} more token${left === 1 ? "" : "s"}` })] : []));
  box.hidden = false;
  const at = element.getClientRects()[0] ?? element.getBoundingClientRect(), { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(8, Math.min(at.left, innerWidth - width - 8)) + "px";
  box.style.top = (at.bottom + height + 14 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - height - 6)) + "px";
  if (aloud)
    put($("said"), known.slice(0, TOKENS_MAX).map(t => `${visible(t.text)}: ${percent(t.logprob)}` +
      t.top.filter(o => o.text !== t.text).slice(0, 3).map(o => `; ${visible(o.text)}: ${percent(o.logprob)}`).join("")).join(". "));
}

/** Shows the box for the tokens of an answer's `body`. `tokensOf(i)` returns the tokens of span
 * i. */
export function watchTokens(body, tokensOf) {
  const of = target => target instanceof Element ? target.closest(".t") : null;
  const peek = (element, aloud) => element && show(element, tokensOf(element.span), aloud);
  body.addEventListener("pointerover", e => of(e.target) ? peek(of(e.target), false) : hidePeek());
  body.addEventListener("pointerleave", hidePeek);
  body.addEventListener("click", e => peek(of(e.target), false)); // touch screens have no hover
  body.addEventListener("blur", hidePeek);
  body.addEventListener("keydown", e => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[e.key];
    if (e.key === "Escape" && picked) {
      hidePeek();
      e.stopPropagation();
    }
    if (!by || e.target !== body || e.ctrlKey || e.altKey || e.metaKey) return;
    const all = [...body.querySelectorAll(".t")];
    if (!all.length) return;
    e.preventDefault();
    const was = all.indexOf(picked), next = was < 0 && Number.isFinite(by) ? 0 : Math.max(0, Math.min(all.length - 1, was + by));
    all[next].scrollIntoView({ block: "nearest" });
    peek(all[next], true);
  });
}
