// Draws the charts of a report when they come near, and again when the page changes between light and dark.
"use strict";
(() => {
  const looks = JSON.parse(document.getElementById("looks").textContent);
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();
  // Beyond so many points a canvas is quicker than a tree of elements.
  const MANY = 4000;

  const points = (spec) => {
    const own = spec.data && Array.isArray(spec.data.values) ? spec.data.values.length : 0;
    const sets = Object.values(spec.datasets || {}).reduce((sum, rows) => sum + rows.length, 0);
    const parts = [...(spec.layer || []), ...(spec.vconcat || []), ...(spec.hconcat || [])];
    return own + sets + parts.reduce((sum, part) => sum + points(part), 0);
  };

  const draw = async (place, isDark) => {
    const before = drawn.get(place);
    if (before && before.isDark === isDark) return before.done;
    const spec = JSON.parse(document.getElementById("spec-" + place.dataset.chart).textContent);
    const begun = { isDark };
    drawn.set(place, begun);
    begun.done = (async () => {
      if (before) (await before.done)?.finalize();
      const view = await vegaEmbed(place, spec, {
        ast: true,
        actions: false,
        renderer: points(spec) > MANY ? "canvas" : "svg",
        config: isDark ? looks.dark : looks.light,
        tooltip: { theme: isDark ? "dark" : "light" },
      });
      place.classList.add("done");
      return view;
    })();
    return begun.done;
  };

  const places = [...document.querySelectorAll("[data-chart]")];
  const near = new IntersectionObserver(
    (seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        draw(target, darkness.matches);
      }
    },
    { rootMargin: "800px" },
  );
  places.forEach((place) => near.observe(place));
  darkness.addEventListener("change", () => [...drawn.keys()].forEach((place) => draw(place, darkness.matches)));
  // Paper is white, and has all charts.
  addEventListener("beforeprint", () => places.forEach((place) => draw(place, false)));
  addEventListener("afterprint", () => [...drawn.keys()].forEach((place) => draw(place, darkness.matches)));

  if (navigator.clipboard) {
    for (const text of document.querySelectorAll(".command pre")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
      text.parentElement.append(button);
    }
  }
})();
