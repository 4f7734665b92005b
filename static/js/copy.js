// Copies the field or text that a button names. Without this script people can select and copy it themselves.
(() => {
  "use strict";
  const select = (source) => {
    if ("value" in source) {
      source.focus();
      source.select();
    } else {
      getSelection().selectAllChildren(source);
    }
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    const said = document.getElementById(`${button.dataset.copy}-said`);
    button.hidden = false;
    if ("value" in source) source.addEventListener("focus", () => source.select());
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText("value" in source ? source.value : source.textContent);
        said.textContent = "Copied.";
      } catch {
        // Browsers allow the clipboard over HTTPS only.
        source.closest("details")?.setAttribute("open", "");
        select(source);
        said.textContent = "Selected: press Ctrl+C or ⌘C to copy.";
      }
    });
  }
})();
