// Shows one answer on the page, while it arrives and after: its text with tokens, its reasoning,
// its figures and its end.
import { copy, make, number, put, seconds } from "./page.js";
import { Rendering } from "./text.js";
import { watchTokens } from "./peek.js";

const ENDS = { stop: "", length: "cut at the limit of tokens", tool_calls: "ended with a tool call", content_filter: "ended by a filter" };
const likely = logprob => logprob > Math.log(.5) ? "" : logprob > Math.log(.1) ? "mid" : "low";

/** Returns [{from, to, tokens}] of `text`. A token whose text matches at the beginning or the end
 * gets an entry of its own. The tokens between them (bytes of one character) share an entry.
 * Tokens without visible text, such as the end mark of reasoning, are left out. */
function groupsOf(text, tokens) {
  const before = [], after = [];
  let from = 0, to = text.length, first = 0, last = tokens.length;
  for (let t; last > 0 && (t = tokens[last - 1]).text && text.endsWith(t.text, to); last--, to -= t.text.length)
    after.unshift({ from: to - t.text.length, to, tokens: [t] });
  for (let t; first < last && (t = tokens[first]).text && from + t.text.length <= to && text.startsWith(t.text, from); first++, from += t.text.length)
    before.push({ from, to: from + t.text.length, tokens: [t] });
  return [...before, ...(to > from && last > first ? [{ from, to, tokens: tokens.slice(first, last) }] : []), ...after];
}

export class Answer {
  content = "";
  #thought = "";
  #spans = []; // spans of the rendered text: {from, to, className, tokens}
  #held = []; // tokens that arrived before their text
  #due = false;
  #isOver = false;
  #first = 0;
  #usage = null;

  /* Creates an answer of `model`. `again()` is called when the user requests another answer
   * instead of this one. */
  constructor(model, again) {
    this.began = performance.now();
    this.body = make("div", { className: "body", tabIndex: 0 });
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", `Answer of ${model}. Arrow keys go through its tokens.`);
    this.thoughts = make("details", { className: "thought", hidden: true }, make("summary", { textContent: "Reasoning" }), this.thoughtText = make("div"));
    this.error = make("p", { className: "error", hidden: true });
    this.error.setAttribute("role", "alert");
    this.figures = make("span", { textContent: model });
    this.copyButton = make("button", { type: "button", textContent: "Copy", hidden: true });
    this.againButton = make("button", { type: "button", textContent: "Retry", hidden: true });
    this.element = make("li", { className: "turn model working" }, this.thoughts, this.body, this.error,
      make("div", { className: "foot" }, this.copyButton, this.againButton, this.figures));
    this.model = model;
    this.rendering = new Rendering(this.body);
    this.copyButton.addEventListener("click", () => this.#copy());
    this.againButton.addEventListener("click", again);
    watchTokens(this.body, i => this.#spans[i]?.tokens ?? []);
  }

  get isEmpty() {
    return !this.content && !this.#thought;
  }

  add({ text, thought, tokens, finish, usage }) {
    if ((text || thought) && !this.#first) this.#first = performance.now();
    this.#thought += thought;
    this.#held.push(...tokens);
    if (text) this.#addText(text, this.#held);
    if (text || thought) this.#held = [];
    if (finish) this.finish = finish;
    if (usage) this.#usage = usage;
    this.#draw();
  }

  #addText(text, tokens) {
    for (const g of groupsOf(text, tokens)) {
      const className = likely(Math.min(...g.tokens.map(t => t.logprob ?? 0)));
      this.#spans.push({ from: this.content.length + g.from, to: this.content.length + g.to, tokens: g.tokens, className });
    }
    this.content += text;
  }

  #draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      if (!this.#isOver) this.#show();
    });
  }

  #show() {
    const talk = this.element.parentElement?.parentElement, atEnd = talk && talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60;
    this.thoughts.hidden = !this.#thought;
    put(this.thoughtText, this.#thought);
    this.rendering.show(this.content, this.#spans, this.#isOver);
    if (atEnd) talk.scrollTop = talk.scrollHeight;
  }

  /* Ends the answer. `how` describes an end for another reason than the model's own, such as
   * "stopped". `failure` is a sentence about the error, or null. */
  end(how, failure) {
    const took = performance.now() - (this.#first || this.began), n = this.#usage?.completion_tokens ?? null;
    this.#isOver = true;
    this.element.classList.remove("working");
    this.error.hidden = !failure;
    put(this.error, failure ?? "");
    this.copyButton.hidden = !this.content;
    this.againButton.hidden = false;
    const parts = [this.model];
    if (n !== null) parts.push(`${n} token${n === 1 ? "" : "s"}`);
    if (n > 1 && took > 0) parts.push(`${number((n - 1) * 1000 / took)} tokens/s`);
    if (this.#first) parts.push(`first after ${seconds(this.#first - this.began)}`);
    if (this.#thought && !this.content) parts.push("reasoning alone");
    const end = how || (ENDS[this.finish] ?? this.finish ?? "");
    if (end) parts.push(end);
    put(this.figures, parts.join(" · "));
    this.#show();
  }

  say(text) {
    put(this.figures, text);
  }

  async #copy() {
    const done = await copy(this.content);
    this.copyButton.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { this.copyButton.textContent = "Copy"; }, 1500);
  }
}
