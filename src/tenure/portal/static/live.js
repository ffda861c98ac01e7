// Keeps the page live: hears the diary by SSE, asks for the page's live part, and moves nothing under the pointer.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const sign = document.getElementById("sign");
  if (!live || !window.EventSource || !window.htmx) return;

  const QUIET_MS = 250; // at most four updates a second
  const AGE_MS = Number(live.dataset.age) || 15000; // ages and the timeline's edge move on without news, too
  const job = live.dataset.job;
  let pointer = null, anchor = null, due = 0, asked = 0, asking = false, wanted = false, held = false, above = 0, below = 0;

  const say = (state, text) => { sign.dataset.live = state; sign.textContent = text + " · UTC"; };

  // What must stay where it is: the row, link or field under the pointer, or the one that has the focus.
  const anchorOf = (element) => element && live.contains(element) ? element.closest("[id]:not(#live)") : null;
  const current = () => anchorOf(pointer) || anchorOf(document.activeElement);

  document.addEventListener("pointermove", (event) => { pointer = event.pointerType === "touch" ? null : event.target; }, { passive: true });
  document.documentElement.addEventListener("pointerleave", () => { pointer = null; if (held) refresh(); });
  document.addEventListener("pointerover", (event) => { if (held && !anchorOf(event.target)) { pointer = event.target; refresh(); } });

  function refresh() {
    wanted = true;
    if (asking || document.hidden) return;
    const wait = Math.max(0, due - performance.now());
    asking = true;
    setTimeout(() => { wanted = false; asked = performance.now(); htmx.trigger(live, "news"); }, wait);
  }

  function done() {
    const now = performance.now();
    due = now + Math.max(QUIET_MS, 8 * (now - asked)); // a page that is dear to make is asked for less often
    asking = false;
    if (wanted) refresh();
  }

  live.addEventListener("htmx:before:swap", (event) => {
    const element = current();
    const fresh = event.detail.tasks[0].fragment;
    held = Boolean(element) && !fresh.querySelector("#" + CSS.escape(element.id));
    say("on", held ? "live, held" : "live");
    if (held) { event.preventDefault(); return; } // what is under the pointer has left: show that once the pointer has, too
    anchor = element && { id: element.id, top: element.getBoundingClientRect().top };
    if (!anchor) space(0, 0);
    for (const box of live.querySelectorAll("pre.log")) box.dataset.end = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  });

  live.addEventListener("htmx:after:swap", () => {
    for (const box of live.querySelectorAll("pre.log")) if (box.dataset.end !== "false") box.scrollTop = box.scrollHeight;
    if (!anchor) return;
    const off = () => document.getElementById(anchor.id).getBoundingClientRect().top - anchor.top;
    if (Math.abs(off()) >= 1) window.scrollBy(0, off());
    if (off() >= 1) { space(above, below + off()); window.scrollBy(0, off()); } // too short to scroll down
    if (off() <= -1) space(above - off(), below); // too high to scroll up
  });

  // Room that keeps a row in its place while the pointer is on it; it goes with the first news after the pointer has left.
  function space(over, under) {
    [above, below] = [over, under];
    live.style.marginTop = over ? over + "px" : "";
    document.body.style.paddingBottom = under ? under + "px" : "";
  }
  live.addEventListener("htmx:finally:request", done);
  live.addEventListener("htmx:error", done);

  const source = new EventSource("/api/v1/events?after=" + live.dataset.cursor + (job ? "&job=" + encodeURIComponent(job) : ""));
  source.onopen = () => say("on", held ? "live, held" : "live");
  source.onerror = () => say("off", "reconnecting");
  for (const kind of live.dataset.kinds.split(" ")) source.addEventListener(kind, refresh);
  setInterval(() => { if (!held) refresh(); }, AGE_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  window.addEventListener("pagehide", () => source.close());
  for (const box of live.querySelectorAll("pre.log")) box.scrollTop = box.scrollHeight;
})();
