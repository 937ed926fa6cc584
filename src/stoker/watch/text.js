// Quantities as people read them, as in units.py; and elements that only ever hold text.

export const NONE = "–";

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 172800) return `${(value / 86400).toFixed(1)} days`;
  if (value >= 3600) {
    const minutes = Math.round(value / 60);
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  }
  if (value >= 100) {
    const whole = Math.round(value);
    return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  }
  if (value >= 10) return `${Math.round(value)} s`;
  if (value >= 1) return `${value.toFixed(1)} s`;
  return value > 0 ? `${Number((value * 1000).toPrecision(3))} ms` : "0 s";
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [power, name] of [[4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]]) {
    if (value >= 1024 ** power) return `${(value / 1024 ** power).toFixed(1)} ${name}`;
  }
  return `${Math.round(value)} B`;
}

export const count = (value) => (value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en"));
export const percent = (share) => (share === null || share === undefined ? NONE : `${(share * 100).toFixed(1)} %`);
export const plural = (number, what) => `${count(number)} ${what}${number === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return `${value >= 100 ? count(value) : Number(value.toPrecision(3))}/s`;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return NONE;
  return Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : value.toPrecision(digits);
}

// The score beside the loss that a run is judged by: accuracy in percent, or whatever its task has.
export function score(scores) {
  const name = "top1" in scores ? "top1" : Object.keys(scores).find((key) => !["loss", "step", "epoch"].includes(key));
  if (name === undefined || scores[name] === null) return null;
  const percents = /^top\d+$/.test(name);
  return {
    name: percents ? name.replace("top", "top-") : name,
    text: percents ? `${scores[name].toFixed(1)} %` : number(scores[name]),
  };
}

export function age(at, now) {
  const passed = Math.max(0, now - at);
  return passed < 3 ? "just now" : `${seconds(passed < 100 ? Math.round(passed) : passed)} ago`;
}

export function clock(at, withDay) {
  const when = new Date(at * 1000);
  const time = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: withDay ? undefined : "2-digit" });
  const sameDay = when.toDateString() === new Date().toDateString();
  return sameDay ? time : `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

// An element with text and children. Text is text: nothing that a run says becomes markup.
export function make(tag, name = "", text = null, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

// Sets text only where it is new, so that a selection or a screen reader is not disturbed.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
