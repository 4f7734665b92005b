// The setup page: its steps, and the focus on the row that the last button added, or on a remaining one.
(() => {
  "use strict";
  document.addEventListener("htmx:afterSettle", () => {
    const next = document.getElementById("focus-next");
    if (!next) return;
    const part = next.parentElement;
    next.remove();
    // A person who went on to another part of the page while the server was slow stays there.
    const focused = document.activeElement;
    if (focused !== document.body && !part.contains(focused)) return;
    const wanted = document.getElementById(next.dataset.focus);
    if (!wanted) return;
    // The first row cannot move up, and the last one cannot move down.
    const target = wanted.disabled ? wanted.parentElement.querySelector("button:not(:disabled)") : wanted;
    target.focus();
    if (target.select) target.select();
  });
  // Shows one step at a time. Without this script the buttons ask the server for the step.
  function showStep(name) {
    for (const step of document.querySelectorAll("[data-step]")) step.hidden = step.dataset.step !== name;
    for (const button of document.querySelectorAll(".steps [name=go]")) {
      if (button.value === name) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    document.getElementById("step").value = name;
  }
  // Each step is an entry of the browser's history: Back leads to the one before, not out of the page.
  function goToStep(name) {
    if (name !== document.getElementById("step").value) history.pushState(null, "", `?step=${name}`);
    showStep(name);
  }
  const firstStep = document.getElementById("step").value;
  addEventListener("popstate", () => showStep(new URLSearchParams(location.search).get("step") ?? firstStep));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[name=go]");
    if (button) {
      event.preventDefault();
      goToStep(button.value);
      scrollTo(0, 0);
      document.querySelector(`.steps [value=${button.value}]`).focus();
      return;
    }
    // A link to a field in another step, or in a part that is folded.
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.hash.slice(1));
    if (!target) return;
    const step = target.closest("[data-step]");
    if (step) goToStep(step.dataset.step);
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  });
  // A step that a refused save has marked is unmarked once it was changed and the summary asks for nothing in it.
  const changed = new Set();
  const change = ({ target }) => changed.add(target.closest("[data-step]")?.dataset.step);
  for (const name of ["input", "change"]) document.addEventListener(name, change);
  document.addEventListener("factors-changed", () => changed.add("policies"));
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id !== "size" || !document.querySelector("#can-start > *")) return;
    const places = [...document.querySelectorAll("#can-start a")].map((link) => document.getElementById(link.hash.slice(1)));
    const asked = places.map((place) => place?.closest("[data-step]").dataset.step);
    for (const mark of document.querySelectorAll(".steps .warn")) {
      const step = mark.closest("button").value;
      if (changed.has(step) && !asked.includes(step)) mark.remove();
    }
  });
  // What was typed, and would be lost with the page. A page that was refused shows it again.
  const form = document.getElementById("setup-form");
  let unsaved = document.getElementById("errors") !== null;
  form.addEventListener("input", () => { unsaved = true; });
  document.addEventListener("factors-changed", () => { unsaved = true; });
  form.addEventListener("submit", () => { unsaved = false; });
  addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
  // A prompt is the work of an hour, and its ✕ stands beside the arrows that move it.
  document.addEventListener("htmx:confirm", (event) => {
    const button = event.detail.elt;
    if (!button.value?.startsWith("remove:")) return;
    const texts = [...button.closest("li").querySelectorAll("textarea")].filter((each) => each.value.trim());
    const question = texts.length > 1 ? `Remove ${texts.length} texts? They are not kept.` : "Remove the text? It is not kept.";
    if (texts.length && !confirm(question)) event.preventDefault();
  });
  // A file takes the place of what is in the field.
  document.addEventListener("htmx:confirm", (event) => {
    const file = event.detail.elt;
    const field = file.type === "file" && document.getElementById(file.id.replace("-file", ""));
    if (!field || !field.value.trim() || confirm("Replace what is in the field by the file?")) return;
    event.preventDefault();
    file.value = "";
  });
  // A press that does not reach the server is said. What the page asks for by itself, it asks for again.
  document.addEventListener("htmx:sendError", (event) => {
    const { elt } = event.detail;
    if (!elt.matches("button, input[type=file]")) return;
    const said = document.createElement("p");
    said.className = "warn";
    said.setAttribute("role", "alert");
    said.textContent = "No connection to the server. Nothing is lost; try again in a moment.";
    elt.closest("p, li, div").append(said);
    elt.addEventListener("htmx:beforeRequest", () => said.remove(), { once: true });
  });
  // The margin follows the claim until somebody types one that is no claim's usual margin.
  document.addEventListener("change", ({ target }) => {
    if (target.dataset.usualMargin === undefined) return;
    const margin = document.getElementById("id_epsilon");
    const usual = [...document.getElementsByName(target.name)].map((radio) => Number(radio.dataset.usualMargin));
    if (usual.includes(Number(margin.value))) margin.value = target.dataset.usualMargin;
  });
})();
