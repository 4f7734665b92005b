// Draws the evidence race from the table that stands behind it, and keeps it up to date with the table.
(() => {
  "use strict";

  // Okabe and Ito's colours: told apart by colour-blind readers; dashes tell the rest.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"];
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
  let chart = null;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function read(table) {
    const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => Number(cell.textContent)));
    return names.map((name, k) => ({ name, points: rows.map((row) => ({ x: row[0], y: row[k + 1] })) }));
  }

  function datasets(canvas) {
    const series = read(document.getElementById(canvas.dataset.table));
    const threshold = Number(canvas.dataset.threshold);
    const lastX = Math.max(1, ...series.flatMap((one) => one.points.map((point) => point.x)));
    const lines = series.map((one, k) => ({
      label: one.name,
      data: one.points,
      borderColor: COLOURS[k % COLOURS.length],
      backgroundColor: COLOURS[k % COLOURS.length],
      borderDash: DASHES[Math.floor(k / COLOURS.length) % DASHES.length],
      borderWidth: 2,
      pointRadius: 0,
      pointHitRadius: 8,
    }));
    lines.push({
      label: "ruled out",
      data: [{ x: 0, y: threshold }, { x: lastX, y: threshold }],
      borderColor: css("--muted"),
      borderDash: [5, 5],
      borderWidth: 1.5,
      pointRadius: 0,
    });
    return lines;
  }

  function axis(title) {
    return {
      type: "linear",
      title: { display: true, text: title, color: css("--muted") },
      ticks: { color: css("--muted") },
      grid: { color: css("--line") },
    };
  }

  function draw() {
    const canvas = document.getElementById("race");
    if (!canvas) return;
    const options = {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      parsing: false,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: { ...axis("comparisons"), min: 0 }, y: axis("evidence against (log E)") },
      plugins: { legend: { labels: { color: css("--ink"), boxWidth: 24 } } },
    };
    if (chart && chart.canvas === canvas) {
      chart.data.datasets = datasets(canvas);
      chart.options = options;
      chart.update("none");
      return;
    }
    if (chart) chart.destroy();
    chart = new Chart(canvas, { type: "line", data: { datasets: datasets(canvas) }, options });
  }

  let open = [];
  document.addEventListener("htmx:beforeSwap", () => {
    open = [...document.querySelectorAll("details[open]")].map((details) => details.id);
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    draw();
  });
  document.addEventListener("DOMContentLoaded", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
