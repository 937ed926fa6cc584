// Sorts and filters the table of a comparison.
"use strict";
(() => {
  const body = document.querySelector(".sheet tbody");
  const heads = [...document.querySelectorAll(".sheet thead th")];
  const rows = [...body.rows];
  const status = document.querySelector(".filters [role=status]");
  const none = document.querySelector(".sheet .none");
  const form = document.querySelector(".filters");
  const box = form.querySelector("input");
  const choices = [...form.querySelectorAll("select")];
  const places = Object.fromEntries(heads.map((head, place) => [head.dataset.key, place]));
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  let sorted = "";

  const say = () => {
    const shown = rows.filter((row) => !row.hidden).length;
    none.hidden = shown > 0;
    status.textContent = `${shown} of ${rows.length} lines${sorted}`;
  };

  // What was not measured comes last, whichever way.
  const compare = (place, isNumber, sign) => (a, b) => {
    const [x, y] = [a.cells[place].dataset.value, b.cells[place].dataset.value];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return sign * (isNumber ? Number(x) - Number(y) : words.compare(x, y));
  };

  const sort = (head) => {
    const isNumber = head.classList.contains("num");
    // The most of a number and the first of words are looked for most often; a third time brings the order of before.
    const turns = isNumber ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    const next = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % turns.length];
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", next);
    const order = next === "none" ? rows : [...rows].sort(compare(heads.indexOf(head), isNumber, next === "ascending" ? 1 : -1));
    body.append(...order);
    sorted = next === "none" ? "" : `, by ${head.textContent}, ${next}`;
    say();
  };

  const filter = () => {
    const wanted = box.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join("\n").toLocaleLowerCase();
      const isChosen = choices.every(({ value, dataset }) => {
        const cell = row.cells[places[dataset.key]];
        return !value || (cell && cell.dataset.value === value);
      });
      row.hidden = !(isChosen && wanted.every((word) => text.includes(word)));
    }
    say();
  };

  heads.forEach((head) => head.querySelector("button").addEventListener("click", () => sort(head)));
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A browser may bring back what was typed before the page was loaded again.
  filter();
})();
