// Draws a run's metrics with uPlot, one small chart a name, and follows them while the run is open.
(() => {
  "use strict";
  const place = document.getElementById("plots");
  if (!place || !window.uPlot) return;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  const width = () => Math.floor(parseFloat(getComputedStyle(place).gridTemplateColumns)) || 320;
  function draw(name, series) {
    const data = [series.x, series.y];
    const known = charts.get(name);
    if (known) { known.setData(data); return; }
    const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
    charts.set(name, new uPlot({
      title: name, width: width(), height: 170, scales: { x: { time: false } }, axes: [axis, { ...axis, size: 64 }],
      series: [{ label: "step" }, { label: name, stroke: ink("--accent"), width: 1.5, points: { show: series.x.length < 40 } }],
    }, data, place));
  }

  async function load() {
    const answer = await fetch(place.dataset.plots, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    for (const [name, series] of Object.entries(await answer.json())) draw(name, series);
  }

  let due = 0;
  document.getElementById("live").addEventListener("htmx:after:swap", () => { if (Date.now() > due) { due = Date.now() + 2000; load(); } });
  window.addEventListener("resize", () => charts.forEach((chart) => chart.setSize({ width: width(), height: 170 })));
  load();
})();
