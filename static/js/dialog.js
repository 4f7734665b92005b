// Opens a dialog of the page. Without this script, its link leads to a page on which the dialog is open.
(() => {
  "use strict";
  for (const dialog of document.querySelectorAll("dialog[open]")) {
    // Reopen it as a modal dialog, which covers the page and takes the focus.
    dialog.close();
    dialog.showModal();
  }
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    const closer = event.target.closest("[data-closes]");
    if (!opener && !closer) return;
    event.preventDefault();
    if (opener) document.getElementById(opener.dataset.opens).showModal();
    else closer.closest("dialog").close();
  });
})();
