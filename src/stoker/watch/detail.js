// One run: every part is brought up to date by itself, when news of it come.
import * as charts from "./charts.js";
import { LIVE, leftText, tone } from "./list.js";
import { NONE, age, bytes, clock, count, make, number, percent, plural, put, rate, score, seconds } from "./text.js";

const get = (id) => document.getElementById(id);
const CHARTS = ["chart.losses", "chart.scores", "chart.throughput", "chart.ledger"];

export function clear() {
  get("card-why").classList.remove("all");
  for (const id of CHARTS) { charts.clear(id); get(id).closest(".card").hidden = true; }
  for (const id of ["lines", "sentence", "ledger", "legend", "remedies", "gauges", "checkpoints", "events", "logs", "about", "figures"]) {
    get(id).replaceChildren();
  }
  for (const id of ["card-gauges", "card-events", "card-logs", "card-lines", "card-why", "card-checkpoints", "card-about"]) get(id).hidden = true;
}

export function head(run, now) {
  put(get("name"), run.name);
  const state = get("state");
  state.className = `state ${tone(run.state)}`;
  put(state, run.state);
  const machine = run.device ? `${run.processes > 1 ? `${run.processes} × ` : ""}${run.device}${run.host ? ` on ${run.host}` : ""}` : run.host;
  put(get("what"), [run.model, run.data, machine].filter(Boolean).join("  ·  "));
  const share = run.steps ? Math.min(1, run.step / run.steps) : run.state === "done" ? 1 : 0;
  get("fill").style.width = `${(share * 100).toFixed(2)}%`;
  get("fill").className = `fill ${tone(run.state)}`;
  const steps = run.steps ? `step ${count(run.step)} of ${count(run.steps)}` : plural(run.step, "step");
  put(get("progress"), run.epochs ? `${steps}  ·  epoch ${run.epoch + 1} of ${run.epochs}` : steps);
  put(document.querySelector("title"), `${run.steps ? `${Math.floor(share * 100)} % ` : ""}${run.name} – Stoker`);
  const said = get("said");
  said.hidden = run.said === run.state || LIVE.includes(run.state);
  put(said, run.said);
  figures(run);
  ages(run, new Map(), now);
}

function figures(run) {
  const held = score(run.held_out), best = score(run.best), trained = score(run.scores);
  const found = [
    ["loss", number(run.loss), run.held_out.loss !== undefined ? `held out ${number(run.held_out.loss)}` : "while training"],
    [held?.name ?? trained?.name ?? "score", held?.text ?? trained?.text ?? NONE,
      best ? `best ${best.text}${run.best.epoch ? `, epoch ${run.best.epoch}` : ""}` : held ? "held out" : "while training"],
    ["samples", rate(run.samples_per_second), "in the last steps"],
    ["step", seconds(run.step_seconds), "in the last steps"],
    ["data wait", percent(run.wait_share), "of the last steps"],
  ];
  const place = get("figures");
  if (place.children.length !== found.length) {
    place.replaceChildren(...found.map(() => make("div", "figure", null, make("dt"), make("dd"), make("dd", "note"))));
  }
  found.forEach(([name, value, note], at) => {
    const [dt, dd, small] = place.children[at].children;
    put(dt, name); put(dd, value); put(small, note);
  });
}

// What grows older by itself.
export function ages(run, parts, now) {
  let text = leftText(run);
  if (LIVE.includes(run.state) && run.left_seconds !== null && run.heard_at && !run.is_planned) {
    const left = Math.max(0, run.left_seconds - (now - run.heard_at));
    text = `${seconds(left)} left, until ${clock(now + left, true)}`;
  } else if (run.heard_at) text = `last line ${age(run.heard_at, now)}`;
  put(get("left"), text);
  for (const element of document.querySelectorAll("[data-at]")) put(element, age(Number(element.dataset.at), now));
}

get("more").addEventListener("click", () => { get("card-why").classList.add("all"); });

export function part(name, value, run, now) {
  if (name.startsWith("chart.")) charts.draw(name, value).catch((error) => console.error(error));
  else PARTS[name]?.(value, run, now);
}

const PARTS = {
  lines(value) {
    get("card-lines").hidden = !value?.length;
    const place = get("lines");
    const isAtEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    const before = place.scrollTop;
    place.replaceChildren(...(value ?? []).map((line) => make("span", line.includes("] held out") ? "held" : "", `${line}\n`)));
    place.scrollTop = isAtEnd ? place.scrollHeight : before;
  },
  async ledger(value) {
    await charts.ready().catch(() => {});
    const place = get("ledger"), colours = charts.colours();
    const order = Object.keys(colours);
    const shares = [...(value ?? [])].sort((a, b) => order.indexOf(a.bucket) - order.indexOf(b.bucket));
    if (shares.length) get("card-why").hidden = false;
    place.setAttribute("aria-label", shares.map((one) => `${one.bucket} ${percent(one.share)}`).join(", "));
    place.replaceChildren(...shares.map((one) => {
      const block = make("div");
      block.style.flexGrow = String(one.share);
      block.style.background = colours[one.bucket] ?? "#878E99";
      block.title = `${one.bucket}: ${percent(one.share)}, ${seconds(one.seconds)} – ${one.meaning}`;
      return block;
    }));
    const large = [...shares].sort((a, b) => b.share - a.share).slice(0, 8);
    get("legend").replaceChildren(...large.map((one) => {
      const mark = make("i");
      mark.style.background = colours[one.bucket] ?? "#878E99";
      const item = make("li", "", null, mark, make("b", "", one.bucket.replace("_", " ")), make("span", "", `${percent(one.share)}, ${seconds(one.seconds)}`));
      item.title = one.meaning;
      return item;
    }));
  },
  why(value) {
    get("card-why").hidden = false;
    put(get("sentence"), value?.sentence ?? "");
    get("remedies").replaceChildren(...(value?.remedies ?? []).map((one, at) => {
      const notes = [one.is_lossy && "changes what is learned", one.needs_new_run && "is a new run"].filter(Boolean).join(", ");
      const copy = make("button", "copy", "copy");
      copy.type = "button";
      copy.addEventListener("click", () => navigator.clipboard?.writeText(one.command).then(() => { copy.textContent = "copied"; }));
      return make("li", at < 2 ? "" : "more", null,
        make("div", "gain", `${one.gain.toFixed(2)} ×`),
        make("div", "cure", null, make("b", "", one.what), make("span", "because", ` because ${one.why}${notes ? ` (${notes})` : ""}`),
          make("div", "command", null, make("code", "", one.command), copy)));
    }));
    const hidden = Math.max(0, (value?.remedies?.length ?? 0) - 2);
    get("more").hidden = !hidden;
    put(get("more"), `${hidden} more`);
  },
  gauges(value, run, now) {
    get("card-gauges").hidden = !value?.length;
    get("gauges").replaceChildren(...(value ?? []).flatMap((host) => {
      const when = make("span", "", age(host.at, now));
      when.dataset.at = host.at;
      return [make("p", "host", null, make("b", "", host.host), when), make("div", "dials", null, ...host.dials.map(dial))];
    }));
  },
  checkpoints(value, run, now) {
    get("card-checkpoints").hidden = !value;
    const rows = (value?.kept ?? []).map((one) => {
      const when = make("td", "", age(one.at, now));
      when.dataset.at = one.at;
      const names = make("td", "", null, ...one.names.map((name) => make("span", "tag", name.replace("_", " "))));
      if (one.torn) { const torn = make("span", "tag bad", "torn"); torn.title = one.torn; names.append(torn); }
      return make("tr", "", null, make("td", "right", `step ${count(one.step)}`), names, make("td", "right", bytes(one.bytes)), when);
    });
    get("checkpoints").replaceChildren(
      rows.length ? make("table", "", null, make("tbody", "", null, ...rows)) : make("p", "none", "none yet"),
      ...(value?.missing ?? []).map((text) => make("p", "none", `missing: ${text}`)));
  },
  events(value) {
    get("card-events").hidden = false;
    const items = [...(value ?? [])].reverse().map((one) =>
      make("li", "", null, make("time", "", clock(one.at)), make("b", "", one.kind), make("span", "", one.what)));
    get("events").replaceChildren(...(items.length ? items : [make("li", "none", "nothing out of the ordinary")]));
  },
  logs(value) {
    get("card-logs").hidden = !value?.length;
    const open = new Map([...get("logs").children].map((log) => [log.dataset.name, { open: log.open, scroll: log.lastElementChild.scrollTop }]));
    get("logs").replaceChildren(...(value ?? []).map((one, at) => {
      const log = make("details", "", null, make("summary", "", one.name), make("pre", "lines", one.text));
      log.dataset.name = one.name;
      log.open = open.get(one.name)?.open ?? at === 0;
      return log;
    }));
    for (const log of get("logs").children) log.lastElementChild.scrollTop = open.get(log.dataset.name)?.scroll ?? log.lastElementChild.scrollHeight;
  },
  about(value) {
    get("card-about").hidden = !value;
    const found = {
      folder: value.folder, model: value.model, data: value.data,
      samples: value.samples ? `${count(value.samples)} to train on (${bytes(value.bytes)}), ${count(value.held_out)} held out, ${plural(value.classes, "class")}` : null,
      stages: value.stages?.join(", "), optimiser: value.optimizer && `${value.optimizer}, ${value.schedule}`,
      precision: value.amp && `amp ${value.amp}`, seed: value.seed?.toString(),
      starts: value.starts?.map((one) => `${clock(one.at, true)} ${one.host}${one.processes > 1 ? ` × ${one.processes}` : ""}`).join(", "),
      unreadable: value.missing?.join("; "),
    };
    get("about").replaceChildren(...Object.entries(found).filter(([, text]) => text).flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
  },
  trouble(value) { get("said").hidden = !value; put(get("said"), value ?? ""); },
};

function dial(one) {
  const wide = 120, high = 28;
  const known = one.series.filter((value) => value !== null);
  const most = Math.max(one.most ?? 0, ...known, 1e-9);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const place = (at) => (one.series.length > 1 ? (at * wide) / (one.series.length - 1) : wide);
  const points = one.series.map((value, at) => (value === null ? null : `${place(at).toFixed(1)},${(high - 1 - (value / most) * (high - 2)).toFixed(1)}`)).filter(Boolean);
  const area = document.createElementNS(svg.namespaceURI, "polygon");
  area.setAttribute("points", `${points[0]?.split(",")[0] ?? 0},${high} ${points.join(" ")} ${wide},${high}`);
  const line = document.createElementNS(svg.namespaceURI, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(area, line);
  const box = make("div", `dial${one.share !== null && one.share > 0.95 && !one.name.includes("busy") && one.name !== "CPU" ? " full" : ""}`, null,
    make("div", "dial-name", one.name), make("div", "dial-text", one.text), svg, make("div", "dial-note", one.note));
  return box;
}
