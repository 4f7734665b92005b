// The setup page: its steps, its unsaved changes, and the focus after a row was added, moved or removed.
(() => {
  "use strict";
  document.addEventListener("htmx:afterSettle", () => {
    const next = document.getElementById("focus-next");
    if (!next) return;
    const part = next.parentElement;
    next.remove();
    // Do not take the focus from somebody who moved on while the server was slow.
    const focused = document.activeElement;
    if (focused !== document.body && !part.contains(focused)) return;
    const wanted = document.getElementById(next.dataset.focus);
    if (!wanted) return;
    // The first row's "up" and the last row's "down" are disabled.
    const target = wanted.disabled ? wanted.parentElement.querySelector("button:not(:disabled)") : wanted;
    target.focus();
    if (target.select) target.select();
  });
  // Show one step at a time. Without this script the buttons request the step from the server.
  function showStep(name) {
    for (const step of document.querySelectorAll("[data-step]")) step.hidden = step.dataset.step !== name;
    for (const button of document.querySelectorAll("[data-on]")) button.hidden = button.dataset.on !== name;
    for (const button of document.querySelectorAll(".steps [name=go]")) {
      if (button.value === name) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    document.getElementById("step").value = name;
  }
  // Each step is an entry in the browser's history, so Back leads to the previous step and not out of the
  // page.
  function goToStep(name) {
    if (name !== document.getElementById("step").value) history.pushState(null, "", `?step=${name}`);
    showStep(name);
  }
  const firstStep = document.getElementById("step").value;
  addEventListener("popstate", () => {
    const name = new URLSearchParams(location.search).get("step");
    const known = [...document.querySelectorAll("[data-step]")].some((step) => step.dataset.step === name);
    showStep(known ? name : firstStep);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[name=go]");
    if (button) {
      event.preventDefault();
      goToStep(button.value);
      scrollTo(0, 0);
      document.querySelector(`.steps [value=${button.value}]`).focus();
      return;
    }
    // A link may lead to a field in another step or in a closed section: open them.
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.hash.slice(1));
    if (!target) return;
    const step = target.closest("[data-step]");
    if (step) goToStep(step.dataset.step);
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      fold.open = true;
    }
  });
  // A refused save's messages about a step go once it was changed and the summary asks for nothing in it.
  const changed = new Set();
  const change = ({ target }) => changed.add(target.closest("[data-step]")?.dataset.step);
  for (const name of ["input", "change"]) document.addEventListener(name, change);
  document.addEventListener("factors-changed", () => changed.add("policies"));
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id !== "size" || !document.querySelector("#can-start > *")) return;
    const places = [...document.querySelectorAll("#can-start a")]
      .map((link) => document.getElementById(link.hash.slice(1)));
    const asked = places.map((place) => place?.closest("[data-step]").dataset.step);
    const isMended = (step) => changed.has(step) && !asked.includes(step);
    for (const mark of document.querySelectorAll(".steps .warn")) {
      if (isMended(mark.closest("button").value)) mark.remove();
    }
    for (const said of document.querySelectorAll("[data-step] .errorlist:not(.preview *)")) {
      if (isMended(said.closest("[data-step]").dataset.step)) said.remove();
    }
    const errors = document.getElementById("errors");
    for (const link of errors?.querySelectorAll("a") ?? []) {
      const step = document.getElementById(link.hash.slice(1))?.closest("[data-step]");
      if (step && isMended(step.dataset.step)) link.closest("li").remove();
    }
    if (errors && !errors.querySelector("li")) errors.remove();
  });
  // Warn before unsaved input is lost. A page that a refused save returned begins with unsaved input.
  const form = document.getElementById("setup-form");
  let unsaved = document.getElementById("errors") !== null;
  form.addEventListener("input", () => { unsaved = true; });
  document.addEventListener("factors-changed", () => { unsaved = true; });
  // A page that is sent without a login is answered by the login page, and what it held is lost. So ask
  // first. Pressed twice, it is sent once.
  let sending = false;
  let sure = false;
  form.addEventListener("submit", async (event) => {
    if (sure) {
      unsaved = false;
      return;
    }
    event.preventDefault();
    if (sending) return;
    sending = true;
    const { submitter } = event;
    try {
      sure = await maySave();
    } catch {
      sayLost(submitter);
    }
    if (sure) form.requestSubmit(submitter);
    sending = sure;
  });
  addEventListener("pageshow", () => { sending = sure = false; });
  // Whether this person may still save here: the login opens the page, and the page has the form. Each login
  // has a token of its own, which is taken over.
  async function maySave() {
    const url = new URL(form.getAttribute("action"), location.href);
    const reply = await fetch(url);
    if (reply.status >= 500) throw new Error(`The server answered ${reply.status}.`);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const field = page.querySelector("#setup-form [name=csrfmiddlewaretoken]");
    const opens = new URL(reply.url).pathname === url.pathname;
    for (const [notice, applies] of [[loggedOut, !opens], [mayNotSave, opens && !field]]) {
      notice.hidden = !applies;
      if (applies) notice.scrollIntoView({ block: "nearest" });
    }
    if (field) {
      form.querySelector("[name=csrfmiddlewaretoken]").value = field.value;
      document.body.setAttribute("hx-headers", page.body.getAttribute("hx-headers"));
    }
    return field !== null;
  }
  const loggedOut = document.getElementById("logged-out");
  const mayNotSave = document.getElementById("may-not-save");
  document.addEventListener("llmpo:logged-out", (event) => {
    event.preventDefault();
    loggedOut.hidden = false;
  });
  // Somebody has logged in anew in another tab, and this page's token is of the login before; or the right is
  // lost.
  document.addEventListener("htmx:responseError", ({ detail }) => {
    if ([403, 404].includes(detail.xhr.status)) maySave().catch(() => {});
  });
  // Back from the tab in which somebody has logged in, or has been given the right again.
  document.addEventListener("visibilitychange", () => {
    const isStopped = !loggedOut.hidden || !mayNotSave.hidden;
    if (isStopped && document.visibilityState === "visible") maySave().catch(() => {});
  });
  addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
  // Ask before a text is removed: a prompt can be an hour's work, and its ✕ is next to the arrows that move
  // it.
  document.addEventListener("htmx:confirm", (event) => {
    const button = event.detail.elt;
    if (!button.value?.startsWith("remove:")) return;
    const texts = [...button.closest("li").querySelectorAll("textarea")].filter((each) => each.value.trim());
    const question = texts.length > 1
      ? `Remove ${texts.length} texts? They are not kept.`
      : "Remove the text? It is not kept.";
    if (texts.length && !confirm(question)) event.preventDefault();
  });
  // Ask before a file replaces the text of a field.
  document.addEventListener("htmx:confirm", (event) => {
    const file = event.detail.elt;
    const field = file.type === "file" && document.getElementById(file.id.replace("-file", ""));
    if (!field || !field.value.trim() || confirm("Replace what is in the field by the file?")) return;
    event.preventDefault();
    file.value = "";
  });
  // Say that a press did not reach the server. Requests that the page sends by itself are repeated anyway.
  document.addEventListener("htmx:sendError", (event) => {
    const { elt } = event.detail;
    if (elt.matches("button, input[type=file]")) sayLost(elt);
  });
  function sayLost(elt) {
    const said = document.createElement("p");
    said.className = "warn";
    said.setAttribute("role", "alert");
    said.textContent = "The server did not answer. Nothing is lost; try again in a moment.";
    elt.closest("p, li, div").append(said);
    for (const again of ["htmx:beforeRequest", "click"]) {
      elt.addEventListener(again, () => said.remove(), { once: true });
    }
  }
  // A level takes the name of the model that it chooses, until somebody writes another one.
  document.addEventListener("change", ({ target }) => {
    if (!target.matches(".level select[name$=-text]") || !target.value) return;
    const name = document.getElementById(target.id.replace(/-text$/, "-name"));
    const chosen = [...target.options].some((option) => option.value === name.value);
    if (chosen || !name.value || /^Model \d+$/.test(name.value)) name.value = target.value;
  });
  // The margin follows the claim until somebody types a margin that is not the usual one of any claim.
  document.addEventListener("change", ({ target }) => {
    if (target.dataset.usualMargin === undefined) return;
    const margin = document.getElementById("id_epsilon");
    const usual = [...document.getElementsByName(target.name)]
      .map((radio) => Number(radio.dataset.usualMargin));
    if (usual.includes(Number(margin.value))) margin.value = target.dataset.usualMargin;
  });
})();
