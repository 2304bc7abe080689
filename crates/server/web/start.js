// How a conversation starts.

import { may, state } from "./state.js";
import { add, button, el } from "./text.js";

/** What somebody who has nothing to answer can do; a wide window offers it in the middle. */
export const startButton = () => may("chat") && button("New conversation", "secondary start", newConversation);

export function newConversation() {
  const folders = state.me.folders ?? [];
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
    el("ul", {}, folders.map((folder) => el("li", {}, button(folder, folder === state.me.default_folder ? "folder default" : "folder", () => pick(folder))))),
    el("form", { method: "dialog" }, el("button", { class: "quiet" }, "Cancel")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
