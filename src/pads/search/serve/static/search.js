// Searching: what is asked for stands in the address, so that going back goes back, and a link can be kept.

import { $, addressOf, ask, count, fullImage, hideError, make, picture, place, showError, startAgain, thumbnail } from "./dom.js";

const FIRST = 24;
const MOST = 480;
const KEPT_UPLOADS = 20;

let about, index;
const uploads = new Map();
let running = null;
let shown = null; // the last answer, with what was asked for
let seed = 0;

export function startSearch(aboutServer, aboutIndex) {
  [about, index] = [aboutServer, aboutIndex];
  fillPrecisions();
  startFilter();
  $("#pick").addEventListener("change", (event) => {
    if (event.target.files.length) searchWith(event.target.files[0]);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find(isImage) ?? event.clipboardData.files[0];
    if (file) {
      event.preventDefault();
      searchWith(file);
    }
  });
  startDropping();
  $("#clear").addEventListener("click", clearQuery);
  $("#enlarge").addEventListener("click", enlarge);
  $("#others").addEventListener("click", () => {
    seed += 1;
    update();
  });
  $("#more").addEventListener("click", () => go({ k: Math.min(2 * asked().k, MOST) }, { replace: true }));
  $("#precision").addEventListener("change", () => shown && drawCards());
}

// -- what is asked for ---------------------------------------------------------------------------------------------------

function asked() {
  const given = place().asked;
  const row = given.get("row");
  const upload = given.get("upload");
  return {
    row: row !== null && /^\d+$/.test(row) ? Number(row) : null,
    upload: uploads.has(upload) ? upload : null,
    label: given.get("label"),
    k: Math.min(Math.max(Number(given.get("k")) || FIRST, 1), MOST),
  };
}

function go(changes, { replace = false } = {}) {
  const next = { ...asked(), ...changes };
  const address = addressOf("search", { ...next, k: next.k === FIRST ? null : next.k });
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export const addressOfRow = (row) => addressOf("search", { row, label: asked().label });

// What the map marks: the last search.
export function lastRows() {
  return shown === null || shown.sample ? null : { query: shown.what.row, near: shown.found.map((each) => each.row) };
}

export const lastLabel = () => shown?.what.label ?? null;

export function clearQuery() {
  const { row, upload } = asked();
  if (row === null && upload === null) return false;
  go({ row: null, upload: null, k: FIRST });
  $("#pick").focus();
  return true;
}

const isImage = (file) => file.type.startsWith("image/");

function searchWith(file) {
  hideError();
  if (!isImage(file)) return showError(`This is not an image: ${file.name || "what was pasted"}.`);
  if (file.size > about.max_bytes) {
    return showError(`An upload may have ${about.max_bytes / 1e6} MB at most, and ${file.name || "this one"} has ${(file.size / 1e6).toFixed(1)}.`);
  }
  const id = String(Date.now());
  uploads.set(id, { file, address: URL.createObjectURL(file), name: file.name || "pasted image" });
  if (uploads.size > KEPT_UPLOADS) {
    const [oldest, { address }] = uploads.entries().next().value;
    URL.revokeObjectURL(address);
    uploads.delete(oldest);
  }
  go({ row: null, upload: id, k: FIRST });
}

// -- asking --------------------------------------------------------------------------------------------------------------

export async function update() {
  running?.abort();
  running = new AbortController();
  const mine = running;
  const what = asked();
  $('[data-view="search"]').href = location.hash || "#search"; // coming back from the map finds the same
  drawFilter(what.label);
  drawQuery(what, null);
  $("#cards").setAttribute("aria-busy", "true");
  try {
    const answer = await answerTo(what, mine.signal);
    if (mine !== running) return;
    shown = { ...answer, what };
    drawQuery(what, answer);
    drawCards();
  } catch (error) {
    if (error.name === "AbortError" || mine !== running) return;
    shown = { sample: true, found: [], failed: true, what };
    drawCards();
    showError(error.message);
  } finally {
    if (mine === running) $("#cards").removeAttribute("aria-busy");
  }
}

async function answerTo({ row, upload, label, k }, signal) {
  const query = new URLSearchParams({ k });
  if (label !== null) query.set("label", label);
  if (row === null && upload === null) {
    query.set("seed", seed);
    return ofThisIndex({ sample: true, ...(await ask(`/api/sample?${query}`, { signal })) });
  }
  let answer;
  if (row !== null) {
    query.set("row", row);
    query.set("v", index.version);
    answer = await ask(`/api/search?${query}`, { signal });
  } else {
    const body = new FormData();
    body.append("image", uploads.get(upload).file, "upload");
    answer = await ask(`/api/search?${query}`, { method: "POST", body, signal });
  }
  return ofThisIndex({ found: answer.neighbours, ...answer });
}

function ofThisIndex(answer) {
  if (answer.version !== index.version) startAgain();
  return answer;
}

// -- drawing -------------------------------------------------------------------------------------------------------------

function drawQuery({ row, upload }, answer) {
  const box = $("#asked");
  const isAsked = row !== null || upload !== null;
  box.hidden = !isAsked;
  $("#drop").classList.toggle("compact", isAsked);
  $("#timing").textContent = "";
  if (!isAsked) return;
  const image = $("img", box);
  const address = row !== null ? thumbnail(index, row) : uploads.get(upload).address;
  if (image.getAttribute("src") !== address) {
    $("#enlarge").classList.remove("broken");
    image.onerror = () => $("#enlarge").classList.add("broken");
    image.src = address;
  }
  const query = answer?.query;
  $(".label bdi", box).textContent = query?.label ?? (upload !== null ? "Your image" : query ? "no class" : "\u00a0");
  $(".path bdi", box).textContent = (query && withoutLabel(query)) ?? (upload !== null ? uploads.get(upload).name : "\u00a0");
  if (answer) {
    const embedded = upload !== null ? `Embedded in ${answer.embedding_ms.toFixed(0)} ms, searched` : "Searched";
    $("#timing").textContent = `${embedded} ${count(index.images, "image", "images")} in ${answer.search_ms.toFixed(1)} ms.`;
  }
}

function drawCards() {
  const { found, sample } = shown;
  const threshold = sample ? null : chosenThreshold();
  const farthest = Math.max(...found.map((each) => each.distance), (threshold?.distance ?? 0) * 1.1, 1e-6);
  const cards = found.map((each) => (sample ? sampleCard(each) : neighbourCard(each, farthest, threshold)));
  $("#cards").replaceChildren(...cards.map((card) => make("li", {}, card)));
  $("#heading").textContent = heading(threshold);
  const room = asked().label === null ? index.images : (index.counts.get(asked().label) ?? 0);
  $("#others").hidden = !sample || Boolean(shown.failed) || found.length >= room;
  $("#more").hidden = sample || found.length < asked().k || found.length >= MOST;
  $("#nothing").hidden = found.length > 0 || Boolean(shown.failed);
  $("#nothing").textContent = sample ? "There are no images here." : "There is no other image to find here.";
}

function heading(threshold) {
  const { found, sample, query, failed } = shown;
  const label = asked().label;
  const where = label === null ? "" : ` in ${label}`;
  if (failed) return "Nothing was found";
  if (sample) return `Start with one of these${where}`;
  const parts = [`${count(found.length, "neighbour", "neighbours")}${where}`];
  if (query?.label != null && label === null) {
    parts.push(`${found.filter((each) => each.label === query.label).length} of its class`);
  }
  if (threshold !== null) {
    parts.push(`${found.filter((each) => markOf(each, threshold) === "same item").length} marked as the same item`);
  }
  return parts.join(" · ");
}

function nameLines({ label, path }) {
  return [
    make("span", { class: "label" }, make("bdi", { title: label ?? "" }, label ?? "no class")),
    make("span", { class: "path" }, make("bdi", { title: path }, withoutLabel({ label, path }))),
  ];
}

// The folder of an image is its class, which stands above already.
const withoutLabel = ({ label, path }) => (label !== null && path.startsWith(`${label}/`) ? path.slice(label.length + 1) : path);

function sampleCard(each) {
  const text = `Search with ${each.path}${each.label === null ? "" : `, ${each.label}`}`;
  const link = make("a", { class: "card", href: addressOfRow(each.row), "aria-label": text });
  link.append(make("span", { class: "thumb" }, picture(thumbnail(index, each.row))), ...nameLines(each));
  return link;
}

function neighbourCard(each, farthest, threshold) {
  const mark = markOf(each, threshold);
  const isOfClass = shown.query?.label != null && each.label === shown.query.label;
  const notes = [`distance ${each.distance.toFixed(3)}`, mark, isOfClass && "same class"].filter(Boolean);
  const text = `Search with ${each.path}${each.label === null ? "" : `, ${each.label}`}: ${notes.join(", ")}`;
  const link = make("a", { class: "card", href: addressOfRow(each.row), "aria-label": text });
  const thumb = make("span", { class: "thumb" }, picture(thumbnail(index, each.row)));
  if (mark) thumb.append(make("span", { class: mark === "same item" ? "badge" : "badge faint" }, mark));
  const fill = make("span", { class: "fill" });
  fill.style.width = `${(100 * each.distance) / farthest}%`;
  const bar = make("span", { class: "bar" }, fill);
  if (threshold !== null) {
    const tick = make("span", { class: "tick" });
    tick.style.left = `${(100 * threshold.distance) / farthest}%`;
    bar.append(tick);
  }
  link.append(thumb, ...nameLines(each));
  link.append(make("span", { class: "measure" }, bar, make("span", { class: "number" }, each.distance.toFixed(3))));
  link.classList.toggle("of-class", isOfClass);
  return link;
}

// -- same item -----------------------------------------------------------------------------------------------------------

function fillPrecisions() {
  const choices = index.thresholds.map(({ precision, distance }) =>
    make("option", { value: precision }, `${Math.round(100 * precision)} % (closer than ${distance.toFixed(3)})`),
  );
  $("#precision").replaceChildren(make("option", { value: "" }, "do not mark"), ...choices);
  $("#precision-field").hidden = choices.length === 0;
  $("#promise").textContent = index.promise;
  $("#promise").hidden = !index.promise;
}

function chosenThreshold() {
  const value = $("#precision").value;
  return index.thresholds.find(({ precision }) => String(precision) === value) ?? null;
}

// Farther than `distance` a neighbour may still be the same item; only beyond `other` it is not.
function markOf({ distance }, threshold) {
  if (threshold === null) return null;
  if (distance < threshold.distance) return "same item";
  return threshold.other !== null && distance > threshold.other ? "other item" : "unsure";
}

// -- full size -----------------------------------------------------------------------------------------------------------

function enlarge() {
  const { row, upload } = asked();
  const viewer = $("#viewer");
  $("img", viewer).src = row !== null ? fullImage(index, row) : uploads.get(upload).address;
  $("bdi", viewer).textContent = row !== null ? (shown.query?.path ?? "") : uploads.get(upload).name;
  viewer.showModal();
}

// -- dropping ------------------------------------------------------------------------------------------------------------

function startDropping() {
  const holdsFile = (event) => [...event.dataTransfer.types].includes("Files");
  let depth = 0;
  const show = (change) => {
    depth = Math.max(0, depth + change);
    $("#veil").hidden = depth === 0;
  };
  document.addEventListener("dragenter", (event) => holdsFile(event) && show(1));
  document.addEventListener("dragleave", (event) => holdsFile(event) && show(-1));
  document.addEventListener("dragover", (event) => holdsFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    show(-depth);
    const file = event.dataTransfer.files[0];
    if (file) searchWith(file);
  });
}

// -- the filter: a list to type into, since there may be thousands of classes ----------------------------------------------

const LISTED = 80;
let active = -1;

function startFilter() {
  index.counts = new Map(index.labels.map(({ label, images }) => [label, images]));
  $("#filter-field").hidden = index.labels.length === 0;
  const input = $("#filter");
  input.placeholder = `all ${count(index.labels.length, "class", "classes")}`;
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", openList);
  input.addEventListener("input", openList);
  input.addEventListener("blur", () => {
    closeList();
    drawFilter(asked().label);
  });
  input.addEventListener("keydown", filterKey);
  $("#filter-clear").addEventListener("click", () => {
    go({ label: null });
    input.focus();
  });
}

function drawFilter(label) {
  $("#filter").value = label ?? "";
  $("#filter-clear").hidden = label === null;
}

function openList() {
  const list = $("#filter-list");
  const input = $("#filter");
  const typed = input.value === asked().label ? "" : input.value.trim().toLowerCase();
  const fitting = index.labels.filter(({ label }) => label.toLowerCase().includes(typed));
  const options = fitting.slice(0, LISTED).map(({ label, images }, at) =>
    make(
      "li",
      { role: "option", id: `option-${at}`, "aria-selected": "false", onmousedown: (event) => pickLabel(event, label) },
      make("bdi", {}, label),
      make("span", { class: "number" }, images.toLocaleString("en")),
    ),
  );
  options.forEach((option, at) => (option.dataset.at = String(at)));
  list.labels = fitting.slice(0, LISTED).map(({ label }) => label);
  const rest = fitting.length - options.length;
  if (rest > 0) options.push(make("li", { class: "rest", role: "presentation" }, `and ${rest.toLocaleString("en")} more: type to narrow`));
  if (fitting.length === 0) options.push(make("li", { class: "rest", role: "presentation" }, "no such class"));
  list.replaceChildren(...options);
  list.hidden = false;
  fitList(list, input);
  input.setAttribute("aria-expanded", "true");
  activate(typed && fitting.length ? 0 : -1);
}

// Where there is more room, below or above; a list that leaves the screen could not be reached.
function fitList(list, input) {
  const { top, bottom } = input.getBoundingClientRect();
  const [above, below] = [top - 40, window.innerHeight - bottom - 16];
  const isAbove = below < 200 && above > below;
  list.classList.toggle("above", isAbove);
  list.style.maxHeight = `${Math.max(120, Math.min(360, isAbove ? above : below))}px`;
}

function closeList() {
  const wasOpen = !$("#filter-list").hidden;
  $("#filter-list").hidden = true;
  $("#filter").setAttribute("aria-expanded", "false");
  $("#filter").removeAttribute("aria-activedescendant");
  active = -1;
  return wasOpen;
}

function activate(at) {
  const options = [...document.querySelectorAll("#filter-list [role=option]")];
  active = options.length ? Math.max(-1, Math.min(at, options.length - 1)) : -1;
  options.forEach((option, number) => option.setAttribute("aria-selected", String(number === active)));
  if (active >= 0) {
    $("#filter").setAttribute("aria-activedescendant", options[active].id);
    options[active].scrollIntoView({ block: "nearest" });
  } else $("#filter").removeAttribute("aria-activedescendant");
}

function pickLabel(event, label) {
  event.preventDefault();
  closeList();
  go({ label, k: FIRST });
}

function filterKey(event) {
  const list = $("#filter-list");
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (list.hidden) openList();
    activate(active + (event.key === "ArrowDown" ? 1 : -1));
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (!list.hidden && active >= 0) pickLabel(event, list.labels[active]);
    else if ($("#filter").value.trim() === "") {
      closeList();
      go({ label: null });
    }
  } else if (event.key === "Escape") {
    if (closeList()) event.stopPropagation();
    drawFilter(asked().label);
  }
}
