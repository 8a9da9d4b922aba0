// The page: which view is shown, what is waited for, and the keys that work everywhere.

import { $, ask, count, hideError, place, showError } from "./dom.js";
import { showMap, startMap } from "./map.js";
import { hideRun, showRun } from "./run.js";
import { clearQuery, startSearch, update } from "./search.js";

const POLL = 1000;
let about = null;
let index = null;

async function start() {
  await keepToken();
  about = await ask("/api/about");
  document.title = `${about.name} · pads`;
  $("#name").textContent = about.name;
  $('[data-view="run"]').hidden = !about.run;
  if (about.run && !location.hash && about.state !== "ready") history.replaceState(null, "", "#run");
  window.addEventListener("hashchange", route);
  window.addEventListener("popstate", route);
  route();
  await untilReady();
}

// The token that the terminal printed: sent once, then kept in a cookie, and taken out of the address.
async function keepToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  await fetch("/api/token", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
}

async function untilReady() {
  while (about.state !== "ready") {
    drawWaiting();
    if (about.state === "failed") return;
    await new Promise((resolve) => setTimeout(resolve, POLL));
    try {
      about = await ask("/api/about");
      hideError();
    } catch (error) {
      showError(error.message);
    }
  }
  index = await ask("/api/index");
  const classes = index.labels.length ? ` · ${count(index.labels.length, "class", "classes")}` : "";
  const what = about.run ? "test image" : "image";
  $("#summary").textContent = `${count(index.images, what, `${what}s`)}${classes} · ${index.dimension} dimensions`;
  startSearch(about, index);
  startMap(index);
  route();
}

// -- views ---------------------------------------------------------------------------------------------------------------

let routed = "";

function route() {
  const here = `${location.hash} ${index !== null}`;
  if (routed === here) return; // going back tells twice
  routed = here;
  hideError();
  const known = ["search", "map", ...(about.run ? ["run"] : [])];
  const view = known.includes(place().view) ? place().view : "search";
  const isWaiting = view !== "run" && index === null;
  for (const name of ["search", "map", "run"]) $(`#${name}`).hidden = name !== view || isWaiting;
  $("#waiting").hidden = !isWaiting;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isWaiting) drawWaiting();
  else if (view === "search") update();
  else if (view === "map") showMap();
  if (view === "run") showRun();
  else hideRun();
}

function drawWaiting() {
  const box = $("#waiting");
  const bar = $("progress", box);
  const texts = {
    training: ["Still training", "The curves are under Run. When the training has finished, its test images can be searched here."],
    building: ["Building the index", "The test images of this run are embedded once; the index is kept in the run's folder."],
    failed: ["No index", about.reason],
    ready: ["Loading", ""],
  };
  const [title, text] = texts[about.state];
  $("h2", box).textContent = title;
  const progress = `Now ${about.doing}: ${about.done.toLocaleString("en")} of ${count(about.total, "image", "images")}.`;
  $("p", box).textContent = about.state === "building" && about.total ? `${text} ${progress}` : text;
  bar.hidden = about.state !== "building";
  if (about.total) [bar.max, bar.value] = [about.total, about.done];
  if (about.state !== "ready" && !$("#summary").textContent.trim()) $("#summary").textContent = "a run";
}

// -- keys ----------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("#viewer").open) return;
  if (!hideError() && place().view === "search" && index !== null) clearQuery();
});
$("#error button").addEventListener("click", hideError);
$("#viewer button").addEventListener("click", () => $("#viewer").close());
$("#viewer").addEventListener("click", (event) => event.target === $("#viewer") && $("#viewer").close());
$("#viewer").addEventListener("close", () => $("#viewer img").removeAttribute("src"));

start().catch((error) => showError(error.message));
