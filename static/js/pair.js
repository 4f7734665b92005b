// The annotator's page. The next pair is fetched while this one is read; an answer is shown as saved only when
// the server has said so, and one that could not be sent is kept and sent again.
(() => {
  "use strict";

  // A key pressed just as the next pair appears was meant for the last one.
  const SETTLE_MS = 200;
  const RETRY_MS = [1000, 2000, 4000, 8000];
  const KEYS = {
    ArrowLeft: "choose-left", 1: "choose-left", ArrowRight: "choose-right", 2: "choose-right",
    ArrowDown: "choose-tie", t: "choose-tie", b: "choose-both-bad", s: "skip", u: "undo",
  };

  const narrow = matchMedia("(max-width: 46rem)");
  const byId = (id) => document.getElementById(id);
  const words = () => byId("page").dataset;
  const token = (stage) => stage.dataset.token;

  // Speech input and unsteady hands can set off letters by accident, so they can be switched off.
  const LETTERS = "llmpo-letter-keys";
  const lettersOff = () => localStorage.getItem(LETTERS) === "off";

  let held = []; // pairs that wait behind the one on show
  let unsent = null; // {url, fields}: the one answer that the server has not confirmed
  let next = null; // what was pressed in the meantime: done once that answer is confirmed
  let attempts = 0;
  let retry = 0;
  let shownAt = 0;
  let fetching = false;

  // ---------------------------------------------------------------- showing

  function say(text) {
    byId("said").textContent = text;
  }

  function tell(problem) {
    byId("problem").textContent = problem;
    byId("problem").hidden = !problem;
  }

  function readProgress(stage) {
    byId("today").textContent = stage.dataset.today;
    byId("everybody").textContent = stage.dataset.everybody;
  }

  function show(stage) {
    const hadFocus = byId("stage").contains(document.activeElement) || document.activeElement === document.body;
    byId("stage").replaceWith(stage);
    htmx.process(stage);
    settle(hadFocus);
  }

  function settle(takeFocus) {
    shownAt = performance.now();
    const title = byId("task-title");
    if (takeFocus && title) title.focus({ preventScroll: true });
    const texts = [...document.querySelectorAll("#stage .text")];
    byId("together-switch").hidden = !texts.some((text) => text.scrollHeight > text.clientHeight + 4);
    // On a phone the responses come first; the last message stays in sight.
    for (const earlier of document.querySelectorAll("#stage .earlier")) earlier.open = !narrow.matches;
    setBusy(Boolean(unsent) && unsent.shown === false);
  }

  function setBusy(busy) {
    const choices = document.querySelector("#stage .choices");
    if (choices) choices.disabled = busy;
  }

  function parse(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    return document.adoptNode(page.getElementById("stage"));
  }

  // ---------------------------------------------------------------- talking to the server

  function csrf() {
    return JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  }

  const headers = () => ({ "HX-Request": "true", "X-CSRFToken": csrf() });

  // Two replies may carry the same pair; it must not be shown twice.
  function hold(stage) {
    if (token(stage) && token(stage) !== token(byId("stage")) && !held.map(token).includes(token(stage))) held.push(stage);
  }

  async function fetchAhead() {
    if (fetching || unsent || held.length || !token(byId("stage"))) return;
    fetching = true;
    try {
      const reply = await fetch(`${words().pair}?besides=${token(byId("stage"))}`, { headers: headers() });
      if (reply.ok) hold(parse(await reply.text()));
    } catch {
      // The connection is down; the next round tries again.
    } finally {
      fetching = false;
    }
  }

  function submit(url, fields) {
    if (unsent) {
      // The pair on show may be another one than the one being sent. Its answer waits, and the buttons say so.
      if (!unsent.shown || next) return;
      next = () => submit(url, fields);
      return setBusy(true);
    }
    const besides = held.map(token);
    unsent = { url, fields: [...fields, ...besides.map((each) => ["besides", each])], shown: held.length > 0 };
    attempts = 0;
    localStorage.setItem(words().store, JSON.stringify(unsent));
    tell("");
    say(words().saving);
    if (held.length) show(held.shift());
    else setBusy(true);
    deliver();
  }

  async function deliver() {
    clearTimeout(retry);
    retry = 0;
    const sending = unsent;
    let reply;
    try {
      reply = await fetch(sending.url, {
        method: "POST", headers: headers(), body: new URLSearchParams(sending.fields), signal: AbortSignal.timeout(15000),
      });
    } catch {
      return later(words().offline);
    }
    if (reply.status === 403 || new URL(reply.url).pathname !== new URL(sending.url, location.href).pathname) return later(words().loggedOut);
    if (reply.status >= 500) return later(words().offline);
    const stage = reply.ok ? parse(await reply.text()) : null;
    const then = next;
    localStorage.removeItem(words().store);
    unsent = next = null;
    if (!stage) {
      say("");
      return tell(words().refused);
    }
    tell("");
    say(stage.dataset.said || words().saved);
    readProgress(stage);
    if (sending.shown) {
      hold(stage);
      setBusy(false);
      if (!token(byId("stage"))) show(held.length ? held.shift() : stage);
    } else {
      held = held.filter((each) => token(each) !== token(stage));
      show(stage);
    }
    if (then) then();
    else fetchAhead();
  }

  function later(problem) {
    tell(problem);
    say("");
    // The next pair may be read in the meantime, but one answer at a time is kept.
    setBusy(true);
    retry = setTimeout(deliver, RETRY_MS[Math.min(attempts++, RETRY_MS.length - 1)]);
  }

  // Back on the network, there is nothing to wait for.
  addEventListener("online", () => {
    if (retry) deliver();
  });

  async function undo(url) {
    if (unsent) {
      next = next || (() => undo(url));
      return;
    }
    const reply = await fetch(url, { method: "POST", headers: headers(), body: new URLSearchParams(held.map((each) => ["besides", token(each)])) }).catch(() => null);
    if (!reply || !reply.ok) return tell(words().undoFailed);
    tell("");
    const stage = parse(await reply.text());
    const current = byId("stage");
    say(stage.dataset.said);
    readProgress(stage);
    if (token(stage) && token(stage) !== token(current)) {
      show(stage);
      // Nobody holds more; the server handed the others back.
      if (token(current)) held = [current, ...held].slice(0, Number(words().mostHeld) - 1);
    }
  }

  // ---------------------------------------------------------------- actions of people

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.id === "undo-form") {
      event.preventDefault();
      undo(form.action);
    } else if (form.closest("#stage")) {
      event.preventDefault();
      submit(event.submitter.getAttribute("formaction") || form.action, [...new FormData(form, event.submitter)]);
    }
  });

  document.addEventListener("click", (event) => {
    // The second half of a double click was meant for the pair that the first one answered, however late it comes.
    if (event.detail > 1 && event.target.closest("#stage .choices")) event.preventDefault();
  }, true);

  function toggleHelp() {
    const help = byId("help");
    if (help.open) help.close();
    else help.showModal();
  }

  function openMore(field) {
    const more = byId("more");
    if (!more) return;
    more.open = true;
    byId(field).focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("textarea, select, input:not([type=checkbox])")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key.length === 1 && lettersOff()) return;
    if (event.key === "?") {
      event.preventDefault();
      return toggleHelp();
    }
    if (byId("help").open) return;
    if (event.key === "c" || event.key === "f") {
      event.preventDefault();
      return openMore(event.key === "c" ? "comment" : "reason");
    }
    // An arrow on a response that has more to read scrolls it.
    const text = event.target.closest(".text");
    if (event.key === "ArrowDown" && text && text.scrollHeight > text.clientHeight) return;
    const button = byId(KEYS[event.key]);
    if (!button || button.matches(":disabled") || performance.now() - shownAt < SETTLE_MS) return;
    event.preventDefault();
    button.click();
  });

  document.addEventListener("scroll", (event) => {
    const text = event.target;
    if (!(text instanceof Element) || !text.matches("#stage .text") || !byId("together").checked) return;
    const share = text.scrollTop / Math.max(1, text.scrollHeight - text.clientHeight);
    for (const other of document.querySelectorAll("#stage .text")) {
      const goal = share * (other.scrollHeight - other.clientHeight);
      if (other !== text && Math.abs(other.scrollTop - goal) > 2) other.scrollTop = goal;
    }
  }, true);

  // ---------------------------------------------------------------- reservations

  const reserved = () => [byId("stage"), ...held].map(token).filter(Boolean);

  function keep() {
    const tokens = reserved();
    if (document.visibilityState !== "visible" || !tokens.length) return;
    fetch(words().beat, { method: "POST", headers: headers(), body: new URLSearchParams(tokens.map((each) => ["token", each])) }).catch(() => {});
  }

  addEventListener("pagehide", () => {
    if (!reserved().length) return;
    const form = new FormData();
    form.append("csrfmiddlewaretoken", csrf());
    for (const each of reserved()) form.append("token", each);
    navigator.sendBeacon(words().leave, form);
  });
  addEventListener("pageshow", (event) => {
    // A page out of the browser's memory shows a pair that was handed back.
    if (event.persisted) location.reload();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    // Logged out while the page waited: the login page is no pair, and leads back here.
    const { xhr } = event.detail;
    if (new URL(xhr.responseURL).pathname === new URL(words().pair, location.href).pathname) return;
    event.detail.shouldSwap = false;
    location.reload();
  });

  document.addEventListener("htmx:afterSwap", () => {
    readProgress(byId("stage"));
    settle(true);
    fetchAhead();
  });

  document.addEventListener("DOMContentLoaded", () => {
    byId("help-button").addEventListener("click", toggleHelp);
    byId("letters").checked = !lettersOff();
    byId("letters").addEventListener("change", (event) => localStorage.setItem(LETTERS, event.target.checked ? "on" : "off"));
    settle(false);
    setInterval(keep, Number(words().beatSeconds) * 1000);
    setInterval(fetchAhead, 3000);
    const kept = localStorage.getItem(words().store);
    if (kept) {
      unsent = JSON.parse(kept);
      // Where the page shows that very pair again, the reply takes its place.
      unsent.shown = !unsent.fields.some(([name, value]) => name === "token" && value === token(byId("stage")));
      setBusy(true);
      deliver();
    } else {
      fetchAhead();
    }
  });
})();
