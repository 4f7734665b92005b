// Applies the theme chosen in this browser. It runs before the page is drawn, so that no page flashes.
(() => {
  "use strict";
  const KEY = "llmpo-theme";
  const sheet = document.getElementById("dark");
  const MEDIA = { system: sheet.media, light: "not all", dark: "all" };

  function chosen() {
    const kept = localStorage.getItem(KEY);
    return kept in MEDIA ? kept : "system";
  }

  function apply() {
    sheet.media = MEDIA[chosen()];
  }

  apply();
  addEventListener("storage", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    if (!choice) return;
    choice.querySelector(`[value=${chosen()}]`).checked = true;
    choice.hidden = false;
    choice.addEventListener("change", (event) => {
      localStorage.setItem(KEY, event.target.value);
      apply();
    });
  });
})();
