// Times, names of tools, calls and decisions in words.

import { commandShown } from "./code.js";
import { el, oneLine } from "./text.js";

/** The server's clock less this device's: a question expires by the server's. */
let skew = 0;
export const setSkew = (ms) => {
  skew = ms;
};
export const serverNow = () => Date.now() + skew;

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

export function ago(ms) {
  const s = Math.max(0, (serverNow() - ms) / 1000);
  if (s < 60) return "just now";
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 7 * 86_400) return `${Math.floor(s / 86_400)} d ago`;
  return new Date(ms).toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });
}

export function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export const shortFolder = (path) => String(path ?? "").split("/").filter(Boolean).slice(-2).join("/") || "/";
export const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** A tool's id in words: as `tool_words` in question.rs. */
export function toolWords(id) {
  const [, server, tool] = /^mcp__(.+?)__(.+)$/.exec(id) ?? [];
  if (server) return `${tool} (${server})`;
  if (id.startsWith("agent_run_")) return `agent ${id.slice("agent_run_".length)}`;
  return id === "render_a2ui" ? "a form" : id;
}

/** What a call is about, on one line. */
export function callSummary(name, args) {
  if (typeof args === "string") return oneLine(args).slice(0, 200);
  if (Array.isArray(args?.todos)) {
    return `${args.todos.filter((todo) => todo?.status === "completed").length} of ${args.todos.length} done`;
  }
  const telling = ["command", "file_path", "url", "question", "pattern", "path", "skill", "prompt"];
  const key = telling.find((key) => typeof args?.[key] === "string");
  const simple = Object.entries(args ?? {}).filter(([, value]) => value !== null && typeof value !== "object");
  const text = key ? args[key].trim() : simple.map(([name, value]) => `${inWords(name)}: ${value}`).join(", ");
  const short = oneLine(text);
  return short.length > 200 ? short.slice(0, 199) + "…" : short;
}

const inWords = (name) => oneLine(name).replaceAll("_", " ");

/** A value of a call, whole: each name and each text has an element of its own, so that none can look like another. */
export function shownValue(value) {
  if (typeof value === "string") return el(value.includes("\n") ? "pre" : "span", { class: "value" }, value || "(empty)");
  if (typeof value === "boolean") return el("span", {}, value ? "yes" : "no");
  if (Array.isArray(value) && value.length) return el("ol", { class: "values" }, value.map((one) => el("li", {}, shownValue(one))));
  if (value && typeof value === "object" && Object.keys(value).length) return shownMembers(value);
  return el("span", {}, typeof value === "number" ? String(value) : "none");
}

const shownMembers = (members) =>
  el("dl", { class: "members" }, Object.entries(members).map(([name, value]) => el("div", {}, el("dt", {}, inWords(name)), el("dd", {}, shownValue(value)))));

const TODO = { completed: "☒", in_progress: "▸", pending: "☐" };

/** The whole call: a command as it will run, the words of it that are dangerous, and its other arguments below it. */
export function callShown(args, danger) {
  if (typeof args === "string") return [el("pre", { class: "call" }, args)];
  const { command, todos, ...rest } = args ?? {};
  const parts = [];
  if (typeof command === "string") parts.push(commandShown(command, danger));
  else if (command !== undefined) rest.command = command;
  if (Array.isArray(todos) && todos.every((todo) => typeof todo?.content === "string" && TODO[todo.status])) {
    parts.push(el("ul", { class: "todos" }, todos.map((todo) => el("li", {}, `${TODO[todo.status]} ${todo.content}`))));
  } else if (todos !== undefined) rest.todos = todos;
  if (Object.keys(rest).length) parts.push(shownMembers(rest));
  return parts;
}

export function decidedBy(card) {
  const decision = card.decision;
  const isAnswer = card.kind && card.kind !== "permission";
  const words = { resume: isAnswer ? "Answered" : "Approved", cancel: isAnswer ? "Skipped" : "Denied" };
  const word = words[decision?.action] ?? { expired: "Expired", superseded: "No longer asked" }[card.status] ?? "Answered";
  const by = decision?.by;
  if (by?.channel === "remote") return `Answered on the side of ${by.user}`;
  // After a remote user's name stands the name of the token, which says where.
  const where = { tui: "in the terminal", cli: "on the command line", http: "", acp: "in the editor" };
  const who = [by?.user, by?.channel && (where[by.channel] ?? by.channel)].filter(Boolean).join(", ");
  return who ? `${word} by ${who}` : word;
}

export function endedBecause(termination) {
  const type = termination?.type ?? termination;
  const value = termination?.value;
  switch (type) {
    case "cancelled":
      return ["note", "Stopped."];
    case "stopped":
      return ["note", `Stopped: ${value?.detail || value?.code || "a limit is reached"}.`];
    case "blocked":
      return ["error", `Blocked: ${value ?? "a plugin refused the call"}`];
    case "error":
      return ["error", `The run failed: ${typeof value === "string" ? value : (value?.message ?? "without a reason")}`];
    default:
      return null;
  }
}
