// Charts by Vega. The same chart with other rows is given the rows; only another chart is drawn anew.
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // element id -> {form, rows, view, result}
let loading = null;
let look = null;

function load() {
  loading ??= Promise.all([
    fetch("/look.json").then((answer) => answer.json()),
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "/vega.js";
      script.onload = resolve;
      script.onerror = () => { loading = null; reject(new Error("charts could not be loaded")); };
      document.head.append(script);
    }),
  ]).then(([found]) => { look = found; });
  return loading;
}

export const colours = () => look?.buckets ?? {};
export const ready = load;

export async function draw(id, chart) {
  const place = document.getElementById(id);
  place.closest(".card").hidden = !chart;
  const now = drawn.get(id);
  if (!chart) { clear(id); return; }
  const form = JSON.stringify(chart.spec) + dark.matches;
  const rows = JSON.stringify(chart.rows);
  if (now && now.form === form) {
    if (now.rows === rows) return;
    now.rows = rows;
    const result = await now.result;
    await filled(result, chart.rows);
    return;
  }
  const mine = { form, rows, chart };
  drawn.set(id, mine);
  await load();
  if (drawn.get(id) !== mine) return;
  // Rows come after: those that a specification holds are merged where they are alike, and could not be told apart later.
  const spec = { ...chart.spec, autosize: { type: "fit-x", contains: "padding" } };
  const box = document.createElement("div");
  box.className = "canvas hidden";
  place.append(box);
  // No style of the library's own, and no code from text: the page's policy allows neither.
  mine.result = window.vegaEmbed(box, spec, {
    ast: true, actions: false, renderer: "svg", logLevel: 1, config: dark.matches ? look.dark : look.light,
    defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "page" },
  });
  await filled(await mine.result, chart.rows);
  if (now) (await now.result)?.finalize();
  if (drawn.get(id) !== mine) { box.remove(); return; }
  for (const old of [...place.children]) if (old !== box) old.remove();
  box.classList.remove("hidden");
}

async function filled(result, rows) {
  for (const [name, values] of Object.entries(rows)) result.view.data(name, values);
  await result.view.resize().runAsync();
}

export function clear(id) {
  const now = drawn.get(id);
  drawn.delete(id);
  document.getElementById(id).replaceChildren();
  now?.result?.then((result) => result.finalize());
}

dark.addEventListener("change", () => {
  for (const [id, { chart }] of [...drawn]) if (chart) draw(id, chart);
});
