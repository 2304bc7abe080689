// The card of a question, and its answer.

import { renderDiff } from "./diff.js";
import { formOf } from "./forms.js";
import { own } from "./markdown.js";
import { announce, calm, freshId, isPlainEnter, isTyping, sentence } from "./page.js";
import { api, Unreachable } from "./server.js";
import { armCards, cards, may } from "./state.js";
import { add, button, el, fill, oneLine } from "./text.js";
import { ago, callShown, decidedBy, serverNow, span, toolWords } from "./words.js";

const GUARD = 600;
const SCOPES = [
  ["run", "this run", "until this run ends"],
  ["thread", "this conversation", "in this conversation, also after a restart"],
  ["project", "this project", "in every conversation of this project"],
  ["all", "all projects", "in all your projects"],
];

/** A file of the folder without the folder, which is named below it. */
const below = (folder, path) => (folder && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path);

export class Card {
  /** `events`: what follows when the card is `closed`, and when it is `gone`. */
  constructor(data, events) {
    this.events = events;
    this.id = data.id;
    this.data = data;
    this.edited = null;
    this.panelName = null;
    this.head = el("header");
    this.body = el("div", { class: "body", role: "region", tabindex: "0" });
    this.end = el("i", { class: "end" });
    this.facts = el("dl", { class: "facts" });
    this.expiry = el("p", { class: "expiry" });
    this.actions = el("div", { class: "actions" });
    this.panel = el("div", { class: "panel" });
    this.note = el("p", { class: "card-note", role: "status" });
    this.hint = el("p", { class: "hint" });
    this.node = el(
      "article",
      { class: "card", tabindex: "0", id: `card-${data.id}` },
      this.head,
      this.body,
      this.facts,
      this.expiry,
      this.note,
      (this.foot = el("div", { class: "foot" }, this.panel, this.hint, this.actions)),
    );
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.node.addEventListener("focusin", (event) => {
      if (!this.node.contains(event.relatedTarget)) this.focusedAt = performance.now();
    });
    // Both are clipped by the box that scrolls and by the window, so "seen" means seen.
    this.endSeen = new IntersectionObserver((seen) => {
      if (!seen.at(-1).isIntersecting || this.isRead || !this.node.isConnected) return;
      this.isRead = true;
      this.guard();
    });
    this.inSight = new IntersectionObserver((seen) => {
      const isInSight = seen.at(-1).isIntersecting;
      if (isInSight && !this.isInSight) this.arm();
      this.isInSight = isInSight;
      this.guard();
    });
    this.draw();
    this.endSeen.observe(this.end);
    this.inSight.observe(this.foot);
    this.arm();
  }

  get isOpen() {
    return this.data.status === "open" && !this.isExpired;
  }

  get isExpired() {
    return Boolean(this.data.expires_at) && this.data.expires_at <= serverNow();
  }

  /** Starts the short time in which nothing can be approved: what is under the finger has just changed. */
  arm() {
    this.armedAt = performance.now() + GUARD;
    clearTimeout(this.guardTimer);
    this.guardTimer = setTimeout(() => this.guard(), GUARD + 10);
    this.guard();
  }

  get isReady() {
    return this.isOpen && this.isRead && this.isInSight && !this.isSending && !document.hidden && performance.now() >= this.armedAt;
  }

  guard() {
    for (const node of this.node.querySelectorAll(".guarded")) node.setAttribute("aria-disabled", String(!this.isReady));
    fill(this.hint, this.isOpen && !this.isRead && this.needsReading ? "Scroll to its end before you approve." : "");
  }

  take(data) {
    const isSame = JSON.stringify(data) === JSON.stringify(this.data);
    const isOther = data.shown_hash !== this.data.shown_hash;
    this.data = data;
    if (isSame) return;
    if (isOther) {
      this.isRead = false;
      this.edited = null;
      this.showPanel(null);
      this.say("The question changed; read it again.");
    }
    this.draw();
    this.arm();
    if (isOther) {
      this.endSeen.unobserve(this.end);
      this.endSeen.observe(this.end);
    }
  }

  get needsReading() {
    return ["permission", "unknown_outcome"].includes(this.data.kind);
  }

  title() {
    return this.data.title || `${toolWords(this.data.tool)} asks`;
  }

  /** The rule that a command lacks is not for typing here: a button adds it. */
  why() {
    const { why, proposals } = this.data;
    const [what, rule] = proposals?.length && why ? why.split("; add `") : [why];
    return rule === undefined ? why : `${what}; “Always allow…” adds one`;
  }

  draw() {
    const { data } = this;
    const title = el("h3", { id: `title-${data.id}` }, oneLine(this.title()), this.edited && el("span", { class: "warn" }, " · as you edited it"));
    const from = el(
      "p",
      { class: "from" },
      el("a", { href: `#/c/${encodeURIComponent(data.thread_id)}` }, oneLine(data.thread_title) || "Untitled conversation"),
      el("span", {}, `asked ${ago(data.created_at)}`),
    );
    // The sentence of a permission says what the title and the reason say.
    const isSaid = data.kind === "permission" && data.why && data.message?.includes(data.why);
    const message = data.message && data.message !== data.title && !isSaid ? el("p", { class: "message" }, own(data.message)) : null;
    const moved = data.moved?.length
      ? el("div", { class: "moved" }, el("strong", {}, "Changed since it was asked"), el("ul", {}, data.moved.map((text) => el("li", {}, own(text)))))
      : null;
    fill(this.head, from, title, message, moved);
    this.node.setAttribute("aria-labelledby", `title-${data.id}`);
    // What the user wrote is another call; nobody has judged its danger.
    this.node.classList.toggle("dangerous", Boolean(data.danger) && !this.edited);

    fill(this.body, this.content(), this.end);
    this.body.hidden = this.body.childElementCount < 2;
    this.body.setAttribute("aria-label", "The question");
    if (this.body.hidden) this.isRead = true;

    const facts = [
      ["Why", data.why === data.message && !isSaid ? null : this.why()],
      ["Risk", data.risk],
      ["Reach", data.reach],
      ["Profile", data.reach ? null : data.profile],
      ["Folder", data.cwd],
    ];
    fill(this.facts, facts.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", { "data-fact": name }, own(text)))));
    this.tick();
    if (!this.panelName) this.drawActions();
    this.guard();
  }

  content() {
    const { data } = this;
    if (this.edited) return callShown(this.edited);
    const parts = [];
    for (const file of data.files ?? []) {
      parts.push(el("p", { class: "path" }, el("span", {}, below(data.cwd, file.path)), el("span", { class: "dim" }, file.exists === false ? " new file" : "")));
      if (typeof file.diff === "string") parts.push(renderDiff(file.diff, file.path));
      else parts.push(el("p", { class: "unshown warn" }, "This change cannot be shown: the file is binary, or too long."));
    }
    if (typeof data.command === "string") {
      const args = { ...data.arguments, command: data.command };
      // The title asks with it.
      if (data.title === `${args.description}?`) delete args.description;
      parts.push(...callShown(args, data.danger?.words));
    } else if (!parts.length && data.kind !== "form" && data.arguments && Object.keys(data.arguments).length) {
      parts.push(...callShown(data.arguments));
    }
    if (data.output) parts.push(el("p", { class: "path" }, "Its output so far"), el("pre", { class: "call" }, data.output));
    return parts;
  }

  tick() {
    const { expires_at } = this.data;
    const left = expires_at ? expires_at - serverNow() : null;
    this.expiry.hidden = left === null || this.data.status !== "open";
    if (this.expiry.hidden) return;
    const text = left > 0 ? `Expires in ${span(left)}` : "Expired; it did not run.";
    if (this.expiry.textContent === text) return;
    this.expiry.textContent = text;
    this.expiry.classList.toggle("warn", left < 60_000);
    if (left <= 0) this.guard();
  }

  drawActions() {
    const { data } = this;
    fill(this.actions);
    if (!may("decide")) {
      add(this.actions, el("p", { class: "dim" }, "This sign-in can read but not answer."));
      return;
    }
    const guarded = (text, style, run) =>
      button(text, `${style} guarded`, () => {
        if (this.isReady) run();
        else if (!this.isRead) this.body.scrollBy({ top: this.body.clientHeight * 0.8, behavior: calm() });
      });
    const open = (text, name, style = "quiet") => button(text, style, () => this.showPanel(name), { "data-panel": name });
    switch (data.kind) {
      case "unknown_outcome":
        add(
          this.actions,
          guarded("Run again", "secondary", () => this.decide("answer", this.outcome("rerun"), "Running it again")),
          guarded("Mark as done", "secondary", () => this.decide("answer", this.outcome("done", "mark_done"), "Marking it as done")),
          guarded("Skip", "secondary", () => this.decide("answer", this.outcome("skip"), "Skipping it")),
        );
        break;
      case "form":
        this.showPanel("form");
        break;
      case "child":
        add(this.actions, el("p", { class: "dim" }, "A subagent is working on this; no answer is needed."));
        break;
      case "client":
        add(this.actions, el("p", { class: "dim" }, "The program that offers this tool has to answer."), open("Answer for it", "form"), open("Deny", "deny", "secondary"));
        break;
      default: {
        const style = data.danger && !this.edited ? "danger" : "primary";
        const approve = () => this.decide("approve", this.approval(), "Approving");
        add(
          this.actions,
          guarded(this.edited ? "Approve as edited" : "Approve", style, approve),
          open("Deny", "deny", "secondary"),
          el(
            "div",
            { class: "more" },
            open("Edit", "edit"),
            this.edited && button("Discard edits", "quiet", () => this.setEdited(null)),
            open("Request changes", "changes"),
            !this.edited && data.proposals?.length > 0 && open("Always allow…", "grant"),
            typeof data.command === "string" && data.profile && data.profile !== "outside" && open("Allow outside the sandbox…", "outside"),
          ),
        );
      }
    }
  }

  /** The answer about a call with an unknown outcome, under the name that the question wants it. */
  outcome(...names) {
    const [name, property] = Object.entries(this.data.response_schema?.properties ?? { action: {} })[0];
    return { result: { [name]: names.find((each) => property.enum?.includes(each)) ?? names.at(-1) } };
  }

  approval(more = {}) {
    return { shown_hash: this.data.shown_hash, ...(this.edited ? { arguments: this.edited } : {}), ...more };
  }

  setEdited(args) {
    this.edited = args;
    this.isRead = false;
    this.showPanel(null);
    this.draw();
    this.endSeen.unobserve(this.end);
    this.endSeen.observe(this.end);
    this.arm();
    this.node.focus();
  }

  say(text, style = "") {
    this.note.className = `card-note ${style}`;
    fill(this.note, text);
  }

  showPanel(name) {
    this.panelName = name;
    fill(this.panel);
    this.actions.hidden = Boolean(name);
    if (!name) {
      this.drawActions();
      this.guard();
      return;
    }
    const back = (focus = true) => {
      this.showPanel(this.data.kind === "form" ? "form" : null);
      if (focus) (this.actions.querySelector(`[data-panel="${name}"]`) ?? this.node).focus();
    };
    const form = this[`${name}Panel`](back);
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      back();
    });
    this.panel.append(form);
    this.arm();
    if (name !== "form") form.querySelector("textarea, input, button")?.focus();
  }

  /** A form with one text, its button and a way back. */
  textPanel({ label, action, value = "", rows = "2", isCode = false, style = "primary", isNeeded = false, submit, back }) {
    const text = el("textarea", { rows, class: isCode ? "mono" : "", spellcheck: isCode ? "false" : null, id: `text-${this.id}` });
    text.value = value;
    const error = el("p", { class: "error", role: "alert" });
    const send = (event) => {
      event.preventDefault();
      if (isNeeded && !text.value.trim()) {
        fill(error, "Write what should change.");
        text.focus();
        return;
      }
      const problem = submit(text.value);
      fill(error, problem ?? "");
    };
    text.addEventListener("input", () => fill(error));
    if (!isCode) text.addEventListener("keydown", (event) => isPlainEnter(event) && send(event));
    return el(
      "form",
      { on: { submit: send } },
      el("label", { for: `text-${this.id}` }, label),
      text,
      error,
      el("div", { class: "row" }, el("button", { type: "submit", class: style }, action), button("Back", "quiet", () => back())),
    );
  }

  denyPanel(back) {
    return this.textPanel({
      label: "Reason (the model reads it; may be empty)",
      action: "Deny",
      style: "danger",
      back,
      submit: (text) => void this.decide("deny", text.trim() ? { reason: text.trim() } : {}, "Denying"),
    });
  }

  changesPanel(back) {
    return this.textPanel({
      label: "What should change? The call does not run.",
      action: "Request changes",
      rows: "3",
      isNeeded: true,
      back,
      submit: (text) => void this.decide("request-changes", { feedback: text.trim() }, "Requesting changes"),
    });
  }

  editPanel(back) {
    const value = JSON.stringify(this.edited ?? this.data.arguments ?? {}, null, 2);
    return this.textPanel({
      label: "Arguments, as JSON",
      action: "Review",
      value,
      rows: String(Math.min(16, Math.max(4, value.split("\n").length))),
      isCode: true,
      back,
      submit: (text) => {
        let args;
        try {
          args = JSON.parse(text);
        } catch (error) {
          return `Not valid JSON: ${error.message}`;
        }
        if (typeof args !== "object" || args === null || Array.isArray(args)) return "Expected an object, as {\"command\": \"…\"}.";
        const isSame = JSON.stringify(args) === JSON.stringify(this.data.arguments ?? {});
        this.setEdited(isSame ? null : args);
        return null;
      },
    });
  }

  grantPanel(back) {
    const proposals = this.data.proposals;
    let pattern = proposals[0].pattern;
    // "Always" means always: this project, and for what is dangerous this conversation, as in the terminal.
    const first = this.data.danger ? 1 : 2;
    let scope = SCOPES[first];
    const sentence = el("p", { class: "sentence" });
    const say = () => fill(sentence, "Grants ", el("code", {}, pattern), ` ${scope[2]}, and approves this call.`);
    const radio = (name, text, detail, isChecked, pick) =>
      el(
        "label",
        { class: "choice" },
        Object.assign(el("input", { type: "radio", name: `${name}-${this.id}`, on: { change: () => (pick(), say()) } }), { checked: isChecked }),
        el("span", {}, text, detail && el("span", { class: "dim" }, detail)),
      );
    say();
    return el(
      "form",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            if (this.isReady) this.decide("approve", this.approval({ grant: { pattern, scope: scope[0] } }), "Granting");
          },
        },
      },
      el(
        "fieldset",
        {},
        el("legend", {}, "Always allow"),
        proposals.map((proposal, at) => radio("rule", el("code", {}, proposal.pattern), own(` ${proposal.words ?? ""}`), at === 0, () => (pattern = proposal.pattern))),
      ),
      el("fieldset", {}, el("legend", {}, "In"), el("div", { class: "scopes" }, SCOPES.map((each, at) => radio("scope", each[1], null, at === first, () => (scope = each))))),
      sentence,
      el("div", { class: "row" }, el("button", { type: "submit", class: "primary guarded" }, "Grant and approve"), button("Back", "quiet", () => back())),
    );
  }

  outsidePanel(back) {
    return el(
      "form",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            if (this.isReady) this.decide("approve", this.approval({ profile: "outside" }), "Approving outside the sandbox");
          },
        },
      },
      el("p", { class: "sentence" }, "Outside the sandbox the command can reach everything that your user can: all files, the network, other processes."),
      el("div", { class: "row" }, el("button", { type: "submit", class: "danger guarded" }, "Allow outside the sandbox"), button("Back", "quiet", () => back())),
    );
  }

  formPanel() {
    const schema = this.data.response_schema;
    const { fields, read, buttons } = formOf(schema, this.data.arguments, this.id);
    const error = el("p", { class: "error", role: "alert" });
    const send = (name) => {
      if (!this.isReady) return;
      const { value, problem, at } = read(name);
      fill(error, problem ?? "");
      if (problem) at?.focus();
      else this.decide("answer", { result: value }, "Answering");
    };
    const actions = buttons.map((name, at) => button(name ?? "Answer", `${at === 0 ? "primary" : "secondary"} guarded`, () => send(name)));
    return el(
      "form",
      {
        class: "fields",
        on: {
          submit: (event) => {
            event.preventDefault();
            send(buttons[0]);
          },
        },
      },
      fields,
      error,
      may("decide") && el("div", { class: "row" }, actions, button("Skip", "quiet guarded", () => this.isReady && this.decide("deny", {}, "Skipping"))),
    );
  }

  /** Sends an answer. Answers count once, so one whose fate is unknown is sent again. */
  async decide(verb, body, doing) {
    if (this.isSending) return;
    this.isSending = true;
    this.isOwn = true;
    // The same answer that is sent twice counts once.
    body = { ...body, decision_id: freshId() };
    this.node.classList.add("sending");
    this.guard();
    this.say(`${doing}…`);
    let isGivenUp = false;
    try {
      for (let attempt = 0; ; attempt += 1) {
        try {
          const reply = await api("POST", `/v1/approvals/${encodeURIComponent(this.id)}/${verb}`, body);
          if (reply?.outcome === "already_decided") this.isOwn = false;
          const card = reply?.card;
          if (card && card.status !== "open") this.close(card);
          else if (["closed", "expired"].includes(reply?.outcome)) this.close({ ...this.data, status: reply.outcome });
          else this.close({ ...this.data, status: "decided" });
          return;
        } catch (error) {
          if (!(error instanceof Unreachable)) throw error;
          if (attempt >= 5 || isGivenUp) throw error;
          const wait = 500 * 2 ** attempt;
          this.say("");
          add(this.note, "The server is not reachable. Your answer is sent again in a moment. ", button("Do not send it", "link", () => (isGivenUp = true)));
          await new Promise((done) => setTimeout(done, wait));
          if (isGivenUp) throw error;
        }
      }
    } catch (error) {
      this.isOwn = false;
      await this.refused(error);
    } finally {
      this.isSending = false;
      this.node.classList.remove("sending");
      this.guard();
    }
  }

  async refused(error) {
    if (error instanceof Unreachable) {
      this.say("The server is not reachable, so it is unknown whether your answer arrived. The card updates once the server is back.", "error");
      return;
    }
    const card = error.body?.card ?? error.body?.error?.card;
    if (error.status === 409 || error.status === 410) {
      const closed = card ?? (await fetchCard(this.id));
      this.close(closed && closed.status !== "open" ? closed : { ...this.data, status: error.code === "expired" ? "expired" : "decided" });
    } else if (error.status === 412) {
      const now = card ?? (await fetchCard(this.id));
      if (now) this.take(now);
      this.say("The question changed since it was shown; read it again.", "error");
    } else {
      this.say(sentence(error.message), "error");
    }
  }

  /** Says who answered, then goes away. */
  close(data) {
    if (this.isClosed) return;
    this.isClosed = true;
    // Of a question that is gone with its conversation only the id is left.
    this.data = data = { ...this.data, ...data };
    const hadFocus = this.node.contains(document.activeElement);
    const isElsewhere = !this.isOwn;
    const words = decidedBy(data);
    armCards();
    this.node.classList.add("closed");
    this.endSeen.disconnect();
    this.inSight.disconnect();
    fill(
      this.node,
      el("p", { class: "from" }, el("span", {}, oneLine(data.thread_title))),
      el("h3", {}, oneLine(this.title())),
      el("p", { class: "outcome" }, words, data.decision?.reason && el("span", { class: "dim" }, `: ${data.decision.reason}`)),
    );
    if (isElsewhere) announce(`${this.title()}: ${words}`);
    if (hadFocus) this.node.focus();
    this.events.closed();
    setTimeout(() => {
      const heldFocus = this.node.contains(document.activeElement);
      cards.delete(this.id);
      this.node.remove();
      armCards();
      this.events.gone(heldFocus);
    }, 4000);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || isTyping(event.target) || !event.isTrusted) return;
    if (this.data.kind !== "permission" || !may("decide") || this.isClosed) return this.move(event);
    const isSettled = performance.now() - (this.focusedAt ?? Infinity) >= GUARD;
    const panel = { n: "deny", e: "edit", r: "changes", a: "grant" }[event.key];
    if (event.key === "y") {
      if (this.panelName) return;
      if (isSettled && this.isReady) this.decide("approve", this.approval(), "Approving");
      else this.say(this.isRead ? "Key ignored: the question has just appeared. Press it again." : "Read it to its end first.");
    } else if (panel && !this.panelName && (panel !== "grant" || (this.data.proposals?.length && !this.edited))) {
      this.showPanel(panel);
    } else {
      this.move(event);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  move(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const all = [...cards.values()].filter((card) => card.node.isConnected);
    const next = all[all.indexOf(this) + step];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.node.focus();
  }
}

export async function fetchCard(id) {
  try {
    return await api("GET", `/v1/approvals/${encodeURIComponent(id)}`);
  } catch {
    return null;
  }
}
