// The server: requests, and streams that are opened again.

import { state } from "./state.js";
import { setSkew } from "./words.js";

export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message || `the server answered with status ${status}`);
    this.status = status;
    this.code = error.code ?? "";
    this.body = body;
  }
}

/** The server was not reached, or its answer was not: whether it acted is unknown. */
export class Unreachable extends Error {}

/** What happens when the sign-in is refused. */
export const refused = { signIn: null };

const UNAVAILABLE = [502, 503, 504];

export async function request(method, path, { body, headers, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(state.token ? { authorization: `Bearer ${state.token}` } : {}),
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
    if (response.status === 401 && state.token && path !== "/v1/sign-in") refused.signIn?.("This sign-in is no longer valid. Sign in again; what you wrote is kept.");
    throw error;
  }
  return response;
}

export async function api(method, path, body) {
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
export const streams = new Set();
/** What happens when a stream changes its state. */
export const changed = { connection: null };

/** A stream that is opened again whenever it ends. `name` is for the sentence that says what is happening. */
export class Stream {
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
    changed.connection?.();
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
    changed.connection?.();
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
      changed.connection?.();
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
        changed.connection?.();
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
    changed.connection?.();
  }
}
