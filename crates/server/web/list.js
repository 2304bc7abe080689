// The list of conversations.

import { $, sentence } from "./page.js";
import { api, ApiError } from "./server.js";
import { startButton } from "./start.js";
import { state } from "./state.js";
import { el, fill, oneLine } from "./text.js";
import { ago, count, shortFolder } from "./words.js";

export const list = {
  items: [],
  limit: 50,
  async refresh() {
    if (!state.token) return;
    try {
      const page = await api("GET", `/v1/threads/summaries?offset=0&limit=${this.limit}`);
      this.items = page.items ?? [];
      this.hasMore = page.next_offset !== null && page.next_offset !== undefined;
      this.isLoaded = true;
      this.draw();
      state.talk?.takeSummary(this.items.find((item) => item.id === state.talk.id));
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
            { href: `#/c/${encodeURIComponent(item.id)}`, "aria-current": state.talk?.id === item.id ? "page" : null },
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
