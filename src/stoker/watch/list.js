// The list of runs: one row each, kept and moved rather than made anew.
import { clock, count, make, number, percent, plural, put, rate, score, seconds } from "./text.js";

export const LIVE = ["running", "starting"];
const GROUPS = { running: LIVE, done: ["done"], stopped: ["stopped", "killed", "timeout", "new"], failed: ["failed", "oom", "diverged", "unreadable"] };
const rows = new Map();
let group = "all";

export function tone(state) {
  return Object.keys(GROUPS).find((name) => GROUPS[name].includes(state)) ?? "stopped";
}

function order(a, b) {
  const live = (run) => (LIVE.includes(run.state) ? 1 : 0);
  return live(b) - live(a) || (b.heard_at ?? b.began_at ?? 0) - (a.heard_at ?? a.began_at ?? 0) || a.name.localeCompare(b.name);
}

export function leftText(run) {
  if (run.state === "starting" && run.left_seconds === null) return "setting up";
  if (LIVE.includes(run.state)) {
    if (run.left_seconds === null) return "time left not known yet";
    return run.is_planned ? `planned ${seconds(run.left_seconds)}` : `${seconds(run.left_seconds)} left`;
  }
  return run.heard_at ? `${run.state} ${clock(run.heard_at, true)}` : run.state;
}

function made(id) {
  const row = make("a", "row");
  row.href = `#${id}`;
  row.parts = {
    dot: make("span", "dot"), name: make("span", "name"), share: make("span", "share"), fill: make("div", "fill"),
    left: make("span", "left"), figures: make("span", "figures"),
  };
  const { dot, name, share, fill, left, figures } = row.parts;
  row.append(make("div", "line", null, dot, name, share), make("div", "track", null, fill), make("div", "line small", null, left, figures));
  return row;
}

function fill(row, run) {
  const { dot, name, share, fill: bar, left, figures } = row.parts;
  row.className = `row ${tone(run.state)}${row.classList.contains("chosen") ? " chosen" : ""}`;
  dot.title = run.state;
  put(name, run.name);
  row.title = run.name;
  const done = run.steps ? Math.min(1, run.step / run.steps) : run.state === "done" ? 1 : 0;
  bar.style.width = `${(done * 100).toFixed(2)}%`;
  put(share, run.steps ? `${Math.floor(done * 100)} %` : plural(run.step, "step"));
  put(left, leftText(run));
  const held = score(run.held_out) ?? score(run.scores);
  const said = [];
  if (run.loss !== null) said.push(`loss ${number(run.loss, 3)}`);
  if (held) said.push(`${held.name} ${held.text}`);
  if (LIVE.includes(run.state) && run.samples_per_second !== null) said.push(rate(run.samples_per_second));
  if (LIVE.includes(run.state) && run.wait_share !== null) said.push(`wait ${percent(run.wait_share)}`);
  put(figures, said.join(" · "));
}

// Brings the list up to date with the runs that changed (all of them where `changed` is null).
export function show(runs, changed, chosen) {
  const place = document.getElementById("runs");
  for (const [id, row] of rows) {
    if (!runs.has(id)) { row.remove(); rows.delete(id); }
  }
  for (const id of changed ?? runs.keys()) {
    if (!runs.has(id)) continue;
    if (!rows.has(id)) rows.set(id, made(id));
    fill(rows.get(id), runs.get(id));
  }
  chips(runs, chosen);
  const wanted = document.getElementById("search").value.trim().toLowerCase();
  const shown = [...runs.values()].sort(order).filter((run) =>
    (group === "all" || tone(run.state) === group) && (!wanted || `${run.name} ${run.model} ${run.data} ${run.state}`.toLowerCase().includes(wanted)));
  const keep = new Set(shown.map((run) => run.id));
  for (const [id, row] of rows) if (!keep.has(id)) row.remove();
  let before = null;
  for (const run of shown) {
    const row = rows.get(run.id);
    const next = before ? before.nextElementSibling : place.firstElementChild;
    if (next !== row) place.insertBefore(row, next);
    before = row;
  }
  mark(chosen);
}

export function mark(chosen) {
  for (const [id, row] of rows) row.classList.toggle("chosen", id === chosen);
}

function chips(runs, chosen) {
  const counts = { all: runs.size };
  for (const name of Object.keys(GROUPS)) counts[name] = 0;
  for (const run of runs.values()) counts[tone(run.state)] += 1;
  const place = document.getElementById("chips");
  for (const [name, number_] of Object.entries(counts)) {
    let chip = place.querySelector(`[data-group="${name}"]`);
    if (!chip) {
      chip = make("button", "chip");
      chip.type = "button";
      chip.dataset.group = name;
      chip.addEventListener("click", () => { group = group === name ? "all" : name; show(runs, null, chosen); });
      place.append(chip);
    }
    chip.hidden = number_ === 0 && name !== "all" && group !== name;
    chip.setAttribute("aria-pressed", String(group === name));
    put(chip, `${name} ${count(number_)}`);
  }
}

// The run to look at when none was chosen: the newest that goes on, else the newest.
export const first = (runs) => [...runs.values()].sort(order)[0]?.id ?? null;
