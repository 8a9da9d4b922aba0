/* Viridis, by nine of its colours. */
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];

function viridis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((value, channel) => Math.round(value + (VIRIDIS[low + 1][channel] - value) * (at - low)));
  return `rgb(${mixed.join(" ")})`;
}

const sampling = { shown: null, at: 0 };
const MARGIN = { left: 46, right: 76, top: 8, bottom: 38 };

function lastStepOf(shown) {
  return Math.max(1, ...[shown.p, shown.drawn].filter(Boolean).map((each) => each.limits[each.limits.length - 1]));
}

/* The map itself is drawn once and kept; the slider moves nothing but the cursor. */
function drawHeat(canvas, progression, isLog = false) {
  canvas.parentElement.hidden = !progression;
  if (!progression) return;
  const { pen, width, height } = prepared(canvas);
  const key = [width, height, canvas.width, colour("--soft")].join();
  if (canvas.heat?.progression !== progression || canvas.heat.key !== key) canvas.heat = { key, progression, ...drawnHeat(canvas, progression, isLog) };
  const { picture, box, last } = canvas.heat;
  pen.drawImage(picture, 0, 0, width, height);
  const at = box.left + (box.width * currentStep()) / last;
  for (const [tint, thick] of [["#fff", 3], ["#d40000", 1.4]]) {
    pen.strokeStyle = tint;
    pen.lineWidth = thick;
    line(pen, at, box.top, at, box.top + box.height);
  }
  canvas.dataset.cursor = String(Math.round(at));
}

function drawnHeat(canvas, progression, isLog) {
  const picture = make("canvas", { width: canvas.width, height: canvas.height });
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const pen = picture.getContext("2d");
  pen.scale(canvas.width / width, canvas.height / height);
  pen.font = FONT;
  const box = { left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const { edges, rows, limits } = progression;
  const last = lastStepOf(sampling.shown);
  const low = edges[0], high = edges[edges.length - 1];
  const most = Math.max(...rows.map((row) => Math.max(...row)), 1e-9);
  const floor = Math.log10(REPORT.log_floor), ceiling = Math.log10(most);
  const x = (step) => box.left + (box.width * step) / last;
  const y = (distance) => box.top + box.height * (1 - (distance - low) / (high - low));
  const scaled = (share) => (isLog ? (Math.log10(Math.max(share, REPORT.log_floor)) - floor) / (ceiling - floor) : share / most);
  rows.forEach((row, column) => {
    const from = x(limits[column]), to = x(limits[column + 1]);
    row.forEach((share, bin) => {
      pen.fillStyle = viridis(scaled(share));
      pen.fillRect(from, y(edges[bin + 1]), to - from + 0.6, y(edges[bin]) - y(edges[bin + 1]) + 0.6);
    });
  });
  axes(pen, box, { x, y, xs: ticks(0, last, box.width / 60), ys: ticks(low, high, 6), xTitle: "training step", yTitle: "distance" });
  colourBar(pen, box, isLog, most, floor, ceiling);
  canvas.setAttribute("aria-label", `Heat map over ${readable(last)} steps; the largest value is ${readable(100 * most)} %.`);
  return { picture, box, limits, last, edges, rows, low, high };
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function axes(pen, box, { x, y, xs, ys, xTitle, yTitle }) {
  pen.fillStyle = pen.strokeStyle = colour("--soft");
  pen.lineWidth = 1;
  const bottom = box.top + box.height;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  xs.forEach((value) => {
    line(pen, x(value), bottom, x(value), bottom + 4);
    pen.fillText(readable(value), x(value), bottom + 6);
  });
  pen.fillText(xTitle, box.left + box.width / 2, bottom + 22);
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  ys.forEach((value) => {
    line(pen, box.left - 4, y(value), box.left, y(value));
    pen.fillText(readable(value), box.left - 6, y(value));
  });
  pen.save();
  pen.translate(10, box.top + box.height / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(yTitle, 0, 0);
  pen.restore();
}

function colourBar(pen, box, isLog, most, floor, ceiling) {
  const left = box.left + box.width + 10, thick = 12;
  for (let row = 0; row < box.height; row++) {
    pen.fillStyle = viridis(1 - row / box.height);
    pen.fillRect(left, box.top + row, thick, 1.5);
  }
  pen.fillStyle = colour("--soft");
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const y = (share) => box.top + box.height * (1 - share);
  if (isLog) {
    for (let power = Math.ceil(floor); power <= ceiling + 1e-9; power++) pen.fillText(`${Number((100 * 10 ** power).toPrecision(3))} %`, left + thick + 4, y((power - floor) / (ceiling - floor)));
  } else {
    ticks(0, 100 * most, 5).forEach((value) => pen.fillText(`${readable(value)} %`, left + thick + 4, y(value / (100 * most))));
  }
}

/* p as bars, what was drawn as a line of steps: told apart by shape as well as by colour. */
function drawHistogram() {
  const canvas = byId("histogram");
  const { pen, width, height } = prepared(canvas);
  const { p, drawn } = sampling.shown;
  const step = currentStep();
  const rows = {
    p: p && p.rows[lastUpTo(p.steps, step)],
    drawn: drawn && drawn.rows[Math.min(lastUpTo(drawn.limits, step - 1), drawn.rows.length - 1)],
  };
  const { edges } = p || drawn;
  const low = edges[0], high = edges[edges.length - 1];
  const most = 1.08 * Math.max(1e-9, ...(rows.p || []), ...(rows.drawn || []));
  const box = { left: MARGIN.left, top: 26, width: width - MARGIN.left - 12, height: height - 26 - MARGIN.bottom };
  const x = (distance) => box.left + (box.width * (distance - low)) / (high - low);
  const y = (share) => box.top + box.height * (1 - share / most);
  pen.strokeStyle = colour("--grid");
  const ys = ticks(0, 100 * most, 5);
  ys.forEach((value) => line(pen, box.left, y(value / 100), box.left + box.width, y(value / 100)));
  if (rows.p) {
    pen.fillStyle = colour("--c0");
    rows.p.forEach((share, bin) => pen.fillRect(x(edges[bin]) + 0.5, y(share), x(edges[bin + 1]) - x(edges[bin]) - 1, y(0) - y(share)));
  }
  if (rows.drawn) {
    pen.strokeStyle = colour("--c1");
    pen.lineWidth = 2;
    pen.beginPath();
    rows.drawn.forEach((share, bin) => {
      pen.lineTo(x(edges[bin]), y(share));
      pen.lineTo(x(edges[bin + 1]), y(share));
    });
    pen.stroke();
  }
  axes(pen, box, { x, y: (value) => y(value / 100), xs: ticks(low, high, 7), ys, xTitle: "distance of the negative", yTitle: "share of each bin, %" });
  pen.textAlign = "left";
  let left = box.left;
  for (const [name, words, tint] of [["p", "p(Iₙ|Iₐ)", "--c0"], ["drawn", "really drawn", "--c1"]]) {
    if (!rows[name]) continue;
    pen.fillStyle = colour(tint);
    if (name === "p") pen.fillRect(left, 6, 14, 10);
    else pen.fillRect(left, 10, 14, 2.5);
    pen.fillStyle = colour("--ink");
    pen.fillText(words, left + 20, 11);
    left += 40 + pen.measureText(words).width;
  }
  const peak = (row) => `${readable(100 * Math.max(...row))} % near distance ${readable(edges[row.indexOf(Math.max(...row))])}`;
  canvas.setAttribute("aria-label", `At step ${step}: ${["p", "drawn"].filter((name) => rows[name]).map((name) => `${name} is at most ${peak(rows[name])}`).join("; ")}.`);
}

const stepsOf = (shown) => (shown.p && shown.p.steps.length > 1 ? shown.p.steps : shown.drawn ? [...shown.drawn.steps] : shown.p.steps);
const currentStep = () => stepsOf(sampling.shown)[sampling.at];

function drawSampling() {
  const { shown } = sampling;
  if (!shown || !(shown.p || shown.drawn)) return;
  drawHeat(byId("heat-linear"), shown.p);
  drawHeat(byId("heat-log"), shown.p, true);
  drawHeat(byId("heat-drawn"), shown.drawn);
  drawHistogram();
  const step = currentStep();
  byId("step-output").textContent = `step ${readable(step)} of ${readable(lastStepOf(shown))}`;
  byId("step").setAttribute("aria-valuetext", `step ${step}`);
  byId("histogram-title").textContent = `At step ${readable(step)}`;
}

function showDistribution(index) {
  sampling.shown = REPORT.distributions[index];
  const { shown } = sampling;
  const isEmpty = !(shown.p || shown.drawn);
  byId("progressions").hidden = isEmpty;
  byId("sampling-missing").hidden = !shown.missing;
  byId("sampling-missing").textContent = shown.missing || "";
  byId("sampling-caption").textContent = shown.caption;
  if (isEmpty) return;
  byId("step").max = String(stepsOf(shown).length - 1);
  moveTo(stepsOf(shown).length - 1);
}

function moveTo(at) {
  sampling.at = at;
  byId("step").value = String(at);
  drawSampling();
}

function startSampling() {
  const { distributions } = REPORT;
  if (distributions.length > 1) {
    const choice = make("select", { id: "distribution" }, ...distributions.map((each, index) => make("option", { value: index }, each.label)));
    choice.addEventListener("change", () => showDistribution(Number(choice.value)));
    byId("which-distribution").append(make("label", { for: "distribution" }, "Show"), choice);
  }
  showDistribution(0);
  onRedraw(drawSampling);
  byId("step").addEventListener("input", (event) => moveTo(Number(event.target.value)));
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    byId("play").textContent = "Play";
  };
  byId("play").addEventListener("click", () => {
    if (timer) return stop();
    const last = stepsOf(sampling.shown).length - 1;
    if (sampling.at === last) moveTo(0);
    byId("play").textContent = "Pause";
    timer = setInterval(() => {
      if (sampling.at >= stepsOf(sampling.shown).length - 1) stop();
      else moveTo(sampling.at + 1);
    }, Math.max(40, 6000 / (last + 1)));
  });
  for (const id of ["heat-linear", "heat-log", "heat-drawn"]) {
    const canvas = byId(id);
    const look = (event) => {
      if (!canvas.heat) return;
      const { box, limits, last, edges, rows, low, high } = canvas.heat;
      const area = canvas.getBoundingClientRect();
      const step = ((event.clientX - area.left - box.left) / box.width) * last;
      const distance = low + (1 - (event.clientY - area.top - box.top) / box.height) * (high - low);
      if (step < 0 || step > last || distance < low || distance > high) return hideTip();
      const row = rows[Math.min(lastUpTo(limits, step), rows.length - 1)];
      const bin = Math.min(lastUpTo(edges, distance), row.length - 1);
      const words = `step ${readable(step)}\ndistance ${readable(edges[bin])} to ${readable(edges[bin + 1])}\n${readable(100 * row[bin])} %`;
      showTip(event.clientX, event.clientY, make("div", {}, words));
    };
    canvas.addEventListener("pointermove", look);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("click", (event) => {
      const { box, last } = canvas.heat || {};
      if (!box) return;
      const step = ((event.clientX - canvas.getBoundingClientRect().left - box.left) / box.width) * last;
      moveTo(lastUpTo(stepsOf(sampling.shown), step));
    });
  }
}
startSampling();
