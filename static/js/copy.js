// Copies the field beside a button. Without this script the field can be selected and copied by hand.
(() => {
  "use strict";
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const field = document.getElementById(button.dataset.copy);
    const said = document.getElementById(`${button.dataset.copy}-said`);
    button.hidden = false;
    field.addEventListener("focus", () => field.select());
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(field.value);
        said.textContent = "Copied.";
      } catch {
        // Browsers offer the clipboard over HTTPS only.
        field.focus();
        field.select();
        said.textContent = "Selected: press Ctrl+C or ⌘C to copy.";
      }
    });
  }
})();
