// Drives the page of a running `aye serve` in a real browser: sign in, inbox, approve, deny, streaming, a lost
// connection, stop, hostile text, sign out; at 1280x800 and 390x844, two browsers at a time.
//
//   node scripts/clients/browser.mjs http://127.0.0.1:7400 (--token T | --code C) [--shots FOLDER]
//
// Needs Debian's chromium (or CHROMIUM=/path), playwright-core, and a server whose model follows the markers [[sh:COMMAND]] and [[stream:N:R]] in what the user says, and that asks before a command runs.

import { chromium } from "playwright-core";

const args = process.argv.slice(2);
const option = (name) => (args.includes(name) ? args[args.indexOf(name) + 1] : null);
const base = args[0]?.replace(/\/$/, "");
const [token, code, shots] = [option("--token"), option("--code"), option("--shots")];
if (!/^https?:/.test(base ?? "") || !(token || code)) {
  console.error("usage: node browser.mjs BASE (--token T | --code C) [--shots FOLDER]");
  process.exit(2);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
let passed = 0;
let failed = 0;
let signedIn = null;

function expect(condition, what) {
  if (!condition) throw new Error(`expected ${what}`);
}

async function open({ width = 1280, height = 800, path = "/", isSignedIn = true, scheme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, ignoreHTTPSErrors: true });
  if (isSignedIn) {
    await context.addInitScript((kept) => {
      if (location.protocol.startsWith("http") && !sessionStorage.getItem("seen")) {
        localStorage.setItem("aye.token", kept);
        sessionStorage.setItem("seen", "1");
      }
    }, signedIn);
  }
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(error.stack));
  page.on("console", (line) => {
    if (line.type() === "error" && !/net::ERR|the server responded with a status/.test(line.text())) page.problems.push(line.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) page.problems.push(`loaded ${request.url()}`);
  });
  await page.goto(base + path);
  return page;
}

async function step(name, run) {
  const pages = [];
  const opened = async (...about) => {
    const page = await open(...about);
    pages.push(page);
    return page;
  };
  try {
    await run(opened);
    const problems = pages.flatMap((page) => page.problems);
    expect(!problems.length, `no errors in the page, got ${problems.join("\n")}`);
    passed += 1;
    console.log(`ok    ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n      ${String(error.stack).split("\n").slice(0, 6).join("\n      ")}`);
    if (shots) for (const [at, page] of pages.entries()) await page.screenshot({ path: `${shots}/fail-${failed}-${at}.png` }).catch(() => {});
  }
  for (const page of pages) await page.context().close();
}

async function newConversation(page, text) {
  await page.waitForSelector("#app:not([hidden])");
  await page.goto(`${base}/#/new`);
  await page.waitForSelector("#composer");
  await say(page, text);
  await page.waitForFunction(() => location.hash.startsWith("#/c/"));
}

async function say(page, text) {
  await page.fill("#composer", text);
  await page.press("#composer", "Enter");
  await page.waitForFunction(() => document.querySelector("#composer").value === "");
}

const openCard = (page) => page.locator(".card:not(.closed)").last();
const isIdle = () => !document.querySelector(".activity").classList.contains("busy") && !document.querySelector(".draft");
const answers = (page) => page.locator("#talk .prose").allTextContents();

/** Waits until the page has these answers: after a reload they may come one by one. */
async function shows(page, wanted) {
  const has = (wanted) => JSON.stringify([...document.querySelectorAll("#talk .prose")].map((one) => one.textContent)) === wanted;
  await page.waitForFunction(has, JSON.stringify(wanted), { timeout: 20_000 });
}

async function approve(page) {
  const card = openCard(page);
  await card.waitFor();
  const yes = card.locator(".primary");
  await card.locator(".end").scrollIntoViewIfNeeded();
  await yes.scrollIntoViewIfNeeded();
  await page.waitForFunction((node) => node.getAttribute("aria-disabled") === "false", await yes.elementHandle());
  await yes.click();
}

await step("signs in once; the address keeps no secret", async (opened) => {
  const page = await opened({ isSignedIn: false });
  await page.waitForSelector("#sign-in:not([hidden])");
  const csp = await page.evaluate(async () => (await fetch("/")).headers.get("content-security-policy"));
  expect(/default-src 'none'/.test(csp ?? "") && /script-src 'self'/.test(csp) && !/unsafe/.test(csp), `a strict policy, got ${csp}`);
  await page.goto(`${base}/#${token ? `token=${encodeURIComponent(token)}` : `code=${encodeURIComponent(code)}`}`);
  await page.waitForSelector("#app:not([hidden])");
  await page.waitForSelector("#cards-empty:not([hidden]), .card");
  expect(!/token|code/.test(page.url()), `a clean address, got ${page.url()}`);
  signedIn = await page.evaluate(() => localStorage.getItem("aye.token"));
  await page.reload();
  await page.waitForSelector("#cards-empty:not([hidden]), .card");
});
if (!signedIn) {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(1);
}

if (code) {
  await step("a code counts once", async (opened) => {
    const page = await opened({ isSignedIn: false, path: `/#code=${encodeURIComponent(code)}` });
    await page.waitForSelector("#sign-in-error:not([hidden])");
  });
}

await step("a wrong token is refused", async (opened) => {
  const page = await opened({ isSignedIn: false, path: "/#token=aye_wrong" });
  await page.waitForSelector("#sign-in-error:not([hidden])");
});

await step("390x844: an empty inbox leads to the first conversation", async (opened) => {
  const page = await opened({ width: 390, height: 844 });
  await page.click("#cards-empty .start");
  await page.waitForSelector("#composer:focus");
  expect((await page.getAttribute("#composer", "placeholder")) === "What should aye do?", "a question in the composer");
  await say(page, "[[text]] A first answer.");
  await page.waitForFunction(() => /A first answer/.test(document.querySelector("#talk .prose")?.textContent ?? ""));
});

for (const [width, height, scheme] of [
  [1280, 800, "light"],
  [390, 844, "dark"],
]) {
  await step(`${width}x${height}: a command is approved and watched; another browser learns of it`, async (opened) => {
    const [page, other] = [await opened({ width, height, scheme }), await opened({ width: 390, height: 844 })];
    await page.evaluate(() => {
      const look = () => (window.first ??= document.querySelector(".card:not(.closed) .primary")?.getAttribute("aria-disabled"));
      new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    });
    await newConversation(page, `[[sh:echo approved-${width} | tee browser.txt]]`);
    await openCard(page).waitFor();
    await openCard(other).waitFor();
    expect((await page.evaluate(() => window.first)) === "true", "Approve to be inactive at first");
    if (shots) await page.screenshot({ path: `${shots}/card-${width}-${scheme}.png` });
    await approve(page);
    await openCard(page).waitFor({ state: "detached" }).catch(() => {});
    const from = Date.now();
    await other.waitForSelector(".card.closed");
    const ms = Date.now() - from;
    // Only where somebody looks at the time: on a busy machine it says nothing about aye.
    if (process.env.STRICT_TIMES) expect(ms < 300, `the other browser to learn of it within 300 ms, not ${ms}`);
    expect(/Approved by/.test(await other.textContent(".card.closed")), "the other browser to say who answered");
    // Between the answer and the run that it resumes nothing is busy.
    await page.waitForSelector(".call-row[data-state=succeeded]", { timeout: 20_000 });
    await page.waitForFunction(isIdle, null, { timeout: 20_000 });
    expect((await page.locator(".call-row[data-state=succeeded]").count()) === 1, "the call to be done");
    await page.locator(".call-row summary").click();
    await page.waitForFunction((text) => document.querySelector(".detail").textContent.includes(text), `approved-${width}`);
    if (shots) await page.screenshot({ path: `${shots}/done-${width}-${scheme}.png` });
    const before = await answers(page);
    expect(before.length > 0, "an answer");
    await page.reload();
    await page.waitForSelector("#talk .prose");
    expect(JSON.stringify(await answers(page)) === JSON.stringify(before), "the same answers after a reload");
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing wider than the window");
  });
}

await step("a denial with a reason reaches the model", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[sh:echo denied | tee browser.txt]]");
  await openCard(page).getByRole("button", { name: "Deny" }).click();
  await page.keyboard.type("not in this test");
  await page.keyboard.press("Enter");
  await page.waitForFunction(isIdle, null, { timeout: 20_000 });
  await page.waitForFunction(() => /denied by you: not in this test/.test(document.querySelector(".call-row summary").textContent));
  await page.locator(".call-row summary").click();
  await page.waitForFunction(() => document.querySelector(".detail").textContent.includes("not in this test"));
});

await step("a dangerous command is red", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[sh:rm -rf build && git push --force]]");
  const card = openCard(page);
  await card.waitFor();
  expect(await card.evaluate((node) => node.classList.contains("dangerous")), "a red card");
  const words = await card.locator(".dangerous").allTextContents();
  expect(words.includes("--force") && words.some((word) => word.startsWith("rm")), `its dangerous words to be red, got ${words}`);
  if (shots) await page.screenshot({ path: `${shots}/danger.png` });
  await card.getByRole("button", { name: "Deny" }).click();
  await page.keyboard.press("Enter");
  await page.waitForFunction(isIdle, null, { timeout: 20_000 });
});

await step("always means this project, and this conversation for what is dangerous", async (opened) => {
  const page = await opened();
  await page.waitForSelector("#app:not([hidden])");
  // A server that asks by a rule proposes nothing, so the card is made here.
  const scopes = await page.evaluate(async () => {
    const { Card } = await import("/card.js");
    return [null, { title: "Deletes files", words: ["rm"] }].map((danger) => {
      const proposals = [{ pattern: "Bash(rm *)", words: "" }];
      const card = new Card({ id: "q", kind: "permission", status: "open", tool: "Bash", arguments: { command: "rm a" }, command: "rm a", proposals, danger }, {});
      card.showPanel("grant");
      return card.node.querySelector(".scopes :checked").closest("label").textContent;
    });
  });
  expect(scopes.join() === "this project,this conversation", `the scopes of the terminal, got ${scopes}`);
});

await step("a change has the colours of its language and marks what differs", async (opened) => {
  const page = await opened();
  const shown = await page.evaluate(async () => {
    const { renderDiff } = await import("/diff.js");
    const lines = [" fn main() { // says it", "-    let a = \"x\";", "+    let a = \"äy\";", " é\u202e <b>1</b>", ""];
    const node = renderDiff(`--- a.rs\n+++ b.rs\n@@ -1,3 +1,3 @@\n${lines.join("\n")}`);
    const texts = (style) => [...node.querySelectorAll(`.${style}`)].map((part) => part.textContent);
    const rows = [...node.querySelectorAll(".text")].map((row) => row.textContent);
    const plain = renderDiff("@@ -1 +1 @@\n-let a\n+let b\n").querySelectorAll(".keyword").length;
    return { keywords: texts("keyword"), comments: texts("comment"), changed: texts("changed"), rows, plain, bold: node.querySelectorAll("b").length };
  });
  const wanted = {
    keywords: ["fn", "let", "let"], comments: ["// says it"], changed: ["x", "äy"],
    rows: ["fn main() { // says it", "    let a = \"x\";", "    let a = \"äy\";", "é⟨U+202E⟩ <b>1</b>"], plain: 0, bold: 0,
  };
  expect(JSON.stringify(shown) === JSON.stringify(wanted), `${JSON.stringify(wanted)}, got ${JSON.stringify(shown)}`);
});

await step("edited arguments are what runs", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[sh:echo proposed | tee browser.txt]]");
  await openCard(page).getByRole("button", { name: "Edit" }).click();
  const text = openCard(page).locator("textarea");
  const edited = (await text.inputValue()).replace("echo proposed", "echo edited-here");
  await text.fill("{");
  await openCard(page).getByRole("button", { name: "Review" }).click();
  expect(/JSON/.test(await openCard(page).locator(".error").first().textContent()), "an error about the JSON");
  await text.fill(edited);
  await openCard(page).getByRole("button", { name: "Review" }).click();
  await approve(page);
  await page.waitForFunction(isIdle, null, { timeout: 20_000 });
  await page.locator(".call-row summary").click();
  await page.waitForFunction(() => /edited-here/.test(document.querySelector(".detail .output")?.textContent ?? ""));
});

await step("an answer streams; drafts become the stored text without a double", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[stream:80:40]]");
  await page.waitForSelector(".draft .prose");
  const first = (await page.textContent(".draft .prose")).length;
  await page.waitForFunction((n) => (document.querySelector(".draft .prose")?.textContent.length ?? 0) > n, first);
  await page.waitForFunction(isIdle, null, { timeout: 30_000 });
  // Between the draft and the stored text there may be neither.
  await page.waitForSelector("#talk .prose");
  const live = await answers(page);
  expect(live.length === 1, `one answer, got ${live.length}`);
  await page.reload();
  await page.waitForSelector("#talk .prose");
  await shows(page, live);
});

await step("a lost connection loses and doubles nothing and is said", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[stream:200:40]]");
  await page.waitForSelector(".draft .prose");
  await page.fill("#composer", "a draft");
  await page.context().setOffline(true);
  await page.waitForFunction(() => /offline|not reachable/.test(document.querySelector("#notice").textContent), null, { timeout: 90_000 });
  await page.context().setOffline(false);
  await page.waitForFunction(() => /Connected again/.test(document.querySelector("#notice").textContent), null, { timeout: 20_000 });
  // A page that just came back may look idle before it has read what it missed.
  await page.waitForFunction(() => /word199/.test(document.querySelector("#talk").textContent), null, { timeout: 30_000 });
  await page.waitForFunction(isIdle, null, { timeout: 30_000 });
  const live = await answers(page);
  expect((await page.inputValue("#composer")) === "a draft", "the draft to be kept");
  await page.reload();
  await page.waitForSelector("#talk .prose");
  await shows(page, live);
  expect((await page.inputValue("#composer")) === "a draft", "the draft to be kept over a reload");
});

await step("a message is queued while a run works; stop ends the run", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[stream:2000:20]]");
  await page.waitForSelector(".draft .prose");
  await say(page, "[[text]] afterwards");
  await page.waitForSelector(".queued");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#talk .said:not(.queued):not(.sent)").length === 2, null, { timeout: 20_000 });
  await page.waitForFunction(isIdle, null, { timeout: 20_000 });
});

await step("keys answer only on a card that has the focus", async (opened) => {
  const page = await opened();
  await newConversation(page, "[[sh:echo keys | tee browser.txt]]");
  await openCard(page).waitFor();
  await page.waitForTimeout(900);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("y");
  await page.waitForTimeout(200);
  expect((await page.locator(".card.closed").count()) === 0, "no answer without the focus");
  await page.keyboard.press("i");
  await page.waitForTimeout(900);
  await page.keyboard.press("y");
  await page.waitForSelector(".card.closed");
});

await step("hostile text is visible and inert", async (opened) => {
  const page = await opened({ width: 390, height: 844 });
  const text =
    "[[text]] \u001b[2J\u001b]52;c;AA==\u0007 a\u202egpj.exe \u2066x\u2069 \u200b\u200f " +
    '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> [x](javascript:window.pwned=1) ![y](http://127.0.0.1:9/y.png)';
  await newConversation(page, text);
  await page.waitForSelector("#talk .said:not(.sent)");
  await page.waitForFunction(isIdle, null, { timeout: 20_000 });
  const state = await page.evaluate(() => ({
    pwned: window.pwned,
    raw: /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent + document.title),
    elements: document.querySelectorAll("#talk img, #talk script, #talk .said a, #talk .prose a").length,
    spelled: document.querySelector("#talk .said").textContent.includes("⟨U+202E⟩"),
  }));
  expect(!state.pwned && !state.raw && state.elements === 0 && state.spelled, `inert, visible text, got ${JSON.stringify(state)}`);
});

await step("signs out", async (opened) => {
  const page = await opened();
  await page.waitForSelector("#app:not([hidden])");
  await page.click("#sign-out");
  await page.waitForSelector("#sign-in:not([hidden])");
  expect(await page.evaluate(() => Object.keys(localStorage).every((key) => !key.startsWith("aye."))), "nothing kept");
});

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
