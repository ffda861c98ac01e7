// Counts clocks down between two looks at the server, and draws a model's advice with uPlot.  Asks models nothing.
(() => {
  "use strict";
  const live = document.getElementById("live");
  if (!live) return;

  // As the server spells it: 0.4 s, 12 s, 3 min 04 s, 2 h 05 min.
  const two = (n) => String(n).padStart(2, "0");
  function spell(seconds) {
    const s = Math.max(0, seconds), whole = Math.floor(s);
    if (s < 10) return s.toFixed(1) + " s";
    if (whole < 60) return whole + " s";
    if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
    if (whole < 86400) return Math.floor(whole / 3600) + " h " + two(Math.floor(whole % 3600 / 60)) + " min";
    return Math.floor(whole / 86400) + " d " + Math.floor(whole % 86400 / 3600) + " h";
  }
  function tick() {
    const now = Date.now();
    for (const e of live.querySelectorAll("[data-until]")) e.textContent = "in " + spell((Date.parse(e.dataset.until) - now) / 1000);
    for (const e of live.querySelectorAll("[data-since]")) e.textContent = spell((now - Date.parse(e.dataset.since)) / 1000);
  }
  setInterval(tick, 1000);

  const place = document.getElementById("advice");
  if (!place || !window.uPlot) return;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const size = () => ({ width: Math.max(280, place.clientWidth), height: 240 });
  let chart = null;

  function draw(answer) {
    const windows = answer.rows.filter((row) => row.idle_after_s !== null);
    const known = windows.some((row) => row.waited_s_per_day !== null);
    const at = windows.map((row) => row.idle_after_s);
    const chosen = answer.recommended && answer.recommended.idle_after_s;
    const names = new Map(windows.map((row) => [row.idle_after_s, row.idle_after]));
    const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
    const mark = (u, x, text, dash) => {
      if (x === null || x === undefined) return;
      const left = Math.round(u.valToPos(x, "x", true)), c = u.ctx;
      c.save();
      c.strokeStyle = c.fillStyle = ink("--ink"); c.setLineDash(dash); c.lineWidth = devicePixelRatio;
      c.beginPath(); c.moveTo(left, u.bbox.top); c.lineTo(left, u.bbox.top + u.bbox.height); c.stroke();
      const part = (left - u.bbox.left) / u.bbox.width;
      c.font = 11 * devicePixelRatio + "px system-ui, sans-serif"; c.textAlign = part < 0.1 ? "left" : part > 0.9 ? "right" : "center";
      c.fillText(text, left, u.bbox.top - (dash.length ? 4 : 17) * devicePixelRatio);
      c.restore();
    };
    const now = answer.rows.find((row) => row.now && row.idle_after_s !== null);
    chart = new uPlot({
      ...size(), cursor: { y: false }, padding: [32, 8, 0, 0],
      scales: { x: { time: false, distr: 3, log: 10, range: [at[0] * 0.9, at[at.length - 1] * 1.1] }, held: { range: (u, lo, hi) => [0, hi * 1.05 || 1] }, waited: { range: (u, lo, hi) => [0, hi * 1.05 || 1] } },
      axes: [
        { ...axis, splits: () => at.filter((x) => (place.clientWidth < 600 ? [60, 600, 3600, 14400, 86400] : [60, 120, 300, 600, 1200, 3600, 7200, 14400, 28800, 86400]).includes(x)), values: (u, all) => all.map((x) => names.get(x) || ""), filter: (u, all) => all },
        { ...axis, scale: "held", size: 52, label: "share-hours held", labelSize: 18, labelFont: "11px system-ui, sans-serif" },
        { ...axis, scale: "waited", side: 1, size: 56, label: "seconds waited", labelSize: 18, labelFont: "11px system-ui, sans-serif", grid: { show: false } },
      ],
      series: [
        { label: "idle after", value: (u, x) => names.get(x) || "–" },
        { label: "● share-hours held a day", scale: "held", stroke: ink("--accent"), width: 2, points: { show: true, size: 6 }, value: (u, y) => y === null ? "–" : y.toFixed(2) },
        { label: "╌ seconds waited a day", scale: "waited", stroke: ink("--a31"), width: 2, dash: [6, 4], points: { show: true, size: 5 }, value: (u, y) => y === null ? "–" : y.toFixed(1) },
      ],
      hooks: { draw: [(u) => { mark(u, chosen, "recommended", []); if (now && now.idle_after_s !== chosen) mark(u, now.idle_after_s, "now", [3, 3]); }] },
    }, [at, windows.map((row) => row.share_hours_per_day), known ? windows.map((row) => row.waited_s_per_day) : at.map(() => null)], place);
    document.getElementById("advised").textContent = answer.reason + ".";
  }

  fetch(place.dataset.advice, { headers: { Accept: "application/json" } })
    .then((reply) => (reply.ok ? reply.json() : null))
    .then((answer) => { if (answer) draw(answer); })
    .catch(() => {});
  window.addEventListener("resize", () => { if (chart) chart.setSize(size()); });
})();
