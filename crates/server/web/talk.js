// A conversation.

import { Call } from "./call.js";
import { showCard, updateCounts } from "./inbox.js";
import { list } from "./list.js";
import { growth, own, Prose } from "./markdown.js";
import { $, calm, isPlainEnter, sentence } from "./page.js";
import { readRoute } from "./route.js";
import { api, ApiError, Stream, Unreachable } from "./server.js";
import { cards, may, state } from "./state.js";
import { keep } from "./storage.js";
import { add, button, el, fill, oneLine } from "./text.js";
import { clock, count, endedBecause, toolWords } from "./words.js";

function reasoning(text) {
  const body = el("div", { class: "thoughts" });
  body.textContent = "";
  add(body, text);
  return el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), body);
}

/** What the user wrote, without what goes with it to the model. */
const writtenIn = (message) =>
  message.metadata?.written ?? (typeof message.content === "string" ? message.content : (message.content ?? []).map((block) => block.text ?? "").join(""));

export class Talk {
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
        state.route = readRoute();
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
