// The page's state: what the server has told, which run is looked at, and whether the line to the server is up.
import * as charts from "./charts.js";
import * as detail from "./detail.js";
import * as list from "./list.js";
import { put } from "./text.js";

const runs = new Map();
const parts = new Map();
let chosen = null;
let stream = null;
let skew = 0; // seconds that the server's clock is ahead
let isTold = false;
const wide = matchMedia("(min-width: 901px)");

const now = () => Date.now() / 1000 + skew;

function listen() {
  stream?.close();
  stream = new EventSource(`/events${chosen ? `?run=${chosen}` : ""}`);
  stream.addEventListener("hello", (event) => { skew = JSON.parse(event.data).now - Date.now() / 1000; });
  stream.addEventListener("news", (event) => told(JSON.parse(event.data)));
  stream.onopen = () => linked("live", "live");
  // The browser tries again by itself, and says where it was; only after an answer like "no" it gives up.
  stream.onerror = () => {
    linked("lost", "reconnecting …");
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

function linked(state, text) {
  const link = document.getElementById("link");
  link.className = `link ${state}`;
  put(link, text);
}

function told(news) {
  skew = news.now - Date.now() / 1000;
  isTold = true;
  const changed = new Set();
  const fresh = new Set();
  if (news.whole) {
    for (const id of [...runs.keys()]) if (!(`run/${id}` in news.values)) { runs.delete(id); changed.add(id); }
  }
  for (const [key, value] of Object.entries(news.values)) {
    const [kind, id, name] = key.split("/");
    if (kind === "run") {
      value === null ? runs.delete(id) : runs.set(id, value);
      changed.add(id);
    } else if (id === chosen) {
      value === null ? parts.delete(name) : parts.set(name, value);
      fresh.add(name);
    }
  }
  if (changed.size) list.show(runs, changed, chosen);
  follow();
  shown(changed.has(chosen), fresh);
}

// Looks at what the address names; on a wide page without a name, at the newest run.
function follow() {
  const named = location.hash.slice(1);
  const wanted = named || (wide.matches ? (runs.has(chosen) ? chosen : list.first(runs)) : null);
  if (wanted === chosen) return;
  chosen = wanted;
  parts.clear();
  detail.clear();
  list.mark(chosen);
  document.getElementById("detail").scrollTop = 0;
  window.scrollTo(0, 0);
  listen();
  shown(true, new Set());
}

function shown(isNew, fresh) {
  const run = runs.get(chosen);
  document.body.classList.toggle("looking", Boolean(chosen));
  document.getElementById("run").hidden = !run;
  document.getElementById("empty").hidden = Boolean(run);
  if (!run) {
    const said = !isTold ? "Reading runs …" : chosen ? "This run is not there (any more)."
      : runs.size ? "Choose a run." : "No runs here yet. Start one with: stoker train demo";
    put(document.getElementById("empty"), said);
    put(document.querySelector("title"), "Stoker");
    return;
  }
  if (isNew) detail.head(run, now());
  for (const name of fresh) detail.part(name, parts.get(name), run, now());
}

window.addEventListener("hashchange", follow);
wide.addEventListener("change", follow);
document.getElementById("search").addEventListener("input", () => list.show(runs, null, chosen));
setInterval(() => {
  const run = runs.get(chosen);
  if (run) detail.ages(run, parts, now());
}, 1000);
linked("lost", "connecting …");
charts.ready().catch(() => {});
chosen = location.hash.slice(1) || null;
listen();
shown(true, new Set());
