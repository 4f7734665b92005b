// The annotator's page: keys, and honest words when a click could not be stored.
(() => {
  "use strict";

  // A key pressed just as the next pair appears was meant for the last one.
  const SETTLE_MS = 200;
  const BUTTONS = { ArrowLeft: "choose-left", 1: "choose-left", ArrowRight: "choose-right", 2: "choose-right", s: "skip" };
  let shownAt = 0;

  const byId = (id) => document.getElementById(id);

  function tell(problem) {
    const line = byId("problem");
    line.textContent = problem;
    line.hidden = !problem;
  }

  function toggleHelp() {
    const help = byId("help");
    if (help.open) help.close();
    else help.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) return;
    if (event.key === "?") {
      event.preventDefault();
      toggleHelp();
      return;
    }
    if (byId("help").open || performance.now() - shownAt < SETTLE_MS) return;
    const button = byId(BUTTONS[event.key]);
    if (!button || button.matches(":disabled")) return;
    event.preventDefault();
    button.classList.add("pressed");
    button.click();
  });

  document.addEventListener("htmx:afterSwap", () => {
    shownAt = performance.now();
    tell("");
  });
  document.addEventListener("htmx:sendError", (event) => {
    if (event.detail.requestConfig.verb === "post") tell("Not saved: the connection is down. Choose again when it is back; a choice is never counted twice.");
  });
  document.addEventListener("htmx:timeout", (event) => {
    if (event.detail.requestConfig.verb === "post") tell("Not confirmed: the server took too long. Choose again; a choice is never counted twice.");
  });
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    tell(status === 403 ? "Not saved: you were logged out. Reload the page and log in again." : `Not saved: the server answered ${status}. Reload the page.`);
  });

  document.addEventListener("DOMContentLoaded", () => byId("help-button").addEventListener("click", toggleHelp));
})();
