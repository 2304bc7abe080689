// What the browser keeps.

export const keep = {
  get(key) {
    try {
      return localStorage.getItem(`aye.${key}`);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      if (value) localStorage.setItem(`aye.${key}`, value);
      else localStorage.removeItem(`aye.${key}`);
    } catch {
      // Without storage a reload asks for the token again.
    }
  },
  clear() {
    try {
      for (const key of Object.keys(localStorage)) if (key.startsWith("aye.")) localStorage.removeItem(key);
    } catch {
      // Nothing was kept.
    }
  },
};
