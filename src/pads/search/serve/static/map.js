// The map: every image a dot, near to what it is like; dots become thumbnails where there is room for them.

import { $, ask, count, thumbnail } from "./dom.js";
import { addressOfRow, lastLabel, lastRows } from "./search.js";

const POLL = 1500;
const REACH = 16; // pixels from the pointer to a dot
const CLOSEST = 80;
const MOST_THUMBNAILS = 260;

let index, points = null;
let camera = { x: 0.5, y: 0.5, zoom: 1 };
let hovered = -1;
let isDirty = false;
let colours = null;
const thumbnails = new Map();
const pointers = new Map();
let pressed = null;

export function startMap(aboutIndex) {
  index = aboutIndex;
  const canvas = $("#canvas");
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours = null;
    draw();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", press);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => pointers.size || hover(-1));
  canvas.addEventListener("dblclick", (event) => zoomAt(event.offsetX, event.offsetY, 2));
  canvas.addEventListener("keydown", key);
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && hover(nearest(...middle(), Infinity)));
  canvas.addEventListener("blur", () => hover(-1));
  $("#zoom-in").addEventListener("click", () => zoomAt(...middle(), 1.6));
  $("#zoom-out").addEventListener("click", () => zoomAt(...middle(), 1 / 1.6));
  $("#zoom-all").addEventListener("click", showAll);
}

export async function showMap() {
  draw();
  while (points === null && !$("#map").hidden) {
    const answer = await ask("/api/map").catch((error) => ({ state: "failed", reason: error.message }));
    say(answer);
    if (answer.state === "ready") {
      points = answer;
      draw();
    } else if (answer.state === "failed") return;
    else await new Promise((resolve) => setTimeout(resolve, POLL));
  }
}

function say({ state, reason, method, rows, images }) {
  const sentences = {
    computing: "The map is being laid out, once. Searching works meanwhile.",
    failed: `The map could not be made: ${reason}`,
    ready: "",
  };
  $("#map-state").hidden = state === "ready";
  $("#map-state").classList.toggle("failed", state === "failed");
  $("#map-state p").textContent = sentences[state];
  if (state !== "ready") return;
  const which = rows.length < images ? `${rows.length.toLocaleString("en")} of ${count(images, "image", "images")}` : count(images, "image", "images");
  const colour = index.labels.length ? " A colour is a class; there are fewer colours than classes." : "";
  $("#map-note").textContent = `${which}, laid out by ${method}.${colour} Drag to move, turn the wheel or pinch to zoom, click to search.`;
}

// -- where things are ----------------------------------------------------------------------------------------------------

const size = () => [$("#canvas").clientWidth, $("#canvas").clientHeight];
const middle = () => size().map((side) => side / 2);
const scale = () => camera.zoom * (Math.min(...size()) - 2 * REACH);

function toScreen(at) {
  const [width, height] = size();
  return [width / 2 + (points.x[at] - camera.x) * scale(), height / 2 - (points.y[at] - camera.y) * scale()];
}

function nearest(x, y, reach) {
  if (points === null) return -1;
  let best = -1;
  let closest = reach * reach;
  for (let at = 0; at < points.rows.length; at++) {
    const [px, py] = toScreen(at);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < closest) [best, closest] = [at, distance];
  }
  return best;
}

function moveBy(dx, dy) {
  const inside = (value) => Math.min(1.1, Math.max(-0.1, value));
  camera = { ...camera, x: inside(camera.x - dx / scale()), y: inside(camera.y + dy / scale()) };
  draw();
}

function zoomAt(x, y, factor) {
  const before = scale();
  camera.zoom = Math.min(CLOSEST, Math.max(0.8, camera.zoom * factor));
  const [cx, cy] = middle();
  const shift = 1 / before - 1 / scale();
  camera.x += (x - cx) * shift;
  camera.y -= (y - cy) * shift;
  moveBy(0, 0);
}

function showAll() {
  camera = { x: 0.5, y: 0.5, zoom: 1 };
  draw();
}

// -- hands ---------------------------------------------------------------------------------------------------------------

function press(event) {
  $("#canvas").setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  pressed = pointers.size === 1 ? { x: event.offsetX, y: event.offsetY, moved: false } : null;
}

function move(event) {
  const here = [event.offsetX, event.offsetY];
  const before = pointers.get(event.pointerId);
  if (!before) return hover(nearest(...here, REACH));
  if (pointers.size === 1) {
    if (pressed && Math.hypot(here[0] - pressed.x, here[1] - pressed.y) > 4) pressed.moved = true;
    if (!pressed || pressed.moved) {
      hover(-1);
      moveBy(here[0] - before[0], here[1] - before[1]);
    }
  } else if (pointers.size === 2) {
    const other = [...pointers.entries()].find(([id]) => id !== event.pointerId)[1];
    const apart = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
    zoomAt((here[0] + other[0]) / 2, (here[1] + other[1]) / 2, apart(here) / apart(before));
  }
  pointers.set(event.pointerId, here);
}

function release(event) {
  pointers.delete(event.pointerId);
  const isClick = event.type === "pointerup" && pressed && !pressed.moved;
  pressed = null;
  if (!isClick) return;
  const at = nearest(event.offsetX, event.offsetY, REACH);
  if (at >= 0) search(at);
}

function search(at) {
  location.hash = addressOfRow(points.rows[at]);
}

function key(event) {
  const step = 60;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) moveBy(...moves[event.key]);
  else if (event.key === "+" || event.key === "=") zoomAt(...middle(), 1.4);
  else if (event.key === "-") zoomAt(...middle(), 1 / 1.4);
  else if (event.key === "0") showAll();
  else if (event.key === "Enter" && hovered >= 0) return search(hovered);
  else return;
  event.preventDefault();
  hover(nearest(...middle(), Infinity));
}

function hover(at) {
  const tip = $("#tip");
  if (at < 0) {
    tip.hidden = true;
    $("#canvas").style.cursor = "";
  } else {
    if (at !== hovered || tip.hidden) {
      $("img", tip).src = thumbnail(index, points.rows[at]);
      $("bdi", tip).textContent = index.labels[points.labels[at]]?.label ?? "no class";
    }
    tip.hidden = false;
    $("#canvas").style.cursor = "pointer";
    placeTip(at);
  }
  if (at !== hovered) {
    hovered = at;
    draw();
  }
}

function placeTip(at) {
  const tip = $("#tip");
  const [x, y] = toScreen(at);
  const [width, height] = size();
  tip.style.left = `${Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > height ? y - tip.offsetHeight - 14 : y + 14)}px`;
}

// -- drawing -------------------------------------------------------------------------------------------------------------

function draw() {
  if (isDirty) return;
  isDirty = true;
  requestAnimationFrame(() => {
    isDirty = false;
    drawNow();
  });
}

function drawNow() {
  const canvas = $("#canvas");
  const [width, height] = size();
  if (!width || points === null) return;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const visible = [];
  for (let at = 0; at < points.rows.length; at++) {
    const [x, y] = toScreen(at);
    if (x > -40 && x < width + 40 && y > -40 && y < height + 40) visible.push([at, x, y]);
  }
  const { paint, ring } = palette();
  const emphasised = classInFocus();
  const radius = Math.min(7, Math.max(2, 2 + 30 / Math.sqrt(points.rows.length) + 0.7 * Math.log2(camera.zoom)));
  const side = Math.min(88, Math.sqrt((width * height) / Math.max(visible.length, 1)) * 0.5);
  const showThumbnails = visible.length <= MOST_THUMBNAILS && side >= 24;
  for (const [at, x, y] of visible) {
    pen.globalAlpha = emphasised === null || points.labels[at] === emphasised ? 0.9 : 0.28;
    pen.fillStyle = paint(points.labels[at]);
    if (showThumbnails && drawThumbnail(pen, at, x, y, side)) continue;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
  }
  pen.globalAlpha = 1;
  drawRings(pen, ring, showThumbnails ? side / 2 + 3 : radius + 3);
  if (canvas.matches(":focus-visible")) drawCross(pen, ring, ...middle());
  if (hovered >= 0 && !$("#tip").hidden) placeTip(hovered);
}

function classInFocus() {
  if (hovered >= 0 && points.labels[hovered] >= 0) return points.labels[hovered];
  const filter = lastLabel();
  const at = filter === null ? -1 : index.labels.findIndex(({ label }) => label === filter);
  return at < 0 ? null : at;
}

function drawThumbnail(pen, at, x, y, side) {
  const row = points.rows[at];
  let image = thumbnails.get(row);
  if (!image) {
    image = new Image();
    image.onload = draw;
    image.src = thumbnail(index, row);
    thumbnails.set(row, image);
  }
  if (!image.naturalWidth) return false;
  const shrink = side / Math.max(image.naturalWidth, image.naturalHeight);
  const [w, h] = [image.naturalWidth * shrink, image.naturalHeight * shrink];
  pen.drawImage(image, x - w / 2, y - h / 2, w, h);
  pen.strokeStyle = pen.fillStyle;
  pen.lineWidth = 2;
  pen.strokeRect(x - w / 2 - 1, y - h / 2 - 1, w + 2, h + 2);
  return true;
}

// What was searched with last, and what was found.
function drawRings(pen, colour, radius) {
  const rows = lastRows();
  if (rows === null) return;
  const near = new Set(rows.near);
  pen.strokeStyle = colour;
  for (let at = 0; at < points.rows.length; at++) {
    const isQuery = points.rows[at] === rows.query;
    if (!isQuery && !near.has(points.rows[at])) continue;
    const [x, y] = toScreen(at);
    pen.lineWidth = isQuery ? 3 : 1.4;
    pen.beginPath();
    pen.arc(x, y, isQuery ? radius + 3 : radius, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function drawCross(pen, colour, x, y) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x - 10, y);
  pen.lineTo(x + 10, y);
  pen.moveTo(x, y - 10);
  pen.lineTo(x, y + 10);
  pen.stroke();
}

function palette() {
  if (colours === null) {
    const styles = getComputedStyle(document.documentElement);
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const grey = styles.getPropertyValue("--muted");
    const lightness = isDark ? [66, 56] : [46, 56];
    colours = {
      ring: styles.getPropertyValue("--text"),
      paint: (label) => (label < 0 ? grey : `hsl(${(label * 137.508) % 360} 62% ${lightness[label % 2]}%)`),
    };
  }
  return colours;
}
