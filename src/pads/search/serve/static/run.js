// A run: its curves and its sampling distribution, drawn anew whenever it has written something.

import { $, ask, count, make, showError, svg } from "./dom.js";

const POLL = 1500;
const QUIET = 120; // seconds without news before the page wonders

let timer = null;
let isShown = false;
let version = "";
let run = null;
let followed = true; // the slider stands at the newest distribution
let at = 0;

export function showRun() {
  clearTimeout(timer);
  isShown = true;
  look();
}

export function hideRun() {
  isShown = false;
  clearTimeout(timer);
}

async function look() {
  if (!document.hidden) {
    try {
      run = await ask("/api/run");
      if (run.version !== version) drawRun();
      drawNews();
      version = run.version;
    } catch (error) {
      showError(error.message);
    }
  }
  clearTimeout(timer);
  if (isShown && !run?.finished) timer = setTimeout(look, POLL);
}

// -- the whole -----------------------------------------------------------------------------------------------------------

function drawRun() {
  const box = $("#run");
  if (!box.firstChild) {
    box.append(
      make("div", { class: "run-head" }, make("h2", {}), make("span", { class: "pill" }), make("span", { class: "grow" }), make("a", { class: "button", href: "/report", target: "_blank", rel: "noopener", hidden: true }, "Report")),
      make("progress", { "aria-label": "Steps" }),
      make("p", { class: "small news" }),
      make("div", { class: "figures" }),
      make("figure", { class: "panel distribution", hidden: true }),
      make("div", { class: "curves" }),
      make("p", { class: "empty", hidden: true }, "Nothing has been recorded yet. The first curves appear after a few steps."),
    );
  }
  $("h2", box).textContent = `${run.recipe || "a config of its own"}, seed ${run.seed}`;
  $(".button", box).hidden = !run.report;
  const bar = $("progress", box);
  bar.hidden = run.finished || !run.num_steps; // how many steps there will be, the end of the first epoch tells
  if (run.num_steps) [bar.max, bar.value] = [run.num_steps, run.step];
  drawFigures($(".figures", box));
  drawDistribution($(".distribution", box));
  const names = Object.keys(run.curves).sort((a, b) => importance(a) - importance(b));
  drawCurves($(".curves", box), names);
  $(".empty", box).hidden = names.length > 0;
}

function drawNews() {
  const box = $("#run");
  const seconds = run.news_at === null ? null : Math.max(0, Date.now() / 1000 - run.news_at);
  const isQuiet = !run.finished && seconds !== null && seconds > QUIET;
  const pill = $(".pill", box);
  const isMeasured = run.num_steps && run.step >= run.num_steps;
  pill.textContent = run.finished ? "finished" : isQuiet ? "no news" : seconds === null ? "starting" : isMeasured ? "measuring the test images" : "training";
  pill.className = `pill ${run.finished ? "done" : isQuiet ? "quiet" : "live"}`;
  const parts = [run.num_steps ? `step ${run.step.toLocaleString("en")} of ${run.num_steps.toLocaleString("en")}` : `step ${run.step.toLocaleString("en")}`];
  if (run.finished) parts[0] = count(run.step, "step", "steps");
  if (run.images_per_second) parts.push(`${Math.round(run.images_per_second).toLocaleString("en")} images a second`);
  if (!run.finished && seconds !== null) parts.push(`last news ${ago(seconds)} ago`);
  if (isQuiet) parts.push(`if it was stopped, go on with: pads train --resume ${run.path}`);
  $(".news", box).textContent = parts.join(" · ");
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

// -- the figures at the end ------------------------------------------------------------------------------------------------

const SHOWN = ["recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi"];
const ROWS = ["raw pixels", "pretrained features", "untrained", "trained"];
const METRICS = { "map@r": "MAP@R", nmi: "NMI", "r-precision": "R-precision", intra: "Distance within classes", inter: "Distance between classes" };
const TITLES = {
  loss: "Loss",
  reward: "Reward of the policy",
  violation_share: "Triplets that violate the margin",
  negative_of_class_share: "Negatives of the anchor's class",
  positive_is_anchor_share: "Positives that are the anchor",
  negative_distance: "Mean distance of the negatives",
  perplexity: "Perplexity of the distribution",
  clipped_share: "Bins at a bound",
  policy_entropy: "Entropy of the policy",
  images_per_second: "Images a second",
  learning_rate: "Learning rate",
};
const FIRST = ["selection/recall@1", "test/recall@1", "loss", "reward/recall@1", "reward/nmi", "reward", "selection/map@r", "test/map@r"];

const metricTitle = (name) => METRICS[name] ?? name.replace("recall@", "R@");

function title(name) {
  const [split, metric] = name.split("/");
  return metric ? `${metricTitle(metric)}, ${split} split` : (TITLES[name] ?? name);
}

const importance = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

function drawFigures(box) {
  if (!run.figures) return box.replaceChildren();
  const rows = ROWS.filter((row) => run.figures[row]);
  const columns = SHOWN.filter((name) => name in run.figures[rows[0]]);
  const head = make("tr", {}, make("td", {}), ...columns.map((name) => make("th", { scope: "col" }, metricTitle(name))));
  const body = rows.map((row) =>
    make("tr", {}, make("th", { scope: "row" }, row), ...columns.map((name) => make("td", {}, run.figures[row][name] === null ? "–" : (100 * run.figures[row][name]).toFixed(1)))),
  );
  const caption = make("caption", {}, `On the test images, in percent (protocol: ${run.protocol})`);
  const table = make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body));
  box.replaceChildren(make("div", { class: "panel scroll", tabindex: "0", role: "region", "aria-label": "Figures" }, table));
}

// -- curves --------------------------------------------------------------------------------------------------------------

const isShare = (name) => /recall|map@r|nmi|precision|share/i.test(name);
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [340, 150, 50, 10, 10, 22];

function shownValue(name, value) {
  if (value === null) return "–";
  if (isShare(name)) return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

function drawCurves(box, names) {
  const known = new Map([...box.children].map((child) => [child.dataset.name, child]));
  const panels = names.map((name) => {
    const panel = known.get(name) ?? make("figure", { class: "panel curve", "data-name": name }, make("figcaption", {}, make("b", {}, title(name)), make("span", { class: "number" })));
    panel.querySelector("svg")?.remove();
    panel.append(curve(name, run.curves[name], panel));
    return panel;
  });
  box.replaceChildren(...panels);
}

function curve(name, { steps, values }, panel) {
  const points = steps.map((step, i) => [step, values[i]]).filter(([, value]) => value !== null && Number.isFinite(value));
  const figure = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title(name)} over ${count(points.length, "record", "records")}` });
  if (!points.length) return figure;
  const last = points[points.length - 1];
  const number = panel.querySelector(".number");
  const tell = ([step, value], isLast) => (number.textContent = isLast ? shownValue(name, value) : `${shownValue(name, value)} at ${step.toLocaleString("en")}`);
  tell(last, true);
  const end = Math.max(run.step, last[0], 1);
  const isSign = name === "reward" && points.every(([, value]) => Math.abs(value) <= 1);
  const [low, high] = isSign ? [-1.1, 1.1] : range(points.map(([, value]) => value), isShare(name) ? 1 : Infinity);
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * step) / end;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  for (const value of isSign ? [-1, 0, 1] : [low, (low + high) / 2, high]) {
    figure.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    figure.append(svg("text", { class: "axis", x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, tickText(name, value, high - low)));
  }
  figure.append(svg("text", { class: "axis", x: LEFT, y: HEIGHT - 6 }, "0"));
  figure.append(svg("text", { class: "axis", x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, `step ${end.toLocaleString("en")}`));
  const path = isSign
    ? points.map(([step, value]) => `M${x(step).toFixed(1)} ${y(0).toFixed(1)}V${y(value).toFixed(1)}`).join("")
    : points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  figure.append(svg("path", { class: "line", d: path }));
  const dot = svg("circle", { class: "dot", r: 3, cx: x(last[0]), cy: y(last[1]) });
  figure.append(dot);
  figure.addEventListener("pointermove", (event) => {
    const frame = figure.getBoundingClientRect();
    const step = ((((event.clientX - frame.left) / frame.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT)) * end;
    const near = points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
    tell(near, false);
    dot.setAttribute("cx", x(near[0]));
    dot.setAttribute("cy", y(near[1]));
  });
  figure.addEventListener("pointerleave", () => {
    tell(last, true);
    dot.setAttribute("cx", x(last[0]));
    dot.setAttribute("cy", y(last[1]));
  });
  return figure;
}

function range(values, most) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const room = high > low ? 0.06 * (high - low) : 0.5 * Math.abs(high) || 1;
  return [low >= 0 ? Math.max(0, low - room) : low - room, Math.max(high, Math.min(most, high + room))];
}

function tickText(name, value, extent) {
  const [number, unit] = isShare(name) ? [100 * value, " %"] : [value, ""];
  const size = isShare(name) ? 100 * extent : extent;
  if (size < 0.001 || Math.abs(number) >= 1e5) return number === 0 ? "0" : number.toExponential(1);
  return number.toFixed(Math.max(0, Math.min(4, Math.ceil(1 - Math.log10(size))))) + unit;
}

// -- the distribution ------------------------------------------------------------------------------------------------------

const [D_HEIGHT, D_LEFT, D_BOTTOM, D_TOP] = [230, 50, 34, 14];

function drawDistribution(box) {
  const { distribution, drawn } = run;
  const main = distribution ?? drawn;
  box.hidden = !main || !main.steps.length;
  if (box.hidden) return;
  if (!box.firstChild) {
    const slider = make("input", { type: "range", min: 0, "aria-label": "Step", oninput: () => chooseStep(Number(slider.value)) });
    const heat = make("canvas", { class: "heat", "aria-hidden": "true", onpointerdown: pickStep, onpointermove: (event) => event.buttons && pickStep(event) });
    box.append(make("figcaption", {}, make("b", {}), make("span", { class: "number" })), make("div", { class: "bars" }), make("div", { class: "legend small" }), make("div", { class: "heat-frame" }, heat, make("span", { class: "cursor" })), slider, make("div", { class: "ends small" }, make("span", {}, "start"), make("span", {}, "far negatives above, near ones below; the stronger, the likelier"), make("span", {}, "now")));
  }
  $("figcaption b", box).textContent = distribution ? "Sampling distribution" : "Negatives that were drawn";
  const slider = $("input", box);
  slider.max = main.steps.length - 1;
  if (followed || at >= main.steps.length) at = main.steps.length - 1;
  slider.value = at;
  drawHeat($("canvas", box), main);
  drawBars(box);
}

function chooseStep(number) {
  at = number;
  followed = at === rowsOf().length - 1;
  $(".distribution input").value = at;
  drawBars($(".distribution"));
}

const rowsOf = () => (run.distribution ? run.distribution.p : run.drawn.share);

function pickStep(event) {
  const share = event.offsetX / event.currentTarget.clientWidth;
  chooseStep(Math.min(rowsOf().length - 1, Math.max(0, Math.floor(share * rowsOf().length))));
}

function drawBars(box) {
  const { distribution, drawn } = run;
  const main = distribution ?? drawn;
  const step = main.steps[at];
  const bars = rowsOf()[at];
  const line = distribution && drawn && drawn.share.length ? drawn.share[closest(drawn.steps, step)] : null;
  const isNewest = at === main.steps.length - 1;
  $("figcaption .number", box).textContent = `step ${step.toLocaleString("en")}${isNewest ? ", the newest" : ""}`;
  const high = Math.max(...bars, ...(line ?? []), 1e-9) * 1.05;
  const width = Math.max(260, $(".bars", box).clientWidth);
  const [low, far] = [main.edges[0], main.edges[main.edges.length - 1]];
  const x = (value) => D_LEFT + ((width - D_LEFT - 8) * (value - low)) / (far - low);
  const y = (value) => D_TOP + (D_HEIGHT - D_TOP - D_BOTTOM) * (1 - value / high);
  const figure = svg("svg", { viewBox: `0 0 ${width} ${D_HEIGHT}`, role: "img", "aria-label": "Probability of a negative by its distance from the anchor" });
  for (const value of [0, high / 2, high]) {
    figure.append(svg("line", { class: "grid", x1: D_LEFT, x2: width - 8, y1: y(value), y2: y(value) }));
    figure.append(svg("text", { class: "axis", x: D_LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, `${(100 * value).toFixed(1)} %`));
  }
  bars.forEach((value, k) => {
    const [from, to] = [x(main.edges[k]), x(main.edges[k + 1])];
    figure.append(svg("rect", { class: "bin", x: from + 0.6, width: Math.max(0.4, to - from - 1.2), y: y(value), height: Math.max(0, y(0) - y(value)) }));
  });
  if (line) {
    const edges = drawn.edges;
    const path = line.map((value, k) => `${k ? "L" : "M"}${x(edges[k]).toFixed(1)} ${y(value).toFixed(1)}H${x(edges[k + 1]).toFixed(1)}`).join("");
    figure.append(svg("path", { class: "drawn", d: path }));
  }
  for (let tick = Math.ceil(low * 5) / 5; tick <= far - 0.02; tick += 0.2) {
    figure.append(svg("text", { class: "axis", x: x(tick), y: D_HEIGHT - 18, "text-anchor": "middle" }, tick.toFixed(1)));
  }
  figure.append(svg("text", { class: "axis", x: (D_LEFT + width) / 2, y: D_HEIGHT - 3, "text-anchor": "middle" }, "distance between anchor and negative"));
  $(".bars", box).replaceChildren(figure);
  $(".legend", box).replaceChildren(...(line ? [make("span", { class: "key bin" }), "p of each bin", make("span", { class: "key drawn" }), "share that was drawn"] : []));
  $(".cursor", box).style.left = `${(100 * (at + 0.5)) / main.steps.length}%`;
}

function closest(steps, step) {
  let best = 0;
  steps.forEach((each, i) => Math.abs(each - step) < Math.abs(steps[best] - step) && (best = i));
  return best;
}

function drawHeat(canvas, main) {
  const rows = rowsOf();
  const numBins = rows[0].length;
  [canvas.width, canvas.height] = [rows.length, numBins];
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(rows.length, numBins);
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(/\s+/).map(Number);
  let high = 1e-9;
  for (const row of rows) for (const value of row) high = Math.max(high, value);
  rows.forEach((row, column) =>
    row.forEach((value, k) => {
      const offset = 4 * ((numBins - 1 - k) * rows.length + column);
      pixels.data.set([...accent, Math.round(255 * Math.sqrt(value / high))], offset);
    }),
  );
  pen.putImageData(pixels, 0, 0);
}

const redraw = () => run !== null && !$("#run").hidden && drawRun();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
