// Turns an answer's text into elements: paragraphs, list items, headings, fenced code, `code` and
// **bold**. It reads a small part of Markdown and only makes elements and text nodes. Each block
// is a range of the text. Tokens are ranges too, so a token can be an element within a block.
import { make } from "./page.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/, HEADING = /^ {0,3}#{1,6} +/, ITEM = /^\s*([-*+]|\d{1,9}[.)]) +\S/;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;

/** Returns [{kind, from, to}]: the visible ranges of `text`, in order. */
export function blocksOf(text) {
  const blocks = [];
  let open = null, fence = null;
  for (let at = 0; at <= text.length;) {
    const eol = text.indexOf("\n", at), end = eol < 0 ? text.length : eol, line = text.slice(at, end), mark = FENCE.exec(line)?.[1];
    if (fence) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark) fence = open = null;
      else open.to = end;
    } else if (mark) {
      fence = mark;
      blocks.push(open = { kind: "code", from: Math.min(end + 1, text.length), to: Math.min(end + 1, text.length) });
    } else if (!line.trim()) {
      open = null;
    } else if (HEADING.test(line)) {
      blocks.push({ kind: "heading", from: at + HEADING.exec(line)[0].length, to: end });
      open = null;
    } else if (ITEM.test(line)) {
      blocks.push(open = { kind: "item", from: at, to: end });
    } else if (open) {
      open.to = end;
    } else {
      blocks.push(open = { kind: "paragraph", from: at, to: end });
    }
    at = end + 1;
  }
  return blocks;
}

const ELEMENTS = { code: () => make("pre", { tabIndex: 0 }), heading: () => make("h3"), item: () => make("p", { className: "item" }), paragraph: () => make("p") };

/** Updates the elements of `host` while the text grows. */
export class Rendering {
  #shown = []; // blocks on the page: {kind, from, to, isFinal, element}

  constructor(host) {
    this.host = host;
  }

  /** Shows the text. `spans` is [{from, to, className}], in order. `isOver` means that no more
   * text follows. */
  show(text, spans, isOver) {
    const blocks = blocksOf(text);
    blocks.forEach((b, i) => this.#block(i, { ...b, isFinal: isOver || i < blocks.length - 1 }, text, spans));
    for (const gone of this.#shown.splice(blocks.length)) gone.element.remove();
  }

  #block(i, b, text, spans) {
    const was = this.#shown[i], isSame = was && was.kind === b.kind && was.from === b.from && b.to >= was.to;
    if (isSame && was.to === b.to && was.isFinal === b.isFinal) return;
    const grows = isSame && !was.isFinal && (!b.isFinal || b.kind === "code");
    const element = grows ? was.element : ELEMENTS[b.kind]();
    if (grows) fill(element, text, spans, was.to, b.to);
    else if (b.isFinal && b.kind !== "code") fillInline(element, text, spans, b.from, b.to);
    else fill(element, text, spans, b.from, b.to);
    if (was && !grows) was.element.replaceWith(element);
    else if (!was) this.host.append(element);
    this.#shown[i] = { ...b, element };
  }
}

function fillInline(element, text, spans, from, to) {
  let at = from;
  for (const m of text.slice(from, to).matchAll(INLINE)) {
    const begin = from + m.index, mark = m[1] === undefined ? 2 : 1, end = begin + m[0].length;
    const inner = make(mark === 1 ? "code" : "strong");
    fill(element, text, spans, at, begin);
    fill(inner, text, spans, begin + mark, end - mark);
    element.append(inner);
    at = end;
  }
  fill(element, text, spans, at, to);
}

/** Adds the text of [from, to), with an element for the part of each span. */
function fill(element, text, spans, from, to) {
  let low = 0, high = spans.length;
  while (low < high) { // the loop finds the first span that ends after `from`
    const middle = (low + high) >> 1;
    if (spans[middle].to <= from) low = middle + 1;
    else high = middle;
  }
  let at = from;
  for (let i = low; i < spans.length && spans[i].from < to; i++) {
    const begin = Math.max(at, spans[i].from), end = Math.min(to, spans[i].to);
    if (begin > at) element.append(text.slice(at, begin));
    if (end > begin) element.append(Object.assign(make("span", { className: "t " + spans[i].className, textContent: text.slice(begin, end) }), { span: i }));
    at = Math.max(at, end);
  }
  if (at < to) element.append(text.slice(at, to));
}
