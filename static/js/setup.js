// Moves the focus to the row that the last button added, or to a remaining one.
(() => {
  "use strict";
  document.addEventListener("htmx:afterSettle", () => {
    const next = document.getElementById("focus-next");
    if (!next) return;
    next.remove();
    const wanted = document.getElementById(next.dataset.focus);
    if (!wanted) return;
    // The first row cannot move up, and the last one cannot move down.
    const target = wanted.disabled ? wanted.parentElement.querySelector("button:not(:disabled)") : wanted;
    target.focus();
    if (target.select) target.select();
  });
})();
