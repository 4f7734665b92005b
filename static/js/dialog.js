// Opens a dialog that the page holds. Without this script its link leads to a page on which it is open.
(() => {
  "use strict";
  for (const dialog of document.querySelectorAll("dialog[open]")) {
    // Over the page, with the focus in it.
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
