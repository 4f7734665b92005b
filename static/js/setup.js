// Puts the focus where the last button leads: on what was added, or on what is left.
(() => {
  "use strict";
  document.addEventListener("htmx:afterSettle", () => {
    const next = document.getElementById("focus-next");
    if (!next) return;
    next.remove();
    const wanted = document.getElementById(next.dataset.focus);
    if (!wanted) return;
    // What has come to an end of its list can no longer be moved that way.
    const target = wanted.disabled ? wanted.parentElement.querySelector("button:not(:disabled)") : wanted;
    target.focus();
    if (target.select) target.select();
  });
})();
