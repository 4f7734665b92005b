// The annotator's page. It fetches the next pairs while the annotator reads this one, and more of them if the
// server is slow. Answers wait in a queue and are sent in order; an answer counts as saved only when the
// server says so.
(() => {
  "use strict";

  // A key or a tap this soon after the next pair appears was meant for the last one.
  const SETTLE_MS = 600;
  // Nobody has read a pair that was on show for less than this.
  const READ_MS = 1500;
  // Most answers are saved sooner, and a screen reader would speak of both steps.
  const SAVING_MS = 700;
  const BELOW_TEXT = 24; // pixels: the bottom edge of a response's card, and a gap
  const RETRY_MS = [1000, 2000, 4000, 8000];
  // Without a limit, a connection that is dead but open holds a request for minutes.
  const TIMEOUT_MS = 15000;
  const BUTTONS = {
    left: "choose-left", right: "choose-right", tie: "choose-tie", both_bad: "choose-both-bad", undo: "undo",
    differences: "differences",
  };
  const FIELDS = { comment: "comment", skip: "reason" };
  const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowDown: "tie" };
  const actionOf = new Map(Object.entries(ARROWS)); // by key; the page adds each person's own keys

  // As in the style sheet: the pair fills the screen, and long tasks are folded.
  const compact = matchMedia("(max-width: 46rem), (max-height: 44rem)");
  const byId = (id) => document.getElementById(id);
  const words = () => byId("page").dataset;
  const token = (stage) => stage.dataset.token;
  const mostHeld = () => Number(words().mostHeld);

  // Speech input and unsteady hands can set off letters by accident, so they can be switched off.
  const LETTERS = "llmpo-letter-keys";
  const lettersOff = () => localStorage.getItem(LETTERS) === "off";

  // Tokens of pairs answered or put away on this page, known to the server or not.
  const answered = new Set();
  // {token, at, url, fields, stage}: answers that the server has not confirmed, oldest first.
  const queue = [];
  // A personal goal stays in this browser; nobody else sees it.
  const GOAL = "llmpo-goal";
  const goal = () => Number(localStorage.getItem(GOAL)) || 0;
  // A word of thanks after so many answers of one's own, and after each further hundred.
  const MARKS = [25, 50];

  let held = []; // pairs that wait behind the one on show
  let empty = null; // what the server shows instead of a pair, where it had none
  let undoing = null; // {url, token}: the answer to take back, once it is confirmed
  let takingBack = false; // the server is asked to undo
  let news = ""; // what the server said about an answer, until the next one is given
  let sending = false;
  let attempts = 0;
  let retry = 0;
  let shownAt = 0;
  let fetching = false;
  let asksBeforeSkip = false; // this person has left many of their pairs
  let furtherOpen = true; // unless this person closed the further questions
  let roundTrip = 0; // duration of the last request, in milliseconds

  // ---------------------------------------------------------------- showing

  function say(text) {
    const said = byId("said");
    said.textContent = text;
    said.classList.toggle("warn", text === words().tooQuick);
    said.classList.toggle("brief", [words().saved, words().saving].includes(text));
    said.classList.remove("lengthy");
    said.classList.toggle("lengthy", said.scrollHeight > said.clientHeight + 1);
  }

  function tell(problem) {
    byId("problem").textContent = problem;
    byId("problem").hidden = !problem;
  }

  function readProgress(stage) {
    byId("today").textContent = stage.dataset.today;
    byId("left").textContent = stage.dataset.left;
    const { most, mine: ofMost } = words();
    if (most) byId("mine").textContent = `${ofMost.replace("#", mine(stage.dataset.today))} ${most}`;
    if ("newest" in stage.dataset) newest().value = stage.dataset.newest;
    asksBeforeSkip = "asks" in stage.dataset;
  }

  // The answer that an undo means. Naming it, a request that is repeated takes back no other one.
  const newest = () => byId("undo-form").elements.answer;

  // All answers of this person here, from those of today.
  const mine = (today) => Number(words().before) + Number(today);

  function showGoal() {
    byId("of-goal").textContent = goal() ? `${words().of} ${goal()}` : "";
  }

  // The message after an answer is saved.
  function encouragement(today) {
    // An answer to a practice pair changes no count, so it reaches nothing.
    if (byId("today").textContent === String(today)) return "";
    if (today === goal()) return words().goalReached;
    const all = mine(today);
    return MARKS.includes(all) || all % 100 === 0 ? words().mark.replace("#", all) : "";
  }

  // True if there is nothing to answer on the screen: no pair, or a pair that was just answered.
  const waits = () => !token(byId("stage")) || answered.has(token(byId("stage")));

  function show(stage) {
    const focused = document.activeElement;
    const hadFocus = byId("stage").contains(focused) || focused === document.body;
    byId("stage").replaceWith(stage);
    htmx.process(stage);
    settle(hadFocus);
  }

  function showNext() {
    if (waits()) {
      if (held.length) show(held.shift());
      else if (empty && !queue.length) show(empty);
    }
    setBusy();
  }

  function settle(takeFocus) {
    shownAt = performance.now();
    const title = byId("task-title");
    if (takeFocus && title) title.focus({ preventScroll: true });
    // On a phone the responses come first; the last message stays in sight.
    for (const earlier of document.querySelectorAll("#stage .earlier")) earlier.open = !compact.matches;
    if (byId("further")) byId("further").open = furtherOpen && !compact.matches;
    restoreComment();
    arrange();
    // On a very small screen the page scrolls: the responses are below.
    if (compact.matches) scrollTo(0, document.body.scrollHeight);
    document.body.dataset.arranged = "";
    setBusy();
    document.dispatchEvent(new Event("llmpo:shown"));
  }

  // On a phone, show both responses below each other if they fit, and otherwise one at a time. On a desktop,
  // end a long response above the bar of answers, so that only the response scrolls.
  function arrange() {
    const responses = byId("responses");
    if (!responses) return;
    const top = document.querySelector("#stage .text").getBoundingClientRect().top + scrollY;
    const bar = document.querySelector("#stage .choices").getBoundingClientRect().top;
    // Further questions stand between the responses and the bar.
    const beside = compact.matches || !byId("further") ? 0 : byId("further").offsetHeight;
    document.body.style.setProperty("--room", `${Math.round(bar - top - beside - BELOW_TEXT)}px`);
    const pair = responses.closest(".pair");
    pair.classList.add("both");
    pair.classList.toggle("both", responses.scrollHeight <= responses.clientHeight);
    const task = byId("task");
    byId("unfold").hidden = !task.classList.contains("open") && task.scrollHeight <= task.clientHeight;
  }

  const isUnderTabs = () => byId("see-a").getClientRects().length > 0;

  // The tab of the response that was not on the screen yet.
  const unread = () => isUnderTabs() && document.querySelector("#stage .segments .unread");

  function setBusy() {
    const choices = document.querySelector("#stage .choices");
    if (choices) choices.disabled = waits() || Boolean(undoing);
  }

  function parse(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    return [...page.querySelectorAll("#stage")].map((stage) => document.adoptNode(stage));
  }

  // ---------------------------------------------------------------- talking to the server

  function csrf() {
    return JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  }

  const headers = () => ({ "HX-Request": "true", "X-CSRFToken": csrf() });

  const ask = (url, options) => fetch(url, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
  const post = (url, fields) =>
    ask(url, { method: "POST", headers: headers(), body: new URLSearchParams(fields) });

  async function timed(asking) {
    const from = performance.now();
    const reply = await asking();
    roundTrip = performance.now() - from;
    return reply;
  }

  // Tokens of all pairs on this page that the server has no answer for.
  const inHand = () => [...queue.map((each) => each.token), ...unanswered()];
  const unanswered = () => [...(waits() ? [] : [byId("stage")]), ...held].map(token);

  // The number of pairs to fetch: one for each answer that a quick person can give during one request. No
  // more than that: a pair chosen ahead is chosen with less information, and is this person's for good.
  function lacking() {
    // The reply to a practice answer explains it; a pair fetched earlier would hide the explanation.
    if ("practice" in byId("stage").dataset) return 0;
    const ahead = Math.max(1, Math.ceil(roundTrip / SETTLE_MS)) + (waits() ? 1 : 0);
    return Math.min(ahead - held.length, mostHeld() - inHand().length);
  }

  // The server gives everybody their pairs in a fixed order, so it only needs to know the last one here.
  const screen = (last, ahead) => [...(last ? [["after", last]] : []), ["ahead", Math.max(1, ahead)]];

  // Two replies may carry the same pair; it must not be shown twice.
  function hold(stages) {
    for (const stage of stages) {
      const each = token(stage);
      if (!each) empty = stage;
      else if (!answered.has(each) && !inHand().includes(each)) held.push(stage);
    }
    if (stages.some(token)) empty = null;
    if (isOver()) letGo();
  }

  // True after the experiment has ended: no more pairs come.
  const isOver = () => Boolean(empty && "over" in empty.dataset);

  // Put away the pairs that nobody has read. A pair that somebody is reading stays, as the last one.
  function letGo() {
    const unread = held.splice(0);
    if (!waits()) {
      if (performance.now() - shownAt < READ_MS) unread.push(byId("stage"));
      else say(words().over);
    }
    for (const stage of unread) answered.add(token(stage));
    if (unread.length && waits()) post(words().leave, []).catch(() => {});
  }

  async function fetchAhead() {
    // The missing part comes with the reply to an answer, unless the next answer was given sooner.
    if (sending && queue.length === 1) return;
    if (fetching || undoing || isOver() || lacking() < 1 || !token(byId("stage"))) return;
    fetching = true;
    const before = held.length;
    try {
      const url = `${words().pair}?${new URLSearchParams(screen(inHand().at(-1), lacking()))}`;
      const reply = await timed(() => ask(url, { headers: headers() }));
      if (reply.ok) hold(parse(await reply.text()));
    } catch {
      // The connection is down; the next round tries again.
    } finally {
      fetching = false;
    }
    const more = held.length > before;
    showNext();
    if (more) fetchAhead();
  }

  function submit(url, fields) {
    const stage = byId("stage");
    if (waits() || undoing) return;
    const answer = { token: token(stage), at: Date.now(), url, fields };
    localStorage.setItem(stored(answer.token), JSON.stringify(answer));
    queue.push({ ...answer, stage });
    answered.add(answer.token);
    if (!retry) tell("");
    news = "";
    say("");
    showNext();
    deliver();
    fetchAhead();
  }

  // One key for each answer, because two tabs share the storage.
  const stored = (each) => `${words().store}-${each}`;

  // A comment outlives a reload, in this tab only. It is sent with the answer, and in no other way.
  function keepComment() {
    const { value } = byId("comment");
    const key = stored(token(byId("stage")));
    if (value) sessionStorage.setItem(key, value);
    else sessionStorage.removeItem(key);
  }

  function restoreComment() {
    const comment = byId("comment");
    const kept = comment && sessionStorage.getItem(stored(token(byId("stage"))));
    if (!kept) return;
    comment.value = kept;
    // Nobody sends a comment that they do not see.
    openOthers(true);
    byId("more").open = true;
  }

  async function deliver() {
    if (sending || retry || !queue.length) return;
    sending = true;
    const slow = setTimeout(() => byId("said").textContent || say(words().saving), SAVING_MS);
    const problem = await send(queue[0]).finally(() => {
      clearTimeout(slow);
      sending = false;
    });
    if (problem) {
      tell(problem);
      say("");
      retry = setTimeout(again, RETRY_MS[Math.min(attempts++, RETRY_MS.length - 1)]);
      fetchAhead();
      return;
    }
    attempts = 0;
    if (undoing) {
      const { url, token: meant } = undoing;
      undoing = null;
      // An answer that was not counted is not replaced by the one before it.
      if (newest().value === meant) await undo(url);
    }
    showNext();
    deliver();
    fetchAhead();
  }

  function again() {
    clearTimeout(retry);
    retry = 0;
    deliver();
  }

  // Send an answer. Returns the reason to send it again, or an empty string.
  async function send(answer) {
    const last = inHand().filter((each) => each !== answer.token).at(-1);
    // The form's CSRF token belongs to the login at that time, and Django would prefer it to the one in the
    // header.
    const fields = answer.fields.filter(([name]) => name !== "csrfmiddlewaretoken");
    let reply, text, stages;
    try {
      reply = await timed(() => post(answer.url, [...fields, ...screen(last, lacking())]));
      text = await reply.text();
      if (reply.status === 403) return (await signedIn()) || words().loggedOut;
    } catch {
      return words().offline;
    }
    if (!samePage(reply, answer.url)) return words().loggedOut;
    if (reply.status >= 500) return words().offline;
    if (reply.ok) {
      stages = parse(text);
      // Another page, such as the login of a Wi-Fi network or a notice of maintenance.
      if (!stages.length) return words().offline;
    }
    queue.shift();
    localStorage.removeItem(stored(answer.token));
    if (!reply.ok) {
      say("");
      tell(words().refused);
      return "";
    }
    sessionStorage.removeItem(stored(answer.token));
    if (byId("problem").textContent !== words().refused) tell("");
    news = stages[0].dataset.said || encouragement(Number(stages[0].dataset.today)) || news;
    if (news || !queue.length) say(news || words().saved);
    readProgress(stages[0]);
    hold(stages);
    return "";
  }

  const samePage = (reply, url) => new URL(reply.url).pathname === new URL(url, location.href).pathname;

  // Each login has its own CSRF token. Take over the token of the current login, if the same person is logged
  // in. Returns the message to show, or an empty string if nobody is logged in.
  async function signedIn() {
    const reply = await ask(words().history);
    if (!samePage(reply, words().history)) return "";
    if (reply.status === 403 || reply.status === 404) return words().notAllowed;
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const store = page.querySelector("[data-store]");
    if (store && store.dataset.store !== words().store) return words().somebodyElse;
    const found = page.body.getAttribute("hx-headers");
    if (found) document.body.setAttribute("hx-headers", found);
    return found && words().sentAgain;
  }

  // The network is back, so do not wait any longer.
  addEventListener("online", () => {
    if (retry) again();
  });

  async function undo(url) {
    const last = queue.at(-1);
    if (last && last.stage && (queue.length > 1 || !(sending || retry))) {
      // The server never saw it.
      queue.pop();
      answered.delete(last.token);
      localStorage.removeItem(stored(last.token));
      news = words().takenBack;
      say(news);
      return putBack(last.stage);
    }
    if (last) {
      undoing = { url, token: last.token };
      return setBusy();
    }
    // Pressed twice, it takes back one answer.
    if (takingBack) return;
    takingBack = true;
    let stage;
    try {
      const reply = await post(url, [["answer", newest().value]]);
      if (reply.ok) [stage] = parse(await reply.text());
    } catch {
      // The connection is down.
    } finally {
      takingBack = false;
    }
    if (!stage) {
      say(""); // the last answer may be saved no longer
      return tell(words().undoFailed);
    }
    tell("");
    news = stage.dataset.said;
    say(news);
    readProgress(stage);
    answered.delete(token(stage));
    if (token(stage)) putBack(stage);
  }

  // Show a pair again, before the current one.
  function putBack(stage) {
    const current = byId("stage");
    // Both of its responses were read before its first answer.
    stage.querySelector(".unread")?.classList.remove("unread");
    if (token(stage) === token(current)) return settle(true);
    if (!waits()) held.unshift(current);
    held = held.filter((each) => token(each) !== token(stage));
    show(stage);
  }

  // ---------------------------------------------------------------- actions of people

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.id === "undo-form") {
      event.preventDefault();
      undo(form.action);
    } else if (form.closest("#stage")) {
      event.preventDefault();
      if (event.submitter.name === "reason" && asksBeforeSkip && !confirm(words().askSkip)) return;
      if (event.submitter.name === "choice" && unread()) return showUnread();
      const url = event.submitter.getAttribute("formaction") || form.action;
      const inView = isUnderTabs() ? "in_turn" : "together";
      submit(url, [...new FormData(form, event.submitter), ["in_view", inView]]);
    }
  });

  // An answer before the second response was on the screen shows it instead.
  function showUnread() {
    unread().click();
    shownAt = performance.now();
    say(words().unread);
  }

  // Meant for the pair before the one on show, by the time at which the person acted: the page may hear of it
  // later. How late the second half of a double click may come is a setting of the system, up to seconds.
  const isHasty = ({ timeStamp, detail }) =>
    token(byId("stage")) && timeStamp - shownAt < (detail > 1 ? READ_MS : SETTLE_MS);

  function refuse(event) {
    event.preventDefault();
    news = words().tooQuick;
    say(news);
  }

  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("#stage .choices [name=choice], #undo");
    // A key presses a button with no pointer.
    if (pressed && event.detail && isHasty(event)) refuse(event);
  }, true);

  function toggleHelp() {
    const help = byId("help");
    if (help.open) help.close();
    else help.showModal();
  }

  // The account remembers whether the guidelines are open beside the pair.
  function keepFold() {
    const guide = byId("guide");
    if (!guide) return;
    let open = guide.open; // a page with open guidelines fires the event when it loads, too
    guide.addEventListener("toggle", () => {
      if (guide.open === open) return;
      open = guide.open;
      const body = new URLSearchParams(open ? { open } : {});
      const request = { method: "POST", headers: headers(), body, keepalive: true };
      fetch(words().guidelines, request).catch(() => {});
    });
  }

  function openMore(field) {
    const more = byId("more");
    if (!more) return;
    openOthers(true);
    more.open = true;
    byId(field).focus();
  }

  // The first choice or field of the next further question.
  function askFurther() {
    const further = byId("further");
    if (!further) return;
    further.open = true;
    const fields = [...further.querySelectorAll("input")];
    const first = fields.filter(({ name }, i) => name !== fields[i - 1]?.name);
    const here = first.findIndex(({ name }) => name === document.activeElement.name);
    const next = first[(here + 1) % first.length];
    (fields.find(({ name, checked }) => checked && name === next.name) || next).focus();
  }

  // The actions that a phone hides behind "…".
  function openOthers(open) {
    byId("others").closest(".pair").classList.toggle("opened", open);
    byId("others").setAttribute("aria-expanded", open);
  }

  const actions = {
    others: (button) => {
      const open = button.getAttribute("aria-expanded") !== "true";
      openOthers(open);
      byId("more").open = open;
    },
    unfold: (button) => {
      const open = byId("task").classList.toggle("open");
      button.setAttribute("aria-expanded", open);
      arrange();
    },
    skip: () => openMore("reason"),
    "see-a": () => { byId("responses").scrollLeft = 0; },
    "see-b": () => { byId("responses").scrollLeft = byId("responses").clientWidth; },
  };

  document.addEventListener("input", ({ target }) => {
    if (target.id === "comment") keepComment();
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("#stage button");
    if (button && actions[button.id]) actions[button.id](button);
  });

  // Both responses scroll by a screen of theirs, wherever the focus is; without more to read, the page does.
  function turn(event, direction) {
    const texts = [...document.querySelectorAll("#stage .response > .text")];
    const tops = texts.map((text) => text.scrollTop);
    for (const text of byId("together").checked ? texts.slice(0, 1) : texts) {
      text.scrollBy(0, direction * (text.clientHeight - 2 * BELOW_TEXT));
    }
    if (texts.some((text, i) => text.scrollTop !== tops[i])) event.preventDefault();
  }

  // The key that somebody means, whatever its case or width. Where the keyboard writes another alphabet, or
  // symbols in the row of digits, it is known by its place.
  function keyOf({ key, code, shiftKey }) {
    const plain = key.length === 1 ? key.normalize("NFKC").toLowerCase() : key;
    const [, place] = /^(?:Key|Digit)(.)$/.exec(code) || [];
    const known = actionOf.has(plain) || /^[a-z?]$/.test(plain);
    return known || shiftKey || !place ? plain : place.toLowerCase();
  }

  document.addEventListener("keydown", (event) => {
    // A key that an input method composes with is its own, also the one that ends it.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.type === "radio" && event.key.startsWith("Arrow")) return;
    if (event.target.closest("textarea, select, input:not([type=checkbox], [type=radio])")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key.length === 1 && lettersOff()) return;
    const key = keyOf(event);
    if (key === "?") {
      event.preventDefault();
      return toggleHelp();
    }
    if (byId("help").open) return;
    const action = actionOf.get(key);
    if (action === "further") {
      event.preventDefault();
      return askFurther();
    }
    if (action in FIELDS) {
      event.preventDefault();
      return openMore(FIELDS[action]);
    }
    if (event.key === "PageDown" || event.key === "PageUp") return turn(event, event.key === "PageDown" ? 1 : -1);
    // An arrow on a response that has more to read scrolls it.
    const text = event.target.closest(".text");
    if (event.key === "ArrowDown" && text && text.scrollHeight > text.clientHeight) return;
    const button = byId(BUTTONS[action]);
    if (!button || button.matches(":disabled")) return;
    if (isHasty(event)) return refuse(event);
    event.preventDefault();
    button.click();
  });

  // On a desktop the bar of answers covers the bottom of the page.
  document.addEventListener("toggle", ({ target }) => {
    if (target.id === "further") {
      // On a phone they lie over the responses, so they close with each pair.
      if (!compact.matches) furtherOpen = target.open;
      arrange();
    }
    if (target.id === "more" && target.open) target.scrollIntoView({ block: "nearest" });
  }, true);

  document.addEventListener("scroll", (event) => {
    const text = event.target;
    if (text.id === "responses") {
      const second = text.scrollLeft > text.clientWidth / 2;
      byId("see-a").setAttribute("aria-pressed", !second);
      byId("see-b").setAttribute("aria-pressed", second);
      if (second) byId("see-b").classList.remove("unread");
    }
  }, true);

  // ---------------------------------------------------------------- presence

  function keep() {
    if (document.visibilityState !== "visible" || !inHand().length) return;
    post(words().beat, []).catch(() => {});
  }

  addEventListener("pagehide", () => {
    if (!unanswered().length) return;
    const form = new FormData();
    form.append("csrfmiddlewaretoken", csrf());
    navigator.sendBeacon(words().leave, form);
  });
  addEventListener("pageshow", (event) => {
    // A page restored from the browser's cache may show a pair that was answered elsewhere meanwhile.
    if (event.persisted) location.reload();
  });

  document.addEventListener("htmx:afterSwap", () => {
    empty = null;
    readProgress(byId("stage"));
    settle(true);
    fetchAhead();
  });

  document.addEventListener("DOMContentLoaded", () => {
    for (const [action, key] of Object.entries(JSON.parse(words().keys))) actionOf.set(key, action);
    keepFold();
    byId("help-button").addEventListener("click", toggleHelp);
    byId("my-goal").addEventListener("click", () => {
      toggleHelp();
      byId("goal-field").focus();
    });
    byId("said").addEventListener("click", () => say(""));
    document.addEventListener("llmpo:say", ({ detail }) => say(detail));
    byId("letters").checked = !lettersOff();
    byId("letters").addEventListener("change", ({ target }) => {
      localStorage.setItem(LETTERS, target.checked ? "on" : "off");
    });
    byId("goal-form").hidden = false;
    byId("goal-field").value = goal() || "";
    byId("goal-field").addEventListener("change", (event) => {
      const wanted = event.target.validity.valid ? event.target.value : "";
      localStorage.setItem(GOAL, wanted);
      showGoal();
    });
    showGoal();
    readProgress(byId("stage"));
    settle(false);
    addEventListener("resize", arrange);
    setInterval(keep, Number(words().beatSeconds) * 1000);
    setInterval(fetchAhead, 3000);
    const kept = Object.keys(localStorage).filter((key) => key.startsWith(`${words().store}-`));
    const unsent = kept.map((key) => JSON.parse(localStorage.getItem(key)));
    queue.push(...unsent.sort((one, other) => one.at - other.at));
    for (const each of queue) answered.add(each.token);
    setBusy();
    deliver();
    fetchAhead();
  });
})();
