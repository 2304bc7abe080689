// Where one is, from the address.

export function readRoute() {
  const [, view, rest] = /^#\/([a-z]+)\/?(.*)$/.exec(location.hash) ?? [];
  const value = rest ? safeDecode(rest) : null;
  if (view === "c" && value) return { view: "talk", id: value };
  if (view === "new") return { view: "talk", id: null, folder: value };
  if (view === "conversations") return { view: "list" };
  if (view === "card" && value) return { view: "inbox", card: value };
  return { view: "inbox" };
}

export function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
