// A tool call in a conversation.

import { looksLikeDiff, renderDiff } from "./diff.js";
import { showCard } from "./inbox.js";
import { growth, own } from "./markdown.js";
import { cards } from "./state.js";
import { button, el, fill, oneLine } from "./text.js";
import { callShown, callSummary, shownValue, toolWords } from "./words.js";

const MAX_OUTPUT = 60_000;
const STATES = {
  arriving: "arriving",
  proposed: "",
  running: "running",
  waiting: "waiting for you",
  succeeded: "done",
  failed: "failed",
  cancelled: "did not run",
};

/** How a call ended that did not run, by the code of its result. */
const ENDED = {
  declined: "denied by you",
  change_wanted: "changes requested",
  permission_denied: "blocked by a rule",
  denied: "blocked by a rule",
  hook_denied: "blocked by a hook",
  hook_failed: "blocked by a hook",
  expired: "expired",
  unknown: "outcome unknown",
};

export class Call {
  constructor(id, name) {
    this.id = id;
    this.name = name;
    this.args = null;
    this.argsText = "";
    this.output = "";
    this.label = el("span", { class: "tool" }, oneLine(toolWords(name)));
    this.about = el("span", { class: "call-about" });
    this.word = el("span", { class: "word" });
    this.detail = el("div", { class: "detail" });
    this.summary = el("summary", {}, el("span", { class: "mark", "aria-hidden": "true" }), this.label, this.about, this.word);
    this.node = el("details", { class: "call-row", on: { toggle: () => this.drawDetail() } }, this.summary, this.detail);
    this.setState("proposed");
  }

  setState(state) {
    if (this.isOver && !["succeeded", "failed", "cancelled"].includes(state)) return;
    this.state = state;
    this.isOver = ["succeeded", "failed", "cancelled"].includes(state);
    this.node.dataset.state = state;
    if (state === "waiting") {
      const jump = button(STATES.waiting, "link", (event) => {
        event.preventDefault();
        const card = [...cards.values()].find((card) => card.data.call_id === this.id && !card.isClosed);
        if (card) showCard(card.id);
      });
      fill(this.word, jump);
    } else {
      fill(this.word, STATES[state]);
    }
  }

  setArgs(args) {
    this.args = args;
    fill(this.about, callSummary(this.name, args));
    if (this.node.open) this.drawDetail();
  }

  addOutput(text) {
    this.output += text;
    if (this.output.length > 2 * MAX_OUTPUT) this.output = this.output.slice(-MAX_OUTPUT);
    if (this.node.open) this.drawDetail();
  }

  settle(result, outcome) {
    this.result = result;
    if (outcome === "suspended" || result?.status === "pending") this.setState("waiting");
    else this.setState(outcome ?? (result?.status === "error" ? "failed" : "succeeded"));
    const ended = this.isOver && ENDED[result?.details?.code ?? result?.data?.code];
    // What the user wrote, or the rule that decided.
    if (ended) fill(this.word, ended, result.details?.shown && el("span", { class: "reason" }, ": ", own(oneLine(result.details.shown))));
    if (this.node.open) this.drawDetail();
  }

  drawDetail() {
    if (!this.node.open) return;
    const parts = [];
    if (this.args !== null) parts.push(...callShown(this.args));
    else if (this.argsText) parts.push(el("pre", { class: "call" }, this.argsText));
    const { result } = this;
    const diff = [result?.details?.diff, result?.details?.patch].find(looksLikeDiff);
    const data = result?.data;
    const shown = result?.details?.shown;
    let text = typeof shown === "string" ? shown : (result?.message ?? (typeof data === "string" ? data : null));
    const isData = text === null && data !== null && typeof data === "object" && Object.keys(data).length;
    if (text === null && ["number", "boolean"].includes(typeof data)) text = String(data);
    text = this.isOver && text ? text : this.output || (this.state === "waiting" ? "" : text) || "";
    if (diff) parts.push(renderDiff(diff, this.args?.file_path));
    else if (looksLikeDiff(text)) parts.push(renderDiff(text));
    else if (this.isOver && isData) parts.push(shownValue(data));
    else if (text) {
      const isLong = text.length > MAX_OUTPUT;
      if (isLong) parts.push(el("p", { class: "dim" }, `The last ${MAX_OUTPUT} of ${text.length} characters:`));
      parts.push(el("pre", { class: "output", tabindex: "0" }, isLong ? text.slice(-MAX_OUTPUT) : text));
    } else if (this.isOver) parts.push(el("p", { class: "dim" }, "No output."));
    fill(this.detail, parts);
    growth.follow?.();
  }
}
