// Draws each chart from the table behind it, and redraws it when the table changes.
(() => {
  "use strict";

  // Okabe and Ito's colours, which colour-blind readers can tell apart. Dashes distinguish further lines.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"];
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
  const charts = new Map();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const number = (text) => (text === "–" ? null : Number(text));

  function axis(title, options = {}) {
    return {
      title: { display: Boolean(title), text: title, color: css("--muted") },
      ticks: { color: css("--muted") },
      grid: { color: css("--line") },
      ...options,
    };
  }

  function legend(filter, usePointStyle = false) {
    return { legend: { labels: { color: css("--ink"), boxWidth: 24, filter, usePointStyle } } };
  }

  function race(canvas, table) {
    const heads = [...table.tHead.rows[0].cells].slice(1);
    const rows = [...table.tBodies[0].rows].map((row) => texts(row).map(Number));
    const lastX = Math.max(1, ...rows.map((row) => row[0]));
    const threshold = Number(canvas.dataset.threshold);
    let loud = 0;
    const lines = heads.map((head, k) => {
      const quiet = "quiet" in head.dataset;
      const nth = quiet ? 0 : loud++;
      const colour = quiet ? `${css("--muted")}55` : COLOURS[nth % COLOURS.length];
      return {
        label: head.textContent,
        data: rows.map((row) => ({ x: row[0], y: row[k + 1] })),
        borderColor: colour,
        backgroundColor: colour,
        borderDash: quiet ? [] : DASHES[Math.floor(nth / COLOURS.length) % DASHES.length],
        borderWidth: quiet ? 1 : 2,
        order: quiet ? 1 : 0,
        pointRadius: 0,
        pointHitRadius: quiet ? 0 : 8,
        quiet,
      };
    });
    lines.push({
      label: "ruled out",
      data: [{ x: 0, y: threshold }, { x: lastX, y: threshold }],
      borderColor: css("--muted"),
      borderDash: [5, 5],
      borderWidth: 1.5,
      pointRadius: 0,
    });
    return {
      type: "line",
      data: { datasets: lines },
      options: {
        parsing: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: axis("comparisons", {
            type: "linear", min: 0, max: lastX, ticks: { color: css("--muted"), precision: 0 },
          }),
          y: axis("evidence against", { type: "linear" }),
        },
        plugins: legend((item, data) => !data.datasets[item.datasetIndex].quiet),
      },
    };
  }

  function allocation(canvas, table) {
    const rows = [...table.tBodies[0].rows].map(texts);
    const bars = (label, column, colour) => ({
      label,
      data: rows.map((row) => number(row[column])),
      backgroundColor: colour,
      borderColor: css("--ink"),
      borderWidth: column === 3 ? 1 : 0,
    });
    return {
      type: "bar",
      data: {
        labels: rows.map((row) => row[0]),
        datasets: [bars("actual", 2, COLOURS[0]), bars("optimal", 3, COLOURS[4])],
      },
      options: {
        scales: { x: axis(""), y: axis("% of comparisons", { beginAtZero: true }) },
        plugins: legend(),
      },
    };
  }

  // A line with its interval, a mark where the champion changed, and one where somebody was dropped.
  function improvement(canvas, table) {
    const rows = [...table.tBodies[0].rows];
    const cells = rows.map(texts);
    const lastX = Math.max(1, ...cells.map((row) => Number(row[0])));
    const lowest = Math.min(40, ...cells.map((row) => Number(row[3])));
    const line = (label, column, options) => ({
      label,
      data: cells.map((row) => ({ x: Number(row[0]), y: Number(row[column]), champion: row[1] })),
      borderColor: COLOURS[0],
      backgroundColor: `${COLOURS[0]}22`,
      borderWidth: 0,
      pointRadius: 0,
      ...options,
    });
    const marks = (label, mark, height, options) => ({
      label,
      data: rows.flatMap((row, n) => {
        const [x, , share, , , happened] = cells[n];
        return row.dataset.marks.includes(mark) ? [{ x: Number(x), y: height ?? Number(share), happened }] : [];
      }),
      showLine: false,
      pointRadius: 6,
      ...options,
    });
    const bound = ["from", "to"];
    return {
      type: "line",
      data: {
        datasets: [
          marks("new champion", "promoted", null, { pointStyle: "triangle", backgroundColor: COLOURS[2] }),
          marks("dropped", "dropped", lowest, {
            pointStyle: "crossRot", borderColor: COLOURS[1], borderWidth: 2, clip: false,
          }),
          line("champion", 2, { borderWidth: 2.5, stepped: "before", pointStyle: "line" }),
          line("from", 3, { stepped: "before" }),
          line("to", 4, { fill: "-1", stepped: "before" }),
          {
            label: "as good as the original",
            data: [{ x: 0, y: 50 }, { x: lastX, y: 50 }],
            borderColor: css("--muted"),
            borderDash: [5, 5],
            borderWidth: 1.5,
            pointRadius: 0,
            pointStyle: "line",
          },
        ],
      },
      options: {
        parsing: false,
        scales: {
          x: axis("clicks", { type: "linear", min: 0, max: lastX, ticks: { color: css("--muted"), precision: 0 } }),
          y: axis("% preferred to the original", { type: "linear", suggestedMin: lowest, suggestedMax: 60 }),
        },
        plugins: {
          ...legend((item) => !bound.includes(item.text), true),
          tooltip: { callbacks: { label: ({ raw, dataset }) => raw.happened || raw.champion || dataset.label } },
        },
      },
    };
  }

  const MAKERS = { race, allocation, improvement };

  function draw() {
    for (const [canvas, chart] of charts) {
      if (canvas.isConnected) continue;
      chart.destroy();
      charts.delete(canvas);
    }
    for (const canvas of document.querySelectorAll("canvas[data-chart]")) {
      const made = MAKERS[canvas.dataset.chart](canvas, document.getElementById(canvas.dataset.table));
      Object.assign(made.options, { animation: false, responsive: true, maintainAspectRatio: false });
      const chart = charts.get(canvas);
      if (!chart) {
        charts.set(canvas, new Chart(canvas, made));
        continue;
      }
      chart.data = made.data;
      chart.options = made.options;
      chart.update("none");
    }
  }

  // Keep open sections and scroll positions when htmx swaps a part of the page.
  let open = [];
  let scrolled = [];
  document.addEventListener("htmx:beforeSwap", () => {
    open = [...document.querySelectorAll("details[open]")].map((details) => details.id);
    scrolled = [...document.querySelectorAll(".scroll")]
      .map((box) => [box.getAttribute("aria-label"), box.scrollLeft, box.scrollTop]);
  });
  // Restore them immediately: before htmx settles, another part may be swapped, and would find everything
  // closed.
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    for (const [label, left, top] of scrolled) {
      const box = [...document.querySelectorAll(".scroll")]
        .find((one) => one.getAttribute("aria-label") === label);
      if (box) box.scrollTo(left, top);
    }
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.querySelector("canvas[data-chart]")) draw();
  });
  document.addEventListener("DOMContentLoaded", () => {
    draw();
    // On a phone these sections stay closed, because the ranking above them is long.
    if (!matchMedia("(min-width: 60rem)").matches) return;
    for (const details of document.querySelectorAll("details[data-wide]")) details.open = true;
  });
  function drawAnew() {
    draw();
    for (const chart of charts.values()) chart.resize();
  }
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", drawAnew);
  }
  // Another tab may have chosen another theme.
  addEventListener("storage", drawAnew);
})();
