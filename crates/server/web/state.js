// What the modules of the page share: who is signed in, where one is, and what is open.

export const state = {
  token: null,
  me: { scopes: [], folders: [] },
  route: { view: "inbox" },
  /** The conversation that is shown. */
  talk: null,
  /** Whether the questions that are open are known. */
  hasInbox: false,
};

export const may = (scope) => state.me.scopes.includes(scope);

/** The cards of questions, by id. */
export const cards = new Map();

/** What is under the finger has moved: for a short time nothing can be approved. */
export function armCards() {
  for (const card of cards.values()) card.arm();
}
