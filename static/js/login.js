// A part of a page that answers with the login page, as its login has ended, is never shown in the part's
// place.
(() => {
  "use strict";
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, pathInfo } = event.detail;
    const asked = new URL(pathInfo.requestPath, location.href).pathname;
    if (!xhr.responseURL || new URL(xhr.responseURL).pathname === asked) return;
    event.detail.shouldSwap = false;
    // The login page leads back here. A page with what somebody has typed says so instead, and stays.
    if (document.dispatchEvent(new Event("llmpo:logged-out", { cancelable: true }))) location.reload();
  });

  // The next person at this browser finds nothing that this one typed.
  document.addEventListener("submit", ({ target }) => {
    if (target.matches(".who")) sessionStorage.clear();
  });
})();
