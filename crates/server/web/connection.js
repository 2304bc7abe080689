// The notice about the connection to the server.

import { $ } from "./page.js";
import { changed, streams } from "./server.js";
import { armCards } from "./state.js";
import { button, fill } from "./text.js";

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
  if (notice.offsetHeight !== noticeHeight) armCards();
  noticeHeight = notice.offsetHeight;
}

export function retryNow() {
  for (const stream of streams) stream.nudge();
}

changed.connection = showConnection;

export function announceNotice(text) {
  const notice = $("notice");
  notice.className = "back";
  fill(notice, text);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(showConnection, 5000);
}

/** Says that the server is not reached, before any stream knows. */
export function showLost(text) {
  const notice = $("notice");
  notice.className = "lost";
  fill(notice, text);
  wasLost = true;
}

export function forgetConnection() {
  wasLost = false;
  backUntil = 0;
}
