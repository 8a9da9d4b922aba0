"use strict";
const REPORT = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/* Texts only ever become text nodes: a class may be called <script>. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function makeSvg(tag, attributes = {}, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* -- numbers and axes -- */

function readable(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001) return Number(value.toPrecision(3)).toExponential().replace("e-", "e−");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const made = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) made.push(Number((at * step).toPrecision(12)));
  return made;
}

/* The last of a growing list that is not above the value, as its position; 0 before the first. */
function lastUpTo(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/* -- drawing again when the width or the theme changes -- */

const drawings = [];
function onRedraw(draw) {
  drawings.push(draw);
  draw();
}
let waiting = 0;
function redrawAll() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => drawings.forEach((draw) => draw()));
}
let seenWidth = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === seenWidth) return; // a phone's address bar changes the height alone
  seenWidth = document.documentElement.clientWidth;
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

const FONT = "11px system-ui, sans-serif";

/* A canvas in its own pixels; what is drawn is measured in those of the page. */
function prepared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = FONT;
  return { pen, width, height };
}

/* -- the tip -- */

function showTip(x, y, ...content) {
  const tip = byId("tip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 16), document.documentElement.clientWidth - box.width - 8);
  const top = y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${Math.max(8, top) + scrollY}px`;
}
function hideTip() {
  byId("tip").hidden = true;
}
