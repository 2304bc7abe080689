// The page of `aye serve`: the inbox of all conversations, and the conversations themselves.

import { looksLikeDiff, renderDiff } from "./diff.js";
import { formOf } from "./forms.js";
import { growth, own, Prose } from "./markdown.js";
import { keep } from "./storage.js";
import { add, button, el, fill, oneLine, plain } from "./text.js";
import {
  ago,
  callShown,
  callSummary,
  clock,
  count,
  decidedBy,
  endedBecause,
  serverNow,
  setSkew,
  shortFolder,
  shownValue,
  span,
  toolWords,
} from "./words.js";

/* ---------- the server ---------- */

class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message || `the server answered with status ${status}`);
    this.status = status;
    this.code = error.code ?? "";
    this.body = body;
  }
}

/** The server was not reached, or its answer was not: whether it acted is unknown. */
class Unreachable extends Error {}

let token = null;
const UNAVAILABLE = [502, 503, 504];

async function request(method, path, { body, headers, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(token ? { authorization: `Bearer ${token}` } : {}),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal,
    });
  } catch (error) {
    throw new Unreachable(error.message);
  }
  const off = Date.parse(response.headers.get("date") ?? "") - Date.now();
  // The header counts whole seconds, and the way here takes time.
  if (Number.isFinite(off)) setSkew(Math.abs(off) < 3000 ? 0 : off);
  if (UNAVAILABLE.includes(response.status)) throw new Unreachable(`status ${response.status}`);
  if (!response.ok) {
    const error = new ApiError(response.status, await response.json().catch(() => null));
    if (response.status === 401 && token && path !== "/v1/sign-in") signedOut("This sign-in is no longer valid. Sign in again; what you wrote is kept.");
    throw error;
  }
  return response;
}

async function api(method, path, body) {
  const response = await request(method, path, { body, signal: AbortSignal.timeout?.(30_000) });
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Unreachable(error.message);
  }
}

/** Splits a byte stream into server-sent events. */
async function* frames(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let frame = { event: "message", id: null, data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw new Unreachable(error.message);
      });
      if (done) return;
      alive();
      rest += value;
      let end;
      // A carriage return at the end may be half of a line's end.
      while ((end = /\r\n|\n|\r(?!$)/.exec(rest))) {
        const line = rest.slice(0, end.index);
        rest = rest.slice(end.index + end[0].length);
        if (!line) {
          if (frame.data.length) yield { event: frame.event, id: frame.id, data: frame.data.join("\n") };
          frame = { event: "message", id: null, data: [] };
          continue;
        }
        const [, name, text] = /^([^:]*):? ?([^]*)$/.exec(line);
        if (name === "event") frame.event = text;
        else if (name === "id") frame.id = text;
        else if (name === "data") frame.data.push(text);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const SILENCE = 70_000;
const streams = new Set();

/** A stream that is opened again whenever it ends. `name` is for the sentence that says what is happening. */
class Stream {
  constructor(name, { path, open, frame }) {
    Object.assign(this, { name, path, open, frame });
    this.isOn = false;
    this.state = "off";
    this.tries = 0;
    streams.add(this);
  }

  start() {
    if (this.isOn) return;
    this.isOn = true;
    this.connect();
  }

  stop() {
    this.isOn = false;
    this.state = "off";
    clearTimeout(this.timer);
    this.abort?.abort();
    showConnection();
  }

  remove() {
    this.stop();
    streams.delete(this);
  }

  /** Tries at once when it waits for its next try. */
  nudge() {
    if (this.isOn && this.state === "waiting") {
      clearTimeout(this.timer);
      this.connect();
    } else if (this.isOn && this.state === "open" && Date.now() - this.heard > SILENCE / 2) {
      this.abort?.abort();
    }
  }

  async connect() {
    const abort = (this.abort = new AbortController());
    this.state = this.tries ? "retrying" : "connecting";
    showConnection();
    const alive = () => {
      this.heard = Date.now();
      clearTimeout(this.watchdog);
      this.watchdog = setTimeout(() => abort.abort(), SILENCE);
      if (this.state === "open") this.tries = 0;
    };
    let problem = null;
    try {
      alive();
      const response = await request("GET", this.path(), { headers: { accept: "text/event-stream" }, signal: abort.signal });
      this.state = "open";
      this.open?.();
      // Where one gets through, the others need not wait.
      for (const other of streams) if (other.state === "waiting") other.nudge();
      showConnection();
      for await (const frame of frames(response.body, alive)) {
        if (frame.event === "dropped") break;
        let data;
        try {
          data = JSON.parse(frame.data);
        } catch {
          continue;
        }
        this.frame(frame.event, data, frame.id);
        if (!this.isOn) return;
      }
    } catch (error) {
      problem = error;
    } finally {
      clearTimeout(this.watchdog);
      abort.abort();
    }
    if (!this.isOn || abort !== this.abort) return;
    if (problem instanceof ApiError) {
      this.state = "refused";
      this.problem = problem.message;
      if (![408, 429].includes(problem.status) && problem.status < 500) {
        showConnection();
        return;
      }
    } else if (problem && !(problem instanceof Unreachable)) {
      console.error(problem);
    }
    const wait = Math.min(15_000, 300 * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.state = "waiting";
    this.next = Date.now() + wait;
    this.timer = setTimeout(() => this.connect(), wait);
    showConnection();
  }
}

let wasLost = false;
let backUntil = 0;
let noticeTimer;
let noticeHeight = 0;

/** Says what the connection does, when it is not simply there. */
function showConnection() {
  const notice = $("notice");
  const lost = [...streams].filter((stream) => ["waiting", "retrying"].includes(stream.state) && stream.tries > 1);
  const refused = [...streams].find((stream) => stream.state === "refused");
  clearTimeout(noticeTimer);
  if (lost.length) {
    wasLost = true;
    const next = Math.min(...lost.map((stream) => stream.next ?? 0));
    const seconds = Math.ceil((next - Date.now()) / 1000);
    const how = navigator.onLine === false ? "This device is offline." : "The server is not reachable.";
    const when = seconds > 0 && lost.every((stream) => stream.state === "waiting") ? `Retrying in ${seconds} s.` : "Retrying…";
    notice.className = "lost";
    fill(notice, `${how} Questions stay pending and drafts are kept. ${when} `, button("Retry now", "link", retryNow));
    noticeTimer = setTimeout(showConnection, 1000);
  } else if (refused) {
    notice.className = "lost";
    fill(notice, `The server refused ${refused.name}: ${refused.problem}`);
  } else {
    const on = [...streams].filter((stream) => stream.isOn);
    const areOpen = on.length > 0 && on.every((stream) => stream.state === "open");
    if (wasLost && areOpen) {
      wasLost = false;
      backUntil = Date.now() + 4000;
    }
    const left = backUntil - Date.now();
    if (areOpen && left > 0) {
      // It stays for its time, whatever else opens or closes.
      notice.className = "back";
      fill(notice, "Connected again; everything is up to date.");
      noticeTimer = setTimeout(showConnection, left);
    } else if (!wasLost) {
      notice.className = "";
      fill(notice, !streams.size || on.some((stream) => stream.state === "open") ? "" : "Connecting…");
    }
  }
  // A sentence that comes or goes moves what is under the finger.
  if (notice.offsetHeight !== noticeHeight) for (const card of cards.values()) card.arm();
  noticeHeight = notice.offsetHeight;
}

function retryNow() {
  for (const stream of streams) stream.nudge();
}

/* ---------- the page ---------- */

const $ = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 1099px)");
const GUARD = 600;

let me = { scopes: [], folders: [] };
const may = (scope) => me.scopes.includes(scope);

function announce(text) {
  const live = $("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = plain(text)), 50);
}

/* ---------- cards ---------- */

const cards = new Map();
const SCOPES = [
  ["run", "this run", "until this run ends"],
  ["thread", "this conversation", "in this conversation, also after a restart"],
  ["project", "this project", "in every conversation of this project"],
  ["all", "all projects", "in all your projects"],
];

class Card {
  constructor(data) {
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

    fill(this.body, this.content(), this.end);
    this.body.hidden = this.body.childElementCount < 2;
    this.body.setAttribute("aria-label", "The question");
    if (this.body.hidden) this.isRead = true;

    const facts = [
      ["Why", data.why === data.message && !isSaid ? null : data.why],
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
      parts.push(el("p", { class: "path" }, el("span", {}, file.path), el("span", { class: "dim" }, file.exists === false ? " new file" : "")));
      if (typeof file.diff === "string") parts.push(renderDiff(file.diff));
      else parts.push(el("p", { class: "unshown warn" }, "This change cannot be shown: the file is binary, or too long."));
    }
    if (typeof data.command === "string") {
      parts.push(...callShown({ ...data.arguments, command: data.command }));
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
        const approve = () => this.decide("approve", this.approval(), "Approving");
        add(
          this.actions,
          guarded(this.edited ? "Approve as edited" : "Approve", "primary", approve),
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
    let scope = SCOPES[0];
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
      el("fieldset", {}, el("legend", {}, "In"), el("div", { class: "scopes" }, SCOPES.map((each, at) => radio("scope", each[1], null, at === 0, () => (scope = each))))),
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
    for (const card of cards.values()) card.arm();
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
    updateCounts();
    talk?.cardsChanged();
    setTimeout(() => {
      const heldFocus = this.node.contains(document.activeElement);
      cards.delete(this.id);
      this.node.remove();
      for (const card of cards.values()) card.arm();
      if (heldFocus) focusNextCard();
      updateCounts();
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

const isTyping = (node) => node instanceof HTMLElement && (node.isContentEditable || /^(TEXTAREA|SELECT)$/.test(node.tagName) || (node.tagName === "INPUT" && !/^(radio|checkbox)$/.test(node.type)));
const isPlainEnter = (event) => event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey && !event.isComposing && event.keyCode !== 229;
const calm = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");
const sentence = (text) => {
  const s = String(text).trim();
  return s.charAt(0).toUpperCase() + s.slice(1) + (/[.!?…]$/.test(s) ? "" : ".");
};

/** Also where `crypto.randomUUID` does not exist: on a page that came over plain HTTP. */
const freshId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

async function fetchCard(id) {
  try {
    return await api("GET", `/v1/approvals/${encodeURIComponent(id)}`);
  } catch {
    return null;
  }
}

function focusNextCard() {
  const next = [...cards.values()].find((card) => !card.isClosed && card.node.isConnected);
  (next?.node ?? document.querySelector("#talk textarea") ?? document.body).focus();
}

/* ---------- the inbox ---------- */

const watch = new Stream("the inbox", {
  path: () => "/v1/approvals/watch",
  frame(event, data) {
    if (event === "snapshot") {
      const items = data.items ?? [];
      const ids = new Set(items.map((card) => card.id));
      const isFirst = !hasInbox;
      hasInbox = true;
      for (const card of [...cards.values()]) if (!ids.has(card.id) && !card.isClosed) answeredMeanwhile(card);
      for (const card of items) takeCard(card, !isFirst);
      updateCounts();
      if (isFirst && route.card) openLinked(route.card);
      if (isFirst && items.length) announce(`${count(items.length, "question")} in the inbox.`);
    } else if (event === "asked") {
      takeCard(data, true);
      list.refreshSoon();
    } else if (event === "closed") {
      cards.get(data.id)?.close(data);
      list.refreshSoon();
    }
  },
});
let hasInbox = false;

async function answeredMeanwhile(card) {
  const data = await fetchCard(card.id);
  if (data?.status === "open") return;
  card.close(data ?? { ...card.data, status: "decided" });
}

function takeCard(data, isNews) {
  if (data.status && data.status !== "open") {
    cards.get(data.id)?.close(data);
    return;
  }
  data.status = "open";
  const known = cards.get(data.id);
  if (known && !known.isClosed) {
    known.take(data);
  } else {
    known?.node.remove();
    cards.set(data.id, new Card(data));
    if (isNews) announce(`New question: ${oneLine(data.title)}, in ${oneLine(data.thread_title)}.`);
  }
  placeCards();
  updateCounts();
  talk?.cardsChanged();
}

/** Puts each card where it belongs: beside its conversation on a small screen, into the inbox otherwise. */
function placeCards() {
  const sorted = [...cards.values()].sort((a, b) => a.data.created_at - b.data.created_at || (a.id < b.id ? -1 : 1));
  const last = new Map();
  for (const card of sorted) {
    const isBeside = narrow.matches && route.view === "talk" && talk?.id === card.data.thread_id;
    const parent = isBeside ? talk.cardSlot : $("cards");
    const before = last.get(parent);
    const next = before ? before.nextSibling : parent.firstChild;
    if (card.node.parentNode !== parent || (next !== card.node && card.node.previousSibling !== (before ?? null))) {
      parent.insertBefore(card.node, next);
      for (const other of cards.values()) other.arm();
    }
    last.set(parent, card.node);
  }
}

function updateCounts() {
  const open = [...cards.values()].filter((card) => !card.isClosed).length;
  fill($("inbox-count"), open ? `${open} waiting` : "");
  $("tab-count").hidden = !open;
  $("tab-count").textContent = String(open);
  document.title = `${open ? `(${open}) ` : ""}${talk?.title ? `${plain(oneLine(talk.title))} · ` : ""}aye`;
  const empty = $("cards-empty");
  empty.hidden = $("cards").childElementCount > 0 || !hasInbox;
  const isBeside = open > 0;
  fill(empty, isBeside ? "" : "No pending questions. New ones appear here.", !isBeside && startButton());
}

/** What somebody who has nothing to answer can do; a wide window offers it in the middle. */
const startButton = () => may("chat") && button("New conversation", "secondary start", newConversation);

function showCard(id) {
  const card = cards.get(id);
  if (!card) return false;
  if (narrow.matches && !card.node.offsetParent) location.hash = "#/inbox";
  requestAnimationFrame(() => {
    card.node.focus();
    card.node.scrollIntoView({ block: "nearest", behavior: calm() });
  });
  return true;
}

/* ---------- the list of conversations ---------- */

const list = {
  items: [],
  limit: 50,
  async refresh() {
    if (!token) return;
    try {
      const page = await api("GET", `/v1/threads/summaries?offset=0&limit=${this.limit}`);
      this.items = page.items ?? [];
      this.hasMore = page.next_offset !== null && page.next_offset !== undefined;
      this.isLoaded = true;
      this.draw();
      talk?.takeSummary(this.items.find((item) => item.id === talk.id));
    } catch (error) {
      if (error instanceof ApiError && error.status !== 401) {
        this.isLoaded = true;
        fill($("threads-empty"), sentence(error.message));
        $("threads-empty").hidden = false;
      }
    }
  },
  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 250);
  },
  draw() {
    const focused = document.activeElement?.closest?.("#threads a")?.getAttribute("href");
    fill(
      $("threads"),
      this.items.map((item) => {
        const state = item.waiting ? `${count(item.waiting, "question")} waiting` : item.status === "running" ? "running" : "";
        const about = [shortFolder(item.cwd), state ? null : ago(item.updated_at), item.pinned ? "pinned" : null];
        return el(
          "li",
          {},
          el(
            "a",
            { href: `#/c/${encodeURIComponent(item.id)}`, "aria-current": talk?.id === item.id ? "page" : null },
            el("span", { class: "title" }, oneLine(item.title) || "Untitled"),
            el("span", { class: "about", title: item.cwd }, about.filter(Boolean).map((text) => el("span", {}, text)), state && el("span", { class: item.waiting ? "waits" : "runs" }, state)),
          ),
        );
      }),
    );
    if (focused) [...$("threads").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    $("threads-more").hidden = !this.hasMore || this.limit >= 200;
    $("threads-empty").hidden = this.items.length > 0 || !this.isLoaded;
    fill($("threads-empty"), "No conversations yet.", startButton());
  },
};

/* ---------- a tool call ---------- */

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

class Call {
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
    if (diff) parts.push(renderDiff(diff));
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

function reasoning(text) {
  const body = el("div", { class: "thoughts" });
  body.textContent = "";
  add(body, text);
  return el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), body);
}

/* ---------- a conversation ---------- */

let talk = null;
/** What the user wrote, without what goes with it to the model. */
const writtenIn = (message) =>
  message.metadata?.written ?? (typeof message.content === "string" ? message.content : (message.content ?? []).map((block) => block.text ?? "").join(""));

class Talk {
  constructor(id, folder) {
    this.id = id;
    this.folder = folder;
    this.title = id ? "" : "New conversation";
    this.seqs = new Map();
    this.ids = new Set();
    this.calls = new Map();
    this.groups = [];
    this.pending = [];
    this.last = 0;
    this.finished = 0;
    this.isAtEnd = true;
    this.build();
    growth.follow = () => this.follow();
    if (id) this.load();
    else this.setStatus(null);
  }

  get draftKey() {
    return `draft.${this.id ?? `new.${this.folder ?? ""}`}`;
  }

  build() {
    this.heading = el("h2", { tabindex: "-1" });
    this.where = el("span", { class: "dim folder" });
    this.more = button("Earlier messages", "quiet wide", () => this.earlier());
    this.more.hidden = true;
    this.entries = el("div", { class: "entries" });
    this.live = el("div", { class: "entries" });
    this.queue = el("div", { class: "entries" });
    this.cardSlot = el("div", { class: "card-slot" });
    this.activity = el("p", { class: "activity", role: "status" });
    this.log = el("div", { class: "scroll log", tabindex: "-1" }, el("div", { class: "column" }, this.more, this.entries, this.live, this.queue, this.activity, this.cardSlot));
    this.down = button("New text below", "secondary down", () => this.toEnd(true));
    this.down.hidden = true;
    this.text = el("textarea", { rows: "1", id: "composer", "aria-label": "Message", enterkeyhint: "send", placeholder: "Message" });
    this.send = el("button", { type: "submit", class: "primary" }, "Send");
    this.stop = button("Stop", "secondary", () => this.interrupt());
    this.stop.hidden = true;
    this.error = el("p", { class: "error", role: "alert" });
    const form = el("form", { class: "composer", on: { submit: (event) => (event.preventDefault(), this.submit()) } }, this.error, el("div", { class: "row" }, this.text, this.stop, this.send));
    const back = el("a", { class: "back", href: "#/conversations", "aria-label": "Back to conversations" }, "‹");
    fill($("talk"), el("div", { class: "head" }, back, el("div", { class: "titles" }, this.heading, this.where)), this.log, this.down, form);
    this.text.value = keep.get(this.draftKey) ?? "";
    if (!may("chat")) {
      this.text.disabled = this.send.disabled = true;
      this.text.placeholder = "This sign-in can read but not write.";
    }
    this.text.addEventListener("input", () => {
      keep.set(this.draftKey, this.text.value);
      this.size();
    });
    this.text.addEventListener("keydown", (event) => {
      if (isPlainEnter(event)) {
        event.preventDefault();
        this.submit();
      }
    });
    this.log.addEventListener("scroll", () => {
      const left = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
      this.isAtEnd = left < 60;
      if (this.isAtEnd) this.down.hidden = true;
      if (this.log.scrollTop < 200 && this.hasEarlier) this.earlier();
    });
    this.sizes = new ResizeObserver(() => this.follow());
    this.sizes.observe(this.log);
    this.drawHead();
    requestAnimationFrame(() => this.size());
  }

  close() {
    this.isClosed = true;
    this.stream?.remove();
    this.sizes.disconnect();
    for (const card of cards.values()) if (this.cardSlot.contains(card.node)) $("cards").append(card.node);
    growth.follow = null;
    fill($("talk"));
  }

  size() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(220, this.text.scrollHeight + 2)}px`;
  }

  drawHead() {
    fill(this.heading, oneLine(this.title) || "Untitled");
    fill(this.where, this.folder ?? "");
    updateCounts();
  }

  takeSummary(item) {
    if (!item) return;
    this.title = item.title || this.title || "Untitled";
    this.folder = item.cwd;
    if (item.served === false) {
      this.text.disabled = this.send.disabled = true;
      this.text.placeholder = "This folder is not served; continue in a terminal.";
    }
    this.drawHead();
    if (!this.stream || this.status === undefined) this.setStatus(item.status);
  }

  /** Keeps the end in sight, once a frame however much arrives. */
  follow() {
    if (this.isFollowDue) return;
    this.isFollowDue = true;
    requestAnimationFrame(() => {
      this.isFollowDue = false;
      if (this.isClosed) return;
      if (this.isAtEnd) this.toEnd();
      else this.down.hidden = this.log.scrollHeight - this.log.clientHeight - this.log.scrollTop < 60;
    });
  }

  toEnd(isAsked = false) {
    this.log.scrollTo({ top: this.log.scrollHeight, behavior: isAsked ? calm() : "auto" });
    this.isAtEnd = true;
    this.down.hidden = true;
  }

  say(style, text) {
    this.live.append(el("p", { class: `line ${style}` }, own(text)));
    this.follow();
  }

  path(rest = "") {
    return `/v1/threads/${encodeURIComponent(this.id)}${rest}`;
  }

  /** The last page first, then the events after it. Until that works it is tried again, as a stream is. */
  async load(attempt = 0) {
    if (!attempt) fill(this.activity, "Loading…");
    try {
      const [about] = await Promise.all([api("GET", this.path()), this.fetchEnd()]);
      if (this.isClosed) return;
      this.takeSummary(about);
    } catch (error) {
      if (this.isClosed) return;
      if (error instanceof ApiError) {
        fill(this.activity, error.status === 404 ? "This conversation does not exist." : sentence(error.message));
        return;
      }
      fill(this.activity, "The server is not reachable; the conversation loads as soon as it is.");
      setTimeout(() => !this.isClosed && this.load(attempt + 1), Math.min(10_000, 500 * 2 ** attempt));
      return;
    }
    fill(this.activity);
    this.toEnd();
    this.refreshStatus();
    this.refreshQueue();
    this.after = this.last;
    this.stream = new Stream("the conversation", {
      path: () => this.path(`/events?after=${this.after}`),
      open: () => this.opened(),
      frame: (event, data, id) => this.frame(event, data, id),
    });
    this.stream.start();
  }

  /** After a reconnect the server sends the text in progress as a whole, so what is drafted here goes. */
  opened() {
    if (!this.wasOpen) {
      this.wasOpen = true;
      return;
    }
    this.dropDrafts();
    this.settle();
    this.refreshStatus();
  }

  dropDrafts() {
    this.isKnownStep = false;
    this.stepId = null;
    for (const group of this.groups) group.node.remove();
    this.groups = [];
    this.group = null;
  }

  async refreshStatus() {
    try {
      const run = await api("GET", this.path("/runs/latest"));
      if (!this.isClosed) this.setStatus(run?.status ?? null);
    } catch {
      // The stream's own events say it as well.
    }
  }

  setStatus(status) {
    this.status = status;
    const isActive = status === "running";
    this.stop.hidden = !isActive || !may("chat");
    this.activity.classList.toggle("busy", isActive);
    if (isActive) fill(this.activity, "Working");
    else if (status === "waiting") this.cardsChanged();
    else fill(this.activity);
    if (!this.text.disabled) this.text.placeholder = isActive || status === "waiting" ? "Queue a message" : this.id ? "Message" : "What should aye do?";
    if (status !== "running" && status !== "waiting") this.closeCalls();
    this.size();
    this.follow();
  }

  /** Calls without a result in a conversation whose run is over never ran. */
  closeCalls() {
    for (const call of this.calls.values()) if (!call.isOver) call.setState("cancelled");
  }

  cardsChanged() {
    const open = [...cards.values()].filter((card) => card.data.thread_id === this.id && !card.isClosed);
    for (const card of open) this.calls.get(card.data.call_id)?.setState("waiting");
    if (this.status === "running") return;
    if (!open.length) {
      fill(this.activity, this.status === "waiting" ? "Waiting" : "");
      return;
    }
    fill(this.activity, `${count(open.length, "question")} ${open.length === 1 ? "waits" : "wait"} for you. `, button("Show", "link", () => showCard(open[0].id)));
  }

  /* messages */

  async fetchEnd() {
    let page = await api("GET", this.path("/messages?cursor=end&limit=50"));
    if (this.isClosed) return;
    const isFirst = this.seqs.size === 0;
    if (isFirst) {
      this.earlierCursor = page.prev_cursor ?? null;
      this.hasEarlier = Boolean(this.earlierCursor);
      this.more.hidden = !this.hasEarlier;
      this.take(page.items ?? []);
      this.cardsChanged();
      return;
    }
    // More than a page may have been said since.
    const known = this.last;
    const items = [...(page.items ?? [])];
    while (items.length && items[0].seq > known + 1 && page.prev_cursor) {
      page = await api("GET", this.path(`/messages?cursor=${encodeURIComponent(page.prev_cursor)}&limit=50`));
      if (this.isClosed || !page.items?.length) break;
      items.unshift(...page.items);
    }
    this.take(items);
  }

  async earlier() {
    if (this.isLoadingEarlier || !this.earlierCursor) return;
    this.isLoadingEarlier = true;
    try {
      const page = await api("GET", this.path(`/messages?cursor=${encodeURIComponent(this.earlierCursor)}&limit=50`));
      if (this.isClosed) return;
      this.earlierCursor = page.prev_cursor ?? null;
      this.hasEarlier = Boolean(this.earlierCursor);
      this.more.hidden = !this.hasEarlier;
      const fromEnd = this.log.scrollHeight - this.log.scrollTop;
      this.isAtEnd = false;
      this.take(page.items ?? []);
      this.log.scrollTop = this.log.scrollHeight - fromEnd;
    } catch (error) {
      fill(this.more, `Not loaded: ${error.message}. Try again`);
    } finally {
      this.isLoadingEarlier = false;
    }
  }

  /** Takes stored messages in any order, each once. */
  take(items) {
    for (const stored of items) {
      if (this.seqs.has(stored.seq)) continue;
      const node = this.render(stored);
      this.seqs.set(stored.seq, node);
      if (stored.message?.id) this.ids.add(stored.message.id);
      if (node) {
        node.dataset.seq = stored.seq;
        let before = this.entries.lastElementChild;
        while (before && Number(before.dataset.seq) > stored.seq) before = before.previousElementSibling;
        if (before) before.after(node);
        else this.entries.prepend(node);
      }
      this.last = Math.max(this.last, stored.seq);
      this.cover(stored);
    }
    this.follow();
  }

  callOf(id, name) {
    let call = this.calls.get(id);
    if (!call) this.calls.set(id, (call = new Call(id, name ?? "tool")));
    else if (name && call.name !== name) {
      call.name = name;
      fill(call.label, oneLine(toolWords(name)));
    }
    return call;
  }

  render({ message, created_at }) {
    if (!message || message.visibility === "internal") return null;
    const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : (message.content ?? []);
    const text = blocks.filter((block) => block.type === "text").map((block) => block.text).join("");
    if (message.role === "user") {
      const said = message.metadata?.shown ?? message.metadata?.written ?? text;
      const images = blocks.filter((block) => /image/.test(block.type)).length;
      return el(
        "div",
        { class: "said" },
        el("p", { class: "words" }, said),
        images > 0 && el("p", { class: "dim" }, count(images, "image")),
        created_at && el("time", { class: "dim" }, clock(created_at)),
      );
    }
    if (message.role === "assistant") {
      const node = el("div", { class: "answer" });
      let prose = null;
      for (const block of blocks) {
        if (block.type === "text" && block.text) {
          if (prose) prose.set(prose.text + block.text);
          else node.append((prose = new Prose().set(block.text)).node);
        } else if (block.type === "thinking" && block.thinking) {
          prose = null;
          node.append(reasoning(block.thinking));
        }
      }
      for (const call of message.tool_calls ?? []) {
        const view = this.callOf(call.id, call.name);
        view.setArgs(call.arguments);
        node.append(view.node);
      }
      const cut = message.metadata?.interrupted;
      if (cut) node.append(el("p", { class: "line note" }, "Interrupted."));
      return node.childElementCount ? node : null;
    }
    if (message.role === "tool" && message.tool_call_id) {
      const result = message.metadata?.tool_result ?? { tool_name: "", status: "success", message: text };
      this.callOf(message.tool_call_id, result.tool_name || undefined).settle(result, message.metadata?.outcome);
    }
    return null;
  }

  /** Removes the draft that a stored message replaces, and a sent message that it confirms. */
  cover({ message }) {
    if (!message) return;
    if (message.role === "user") {
      const text = writtenIn(message);
      const sent = this.pending.find((sent) => sent.text === text);
      if (sent) this.takeSent(sent);
      if (this.unconfirmed === text) {
        if (this.text.value.trim() === text.trim()) this.setText("");
        this.unconfirmed = null;
        fill(this.error);
      }
      return;
    }
    if (message.role !== "assistant") return;
    const text = (message.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("");
    const calls = new Set((message.tool_calls ?? []).map((call) => call.id));
    this.groups = this.groups.filter((group) => {
      const isSame =
        (group.messageId && group.messageId === message.id) || [...group.calls].some((id) => calls.has(id)) || (group.text && group.text === text);
      if (!isSame) return true;
      if (this.group === group) this.group = null;
      group.node.remove();
      return false;
    });
  }

  setText(text) {
    this.text.value = text;
    keep.set(this.draftKey, text);
    this.size();
  }

  /** Reads what was stored. What was drafted and closed before is in it. */
  settle() {
    for (const group of this.groups) if (group.isClosed) group.isMarked = true;
    if (this.isSettling) {
      this.isSettleDue = true;
      return;
    }
    this.isSettling = true;
    const marked = new Set(this.groups.filter((group) => group.isMarked));
    this.fetchEnd()
      .then(() => {
        for (const group of marked) group.node.remove();
        this.groups = this.groups.filter((group) => !marked.has(group));
        this.follow();
      })
      .catch(() => {})
      .finally(() => {
        this.isSettling = false;
        if (this.isSettleDue && !this.isClosed) {
          this.isSettleDue = false;
          this.settle();
        }
      });
  }

  /* events */

  draft(messageId) {
    if (this.group && !this.group.isClosed) return this.group;
    const node = el("div", { class: "answer draft" });
    this.group = { node, messageId, text: "", calls: new Set(), isClosed: false };
    this.groups.push(this.group);
    this.live.append(node);
    return this.group;
  }

  closeGroup() {
    if (this.group) this.group.isClosed = true;
    this.group = null;
  }

  frame(event, data, id) {
    if (event === "agent") this.event(data);
    else if (event === "message") {
      this.take([data]);
      if (data.message?.role === "user") this.refreshQueue();
    }
    if (id !== null && /^\d+$/.test(id)) {
      this.after = Number(id);
      if (event === "agent") this.settle();
    }
  }

  event(event) {
    switch (event.event_type) {
      case "run_start":
        this.isKnownStep = false;
        this.stepId = null;
        this.setStatus("running");
        break;
      case "step_start":
        this.closeGroup();
        this.stepId = event.message_id;
        // After a reconnect the server repeats what was committed, and some of it was read from the history already.
        this.isKnownStep = this.ids.has(event.message_id);
        break;
      case "text_delta": {
        if (this.isKnownStep) break;
        const group = this.draft(this.stepId);
        if (!group.prose) group.node.append((group.prose = new Prose()).node);
        group.thoughts = null;
        group.text += event.delta;
        group.prose.add(event.delta);
        break;
      }
      case "reasoning_delta": {
        if (this.isKnownStep) break;
        const group = this.draft(this.stepId);
        if (!group.thoughts) group.node.append((group.thoughts = reasoning("")));
        group.prose = null;
        add(group.thoughts.lastElementChild, event.delta);
        break;
      }
      case "tool_call_start":
      case "tool_call_ready": {
        const isNew = !this.calls.has(event.id);
        const call = this.callOf(event.id, event.name);
        if (isNew || !call.node.isConnected) {
          const group = this.draft(this.stepId);
          group.calls.add(event.id);
          group.prose = group.thoughts = null;
          group.node.append(call.node);
        }
        if (event.event_type === "tool_call_ready") {
          call.setArgs(event.arguments);
          call.setState("running");
        } else call.setState("arriving");
        break;
      }
      case "tool_call_delta": {
        const call = this.calls.get(event.id);
        if (call) call.argsText += event.args_delta;
        break;
      }
      case "tool_call_stream_delta": {
        const call = this.callOf(event.id, event.name);
        call.setState("running");
        call.addOutput(event.delta);
        break;
      }
      case "tool_call_done":
        this.callOf(event.id, event.result?.tool_name).settle(event.result, event.outcome);
        break;
      case "tool_call_resumed":
        this.calls.get(event.target_id)?.setState("running");
        break;
      case "inference_complete":
      case "step_end":
        if (this.group) this.group.isClosed = true;
        break;
      case "run_finish": {
        this.finished += 1;
        this.closeGroup();
        const type = event.termination?.type ?? event.termination;
        this.setStatus(type === "suspended" ? "waiting" : "done");
        const why = endedBecause(event.termination);
        if (why) this.say(...why);
        this.settle();
        this.refreshQueue();
        list.refreshSoon();
        break;
      }
      case "error":
        this.say("error", sentence(event.message));
        break;
    }
    this.follow();
  }

  /* the composer */

  async submit() {
    const text = this.text.value.trim();
    if (!text || this.isSending || !may("chat")) return;
    this.isSending = true;
    this.send.disabled = true;
    this.text.readOnly = true;
    fill(this.error);
    try {
      if (!this.id) {
        const made = await api("POST", "/v1/threads", this.folder ? { folder: this.folder } : {});
        keep.set(this.draftKey, "");
        this.id = made.id;
        keep.set(this.draftKey, text);
        history.replaceState(null, "", `#/c/${encodeURIComponent(made.id)}`);
        route = readRoute();
        this.takeSummary({ ...made, title: made.title || text.slice(0, 60), cwd: made.cwd ?? this.folder });
        await this.load();
      }
      // A short run may be over before the reply is here, so what the events say since counts more.
      const finished = this.finished;
      const sent = this.showSent(text);
      let reply;
      try {
        reply = await api("POST", this.path("/messages"), { text });
      } catch (error) {
        this.takeSent(sent);
        throw error;
      }
      this.unconfirmed = null;
      this.setText("");
      this.toEnd();
      if (reply?.queued) {
        this.takeSent(sent);
        this.refreshQueue();
      } else if (this.finished === finished && this.status !== "waiting") this.setStatus("running");
      list.refreshSoon();
    } catch (error) {
      if (error instanceof Unreachable && this.id) {
        this.unconfirmed = text;
        fill(this.error, "The connection was lost while sending. If the message arrived, it appears above; otherwise send it again.");
      } else if (error instanceof Unreachable) {
        fill(this.error, "The server is not reachable. Your text is kept; send it again in a moment.");
      } else {
        fill(this.error, sentence(error.message));
      }
    } finally {
      this.isSending = false;
      this.send.disabled = false;
      this.text.readOnly = false;
      this.text.focus();
    }
  }

  /** Shows a message until the server says that it is stored. */
  showSent(text) {
    const sent = { text, node: el("div", { class: "said sent" }, el("p", { class: "words" }, text)) };
    this.pending.push(sent);
    this.queue.append(sent.node);
    this.toEnd();
    return sent;
  }

  takeSent(sent) {
    this.pending = this.pending.filter((other) => other !== sent);
    sent.node.remove();
  }

  async refreshQueue() {
    if (!this.id) return;
    let items;
    try {
      items = (await api("GET", `/v1/queue?thread_id=${encodeURIComponent(this.id)}`)).items ?? [];
    } catch {
      return;
    }
    if (this.isClosed) return;
    for (const node of this.queue.querySelectorAll(".queued")) node.remove();
    for (const job of items.filter((job) => job.status === "queued")) {
      const id = job.job_id;
      const text = (job.messages ?? []).map(writtenIn).join("\n");
      const remove = button("Remove", "link", async () => {
        try {
          await api("DELETE", `/v1/queue/${encodeURIComponent(id)}`);
          if (text && !this.text.value.trim()) this.setText(text);
        } catch (error) {
          fill(this.error, sentence(error.message));
        }
        this.refreshQueue();
      });
      const note = el("p", { class: "dim" }, "Queued; sent when the run ends. ", may("chat") && id !== undefined && remove);
      this.queue.append(el("div", { class: "said queued" }, text && el("p", { class: "words" }, text), note));
    }
    this.follow();
  }

  async interrupt() {
    this.stop.disabled = true;
    fill(this.activity, "Stopping");
    try {
      await api("POST", this.path("/cancel"));
    } catch (error) {
      fill(this.error, error instanceof Unreachable ? "The server is not reachable; the run was not stopped." : sentence(error.message));
    } finally {
      this.stop.disabled = false;
    }
  }
}

/* ---------- where one is ---------- */

let route = { view: "inbox" };

function readRoute() {
  const [, view, rest] = /^#\/([a-z]+)\/?(.*)$/.exec(location.hash) ?? [];
  const value = rest ? safeDecode(rest) : null;
  if (view === "c" && value) return { view: "talk", id: value };
  if (view === "new") return { view: "talk", id: null, folder: value };
  if (view === "conversations") return { view: "list" };
  if (view === "card" && value) return { view: "inbox", card: value };
  return { view: "inbox" };
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function go() {
  if (takeFragment()) return;
  if (!token) return;
  const before = route;
  route = readRoute();
  document.body.dataset.view = route.view;
  for (const tab of document.querySelectorAll("#tabs a")) {
    const isHere = tab.dataset.tab === (route.view === "inbox" ? "inbox" : "list");
    if (isHere) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (route.view === "talk") {
    const isSame = talk && talk.id === route.id && (route.id || talk.folder === (route.folder ?? me.default_folder));
    if (!isSame) {
      talk?.close();
      talk = new Talk(route.id, route.id ? null : (route.folder ?? me.default_folder));
      const known = list.items.find((item) => item.id === route.id);
      if (known) {
        talk.title = known.title;
        talk.folder = known.cwd;
        talk.drawHead();
      }
      if (!narrow.matches || !route.id) talk.text.focus();
    }
  } else if (narrow.matches && talk) {
    talk.close();
    talk = null;
  }
  if (!talk) drawNothing();
  list.draw();
  placeCards();
  updateCounts();
  if (before.view !== route.view) for (const card of cards.values()) card.arm();
  if (route.card && hasInbox) openLinked(route.card);
}

function drawNothing() {
  fill($("talk"), el("div", { class: "nothing" }, el("p", {}, "Choose a conversation, or start a new one."), button("New conversation", "secondary", newConversation)));
}

/** A link to a card that is no longer open says how it was answered. */
async function openLinked(id) {
  if (showCard(id)) return;
  const data = await fetchCard(id);
  if (!data) {
    announceNotice("That question no longer exists.");
  } else if (data.status === "open") {
    takeCard(data, false);
    showCard(id);
  } else {
    const card = new Card({ ...data, status: "open" });
    cards.set(id, card);
    placeCards();
    card.close(data);
    card.node.focus();
  }
}

function announceNotice(text) {
  const notice = $("notice");
  notice.className = "back";
  fill(notice, text);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(showConnection, 5000);
}

function newConversation() {
  const folders = me.folders ?? [];
  if (folders.length < 2) {
    location.hash = folders[0] ? `#/new/${encodeURIComponent(folders[0])}` : "#/new";
    return;
  }
  const dialog = el("dialog", { class: "folders", "aria-labelledby": "folders-title" });
  const pick = (folder) => {
    dialog.close();
    location.hash = `#/new/${encodeURIComponent(folder)}`;
  };
  add(
    dialog,
    el("h2", { id: "folders-title" }, "Folder of the new conversation"),
    el("ul", {}, folders.map((folder) => el("li", {}, button(folder, folder === me.default_folder ? "folder default" : "folder", () => pick(folder))))),
    el("form", { method: "dialog" }, el("button", { class: "quiet" }, "Cancel")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/* ---------- signing in ---------- */

/** Takes a code or token out of the address, at once: the address is shown, shared and kept in histories. */
function takeFragment() {
  const found = /[#&](code|token)=([^&]+)/.exec(location.hash);
  if (!found) return false;
  const card = /^#\/card\/[^&]+/.exec(location.hash)?.[0] ?? "";
  history.replaceState(null, "", location.pathname + card);
  signIn(found[1], safeDecode(found[2]));
  return true;
}

async function signIn(kind, value) {
  const error = $("sign-in-error");
  error.hidden = true;
  const submit = $("sign-in-form").querySelector("button");
  submit.disabled = true;
  fill(submit, "Signing in…");
  const before = token;
  try {
    if (kind === "code") {
      token = null;
      token = (await api("POST", "/v1/sign-in", { code: value })).token;
    } else {
      token = null;
      const found = await fetchMe(value);
      me = found;
      token = value;
    }
    keep.set("token", token);
    $("sign-in-token").value = "";
    await enter();
  } catch (problem) {
    token = before;
    if (before) {
      await enter();
      announceNotice("The code in the URL is no longer valid; you are still signed in.");
      return;
    }
    showSignIn();
    error.hidden = false;
    let text = sentence(problem.message);
    if (problem instanceof Unreachable) text = "The server is not reachable. Try again in a moment.";
    else if (problem.status === 401 && kind === "code") text = "This code was used or is older than five minutes. Scan a new one, or paste a token.";
    else if (problem.status === 401) text = "This token is not valid. Check that it is complete.";
    fill(error, text);
  } finally {
    submit.disabled = false;
    fill(submit, "Sign in");
  }
}

async function fetchMe(candidate) {
  const response = await request("GET", "/v1/me", { headers: { authorization: `Bearer ${candidate}` }, signal: AbortSignal.timeout?.(30_000) });
  return response.json();
}

function showSignIn(why) {
  $("app").hidden = true;
  $("sign-in").hidden = false;
  if (why) fill($("sign-in-why"), why);
  $("sign-in-token").focus();
}

/** Shows the page. Who one is may be learned later, when the server is not reachable yet. */
async function enter(attempt = 0) {
  $("sign-in").hidden = true;
  $("app").hidden = false;
  try {
    me = await api("GET", "/v1/me");
  } catch (error) {
    if (!token) return;
    if (error instanceof Unreachable) {
      const notice = $("notice");
      notice.className = "lost";
      fill(notice, "The server is not reachable. Retrying…");
      wasLost = true;
      setTimeout(() => token && enter(attempt + 1), Math.min(10_000, 500 * 2 ** attempt));
      return;
    }
    showSignIn(sentence(error.message));
    return;
  }
  $("sign-out").title = plain(`Signed in as ${me.name}`);
  $("new").hidden = !may("chat");
  list.refresh();
  watch.start();
  go();
}

function signedOut(why) {
  token = null;
  keep.set("token", null);
  watch.stop();
  talk?.close();
  talk = null;
  for (const card of cards.values()) card.node.remove();
  cards.clear();
  hasInbox = false;
  wasLost = false;
  backUntil = 0;
  list.items = [];
  list.isLoaded = false;
  fill($("threads"));
  updateCounts();
  showSignIn(why);
}

/* ---------- keys ---------- */

const KEYS = [
  ["i", "first question in the inbox"],
  ["j k", "next, previous question"],
  ["y", "approve the focused question, once it was read to its end"],
  ["n", "deny it, with or without a reason"],
  ["e", "edit its arguments"],
  ["r", "request changes"],
  ["a", "always allow"],
  ["m", "write a message"],
  ["c", "new conversation"],
  ["Enter", "send; Shift+Enter starts a new line"],
  ["Esc", "close, or back to the list"],
  ["?", "these keys"],
];

function showHelp() {
  fill($("help-keys"), KEYS.map(([key, text]) => el("div", {}, el("dt", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("dd", {}, text))));
  $("help").showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || $("app").hidden) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && isTyping(event.target)) return event.target.blur();
  if (event.key === "Escape" && narrow.matches && route.view === "talk") return void (location.hash = "#/conversations");
  if (isTyping(event.target) || event.repeat) return;
  const run = {
    "?": showHelp,
    i: () => {
      if (narrow.matches) location.hash = "#/inbox";
      requestAnimationFrame(focusNextCard);
    },
    m: () => talk?.text.focus(),
    c: newConversation,
  }[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});

/* ---------- start ---------- */

$("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("sign-in-token").value.trim();
  const found = /[#&](code|token)=([^&\s]+)/.exec(text);
  if (found) signIn(found[1], safeDecode(found[2]));
  else if (text) signIn("token", text);
});
$("sign-out").addEventListener("click", () => {
  keep.clear();
  history.replaceState(null, "", location.pathname);
  signedOut("Signed out. The token and all drafts are removed from this browser.");
});
$("help-open").addEventListener("click", showHelp);
$("new").addEventListener("click", newConversation);
$("threads-more").addEventListener("click", () => {
  list.limit = Math.min(200, list.limit + 50);
  list.refresh();
});
addEventListener("hashchange", go);
narrow.addEventListener("change", () => token && go());
addEventListener("online", retryNow);
addEventListener("offline", () => {
  // What is open may be dead without saying so. A server on this device is back at once.
  for (const stream of streams) stream.abort?.abort();
});
// Signing out in one window signs all of them out.
addEventListener("storage", (event) => {
  if (event.key === "aye.token" && !event.newValue && token) signedOut("Signed out in another window.");
  else if (event.key === "aye.token" && event.newValue && !token) location.reload();
});
document.addEventListener("visibilitychange", () => {
  for (const card of cards.values()) card.arm();
  clearTimeout(talk?.restTimer);
  if (!talk?.stream) return void (document.hidden || list.refresh());
  // Browsers allow few connections to a server: a hidden window keeps only the inbox's.
  if (document.hidden) talk.restTimer = setTimeout(() => talk?.stream?.stop(), 30_000);
  else {
    talk.stream.start();
    retryNow();
    list.refresh();
  }
});
setInterval(() => {
  for (const card of cards.values()) if (!card.isClosed) card.tick();
}, 1000);
setInterval(() => document.hidden || list.refresh(), 20_000);

if (!takeFragment()) {
  token = keep.get("token");
  if (token) enter();
  else showSignIn();
}
