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
  // The margin follows the claim until somebody types one that is no claim's usual margin.
  document.addEventListener("change", ({ target }) => {
    if (target.dataset.usualMargin === undefined) return;
    const margin = document.getElementById("id_epsilon");
    const usual = [...document.getElementsByName(target.name)].map((radio) => Number(radio.dataset.usualMargin));
    if (usual.includes(Number(margin.value))) margin.value = target.dataset.usualMargin;
  });
})();
