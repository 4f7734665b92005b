// Helps to read the two responses: scrolls them together, marks the words that differ, and adds buttons to
// code. It works on the texts that are already on the page. pair.js dispatches "llmpo:shown" for each pair.
(() => {
  "use strict";

  // Beyond this many changed words, comparing would block the page for more than a tenth of a second.
  const MOST_CHANGES = 600;
  const LEAST_SHARED = 0.1; // of the words of the shorter text
  const MARKED = "llmpo-differences";
  const canMark = "highlights" in CSS && "Segmenter" in Intl;

  const byId = (id) => document.getElementById(id);
  const words = () => byId("page").dataset;
  const say = (detail) => document.dispatchEvent(new CustomEvent("llmpo:say", { detail }));
  const boxes = () => [...document.querySelectorAll("#stage .response > .text")];

  // ---------------------------------------------------------------- scrolling together

  // Blocks of the same kind in the same order belong together. Between two of them, positions are
  // interpolated.
  const BLOCKS = "h4, p, li, pre, tr, hr";
  let matched = []; // [block of A, block of B]
  // Positions that this script has set: their scroll events must not move the other side back.
  const moved = new Map();

  function match() {
    moved.clear();
    matched = [];
    const [a, b] = boxes().map((box) => [...box.querySelectorAll(BLOCKS)]);
    if (!b) return;
    const kinds = (blocks) => blocks.map((block) => block.nodeName);
    const parts = Diff.diffArrays(kinds(a), kinds(b), { maxEditLength: MOST_CHANGES }) || [];
    let i = 0, j = 0;
    for (const part of parts) {
      for (let n = 0; !part.added && !part.removed && n < part.count; n++) matched.push([a[i + n], b[j + n]]);
      if (!part.added) i += part.count;
      if (!part.removed) j += part.count;
    }
  }

  const topIn = (box, block) =>
    block.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
  const rest = (box) => box.scrollHeight - box.clientHeight;

  // The height in `other` that matches this height in `box`.
  function across(height, box, other) {
    const second = boxes()[1] === box;
    const points = matched.map((pair) => (second ? [pair[1], pair[0]] : pair));
    let [from, to] = [[0, 0], [box.scrollHeight, other.scrollHeight]];
    for (const [mine, its] of points) {
      const point = [topIn(box, mine), topIn(other, its)];
      if (point[0] > height) {
        to = point;
        break;
      }
      from = point;
    }
    return from[1] + ((height - from[0]) / Math.max(1, to[0] - from[0])) * (to[1] - from[1]);
  }

  function scrolled(box) {
    const other = boxes().find((each) => each !== box);
    if (!other || Math.abs(box.scrollTop - moved.get(box)) < 2) return;
    // The line that stays level moves from the top of the box, at the start of the text, to the bottom, at
    // its end.
    const line = (box.scrollTop / Math.max(1, rest(box))) * box.clientHeight;
    other.scrollTop = across(box.scrollTop + line, box, other) - line;
    moved.set(other, other.scrollTop);
    moved.delete(box);
  }

  // ---------------------------------------------------------------- differences

  // The words and punctuation marks of a box, each with the text nodes in which it starts and ends.
  function wordsIn(box) {
    const nodes = [];
    let text = "", block = null;
    const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const inside = walker.currentNode.parentElement.closest("p, li, h4, th, td, pre, blockquote");
      // A word never continues in the next block.
      if (inside !== block) text += "\n";
      block = inside;
      nodes.push({ node: walker.currentNode, from: text.length });
      text += walker.currentNode.data;
    }
    const found = [];
    let first = 0;
    const place = (at) => {
      while (first + 1 < nodes.length && nodes[first + 1].from <= at) first++;
      return [nodes[first].node, at - nodes[first].from];
    };
    for (const { segment, index } of new Intl.Segmenter([], { granularity: "word" }).segment(text)) {
      if (!segment.trim()) continue;
      const start = place(index), end = place(index + segment.length - 1);
      found.push({ word: segment, start, end: [end[0], end[1] + 1] });
    }
    return found;
  }

  const sentencesOf = (found) => {
    const sentences = [[]];
    for (const each of found) {
      sentences.at(-1).push(each.word);
      if (/^[.!?。]$/.test(each.word)) sentences.push([]);
    }
    return sentences.filter((each) => each.length).map((each) => each.join(" "));
  };

  const wordsOf = (sentences) => sentences.flatMap((sentence) => sentence.split(" "));
  const differ = (a, b) => Diff.diffArrays(a, b, { maxEditLength: MOST_CHANGES });

  // The parts of a difference: runs of words that both sides share, and runs that only one side has.
  function difference(a, b) {
    const parts = differ(a.map((each) => each.word), b.map((each) => each.word));
    if (parts) return parts;
    // If the texts have little in common, compare sentences first, and then the words of the sentences that
    // differ.
    const [first, second] = [sentencesOf(a), sentencesOf(b)];
    const found = [];
    for (const part of Diff.diffArrays(first, second)) {
      const value = wordsOf(part.value);
      const last = found.at(-1);
      const inside = part.added && last && last.removed && differ(last.value, value);
      if (inside) found.splice(-1, 1, ...inside);
      else found.push({ ...part, value, count: value.length });
    }
    return found;
  }

  // Consecutive runs as [words in A, words in B, same or not]. A shared run that is no longer than the
  // changes on both sides of it is a coincidence, and counts as changed.
  function runs(a, b) {
    const found = [];
    for (const part of difference(a, b)) {
      const same = !part.added && !part.removed;
      if (found.at(-1)?.[2] !== same) found.push([0, 0, same]);
      if (!part.added) found.at(-1)[0] += part.count;
      if (!part.removed) found.at(-1)[1] += part.count;
    }
    const kept = [];
    found.forEach(([n, m, same], k) => {
      const long = (run) => (run ? Math.max(run[0], run[1]) : 0);
      const chance = same && n <= Math.min(long(found[k - 1]), long(found[k + 1]));
      if (kept.length && kept.at(-1)[2] === (same && !chance)) {
        kept.at(-1)[0] += n;
        kept.at(-1)[1] += m;
      } else kept.push([n, m, same && !chance]);
    });
    return kept;
  }

  function ranges(found, from, n) {
    if (!n) return [];
    const [startContainer, startOffset] = found[from].start;
    const [endContainer, endOffset] = found[from + n - 1].end;
    return [new StaticRange({ startContainer, startOffset, endContainer, endOffset })];
  }

  function mark() {
    CSS.highlights.delete(MARKED);
    if (!byId("differences").checked || boxes().length < 2) return showState();
    const [a, b] = boxes().map(wordsIn);
    const found = [];
    let i = 0, j = 0, shared = 0;
    for (const [n, m, same] of runs(a, b)) {
      if (same) shared += n;
      else found.push(...ranges(a, i, n), ...ranges(b, j, m));
      i += n;
      j += m;
    }
    // Marking nearly everything would only make the texts harder to read.
    const throughout = shared < LEAST_SHARED * Math.min(a.length, b.length);
    if (!throughout) CSS.highlights.set(MARKED, new Highlight(...found));
    showState(throughout);
  }

  function showState(throughout = false) {
    const { checked } = byId("differences");
    byId("differences").indeterminate = throughout;
    byId("differences-switch").title = throughout ? words().throughout : "";
    for (const each of document.querySelectorAll("#stage .mark")) {
      each.setAttribute("aria-pressed", throughout ? "mixed" : checked);
    }
  }

  // ---------------------------------------------------------------- code and tables

  const WRAP = "llmpo-wrap";
  const wraps = () => localStorage.getItem(WRAP) !== "off";

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => act(made));
    return made;
  }

  async function copy(pre, made) {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      made.textContent = words().copied;
      setTimeout(() => { made.textContent = words().copy; }, 2000);
    } catch {
      // Browsers allow the clipboard over HTTPS only.
      getSelection().selectAllChildren(pre);
      say(words().selected);
    }
  }

  function wrap() {
    document.body.classList.toggle("unwrapped", !wraps());
    for (const each of document.querySelectorAll("#stage .wrap")) each.setAttribute("aria-pressed", wraps());
    reach();
  }

  function addButtons() {
    for (const code of document.querySelectorAll("#stage .response .code:not(:has(.tools))")) {
      const tools = document.createElement("div");
      tools.className = "tools";
      const toggle = button(words().wrap, () => {
        localStorage.setItem(WRAP, wraps() ? "off" : "on");
        wrap();
      });
      toggle.className = "wrap";
      tools.append(toggle, button(words().copy, (made) => copy(code.querySelector("pre"), made)));
      code.append(tools);
    }
    wrap();
  }

  // Parts that scroll sideways must be reachable with the keyboard.
  function reach() {
    for (const box of document.querySelectorAll("#stage .code > pre, #stage .table")) {
      if (box.scrollWidth > box.clientWidth) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", words().wide);
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
      }
    }
  }

  // ---------------------------------------------------------------- what is on show

  function shown() {
    const scrolls = boxes().some((box) => box.scrollHeight > box.clientHeight + 4);
    byId("together-switch").hidden = !scrolls;
    byId("differences-switch").hidden = !canMark || boxes().length < 2;
    addButtons();
    match();
    if (!canMark) return;
    for (const each of document.querySelectorAll("#stage .mark")) each.hidden = false;
    markSoon();
  }

  // Show the pair first, and compute its marks afterwards.
  const markSoon = () => {
    CSS.highlights.delete(MARKED);
    setTimeout(mark);
  };

  document.addEventListener("llmpo:shown", shown);

  document.addEventListener("scroll", (event) => {
    if (boxes().includes(event.target) && byId("together").checked) scrolled(event.target);
  }, true);

  document.addEventListener("click", (event) => {
    if (!event.target.closest("#stage .mark")) return;
    byId("differences").click();
    // Close the panel with this button, because it covers the response.
    byId("others").click();
  });

  document.addEventListener("DOMContentLoaded", () => {
    // The browser keeps these choices, so a click sends no request.
    for (const id of ["together", "differences"]) {
      const key = `llmpo-${id}`;
      byId(id).checked = localStorage.getItem(key) === "on";
      byId(id).addEventListener("change", () => localStorage.setItem(key, byId(id).checked ? "on" : "off"));
    }
    byId("differences").disabled = !canMark;
    byId("differences").addEventListener("change", () => {
      mark();
      const { throughout } = words();
      if (byId("differences").indeterminate) say(throughout);
      else if (byId("said").textContent === throughout) say("");
    });
    addEventListener("resize", reach);
  });
})();
