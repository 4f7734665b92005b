// Writes times in the reader's own zone. The server wrote them in the site's.
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const written = (time) => time.toLocaleString("sv").split(" "); // 2026-11-29 14:05:09
  document.addEventListener("htmx:load", ({ target }) => {
    for (const each of target.querySelectorAll("time[datetime]")) {
      const [day, clock] = written(new Date(each.dateTime));
      const said = each.textContent;
      const time = /:\d\d:/.test(said) ? clock : clock.slice(0, 5);
      const needsDay = said.includes("UTC") ? day !== written(new Date())[0] : said.includes("-");
      each.textContent = needsDay ? `${day} ${time}` : time;
      each.title = `${day} ${clock}, ${zone}`;
    }
  });
})();
