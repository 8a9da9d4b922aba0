const DASHES = ["", "6 4", "2 3"];
const tint = (group) => `var(--c${group % 7})`;

function drawChart(holder, chart) {
  const svg = holder.querySelector("svg");
  const width = svg.clientWidth, height = svg.clientHeight;
  const box = { left: 64, top: 8, right: width - 12, bottom: height - 36 };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const factor = chart.percent ? 100 : 1;
  const lows = [], highs = [];
  let lastStep = 1;
  for (const each of chart.lines) {
    lastStep = Math.max(lastStep, each.steps[each.steps.length - 1]);
    each.mean.forEach((value, at) => {
      lows.push(factor * (value - (each.sd ? each.sd[at] : 0)));
      highs.push(factor * (value + (each.sd ? each.sd[at] : 0)));
    });
  }
  let low = Math.min(...lows), high = Math.max(...highs);
  if (high - low < 1e-9 * Math.max(1, Math.abs(high)) || high === low) {
    const room = Math.abs(high) * 0.1 || 1;
    low -= room;
    high += room;
  }
  const room = (high - low) * 0.06;
  if (low >= 0 && low - room < 0) low = 0;
  else low -= room;
  high += room;
  const x = (step) => box.left + ((box.right - box.left) * step) / lastStep;
  const y = (value) => box.bottom - ((box.bottom - box.top) * (factor * value - low)) / (high - low);
  const values = ticks(low, high, 5);
  const isSmall = Math.max(...values.map(Math.abs)) < 0.01;
  for (const value of values) {
    const at = y(value / factor);
    svg.append(makeSvg("line", { x1: box.left, x2: box.right, y1: at, y2: at, stroke: "var(--grid)" }));
    svg.append(makeSvg("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, isSmall && value ? value.toExponential().replace("e-", "e−") : readable(value)));
  }
  for (const value of ticks(0, lastStep, (box.right - box.left) / 50)) svg.append(makeSvg("text", { x: x(value), y: box.bottom + 15, "text-anchor": "middle" }, readable(value)));
  svg.append(makeSvg("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, "training step"));
  svg.append(makeSvg("text", { x: 9, y: (box.top + box.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 9 ${(box.top + box.bottom) / 2})` }, chart.unit));
  for (const each of chart.lines) {
    if (each.sd) {
      const upper = each.steps.map((step, at) => `${x(step)},${y(each.mean[at] + each.sd[at])}`);
      const lower = each.steps.map((step, at) => `${x(step)},${y(each.mean[at] - each.sd[at])}`).reverse();
      svg.append(makeSvg("polygon", { points: [...upper, ...lower].join(" "), fill: tint(each.group), opacity: 0.18 }));
    }
    const points = each.steps.flatMap((step, at) => (chart.stepped && at ? [`${x(step)},${y(each.mean[at - 1])}`, `${x(step)},${y(each.mean[at])}`] : [`${x(step)},${y(each.mean[at])}`]));
    svg.append(makeSvg("polyline", { points: points.join(" "), fill: "none", stroke: tint(each.group), "stroke-width": 2, "stroke-dasharray": DASHES[each.style], "stroke-linejoin": "round" }));
    if (each.steps.length === 1) svg.append(makeSvg("circle", { cx: x(each.steps[0]), cy: y(each.mean[0]), r: 3.5, fill: tint(each.group) }));
  }
  const cursor = makeSvg("line", { y1: box.top, y2: box.bottom, stroke: "var(--soft)", visibility: "hidden" });
  svg.append(cursor);
  svg.chart = { box, x, lastStep, cursor };
}

/* The values of all lines at a step; lines of one chart may have been recorded at different steps. */
function chartWords(chart, step) {
  const factor = chart.percent ? 100 : 1;
  const lines = chart.lines.map((each) => {
    const at = lastUpTo(each.steps, step);
    const name = [REPORT.groups.length > 1 ? REPORT.groups[each.group] : "", each.label].filter(Boolean).join(", ");
    const spread = each.sd ? ` ± ${readable(factor * each.sd[at])}` : "";
    return `${name ? `${name}: ` : ""}${readable(factor * each.mean[at])}${spread}${chart.percent ? " %" : ""}`;
  });
  return [`step ${readable(step)}`, ...lines].join("\n");
}

function makeChart(chart) {
  const svg = makeSvg("svg", { role: "img", tabindex: "0", "aria-label": `${chart.title}, at the end: ${chartWords(chart, Infinity).split("\n").slice(1).join("; ")}` });
  const styles = [...new Map(chart.lines.map((each) => [each.style, each.label])).entries()].filter(([, label]) => label);
  const legend = make("div", { class: "legend" });
  for (const [style, label] of styles) {
    const sample = makeSvg("svg", { viewBox: "0 0 26 8", style: "width:26px;height:8px", "aria-hidden": "true" });
    sample.append(makeSvg("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": DASHES[style] }));
    legend.append(make("span", {}, sample, label));
  }
  const holder = make("figure", {}, make("figcaption", {}, chart.title), svg, legend);
  const steps = [...new Set(chart.lines.flatMap((each) => each.steps))].sort((a, b) => a - b);
  let at = steps.length - 1;
  const pointTo = (position, clientX, clientY) => {
    at = Math.min(Math.max(position, 0), steps.length - 1);
    const { cursor, x } = svg.chart;
    cursor.setAttribute("x1", x(steps[at]));
    cursor.setAttribute("x2", x(steps[at]));
    cursor.setAttribute("visibility", "visible");
    const area = svg.getBoundingClientRect();
    showTip(clientX ?? area.left + x(steps[at]), clientY ?? area.top + 20, make("div", {}, chartWords(chart, steps[at])));
  };
  const leave = () => {
    svg.chart.cursor.setAttribute("visibility", "hidden");
    hideTip();
  };
  svg.addEventListener("pointermove", (event) => {
    const { box, lastStep } = svg.chart;
    const step = ((event.clientX - svg.getBoundingClientRect().left - box.left) / (box.right - box.left)) * lastStep;
    const before = lastUpTo(steps, step);
    const isNext = before + 1 < steps.length && steps[before + 1] - step < step - steps[before];
    pointTo(before + (isNext ? 1 : 0), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    pointTo(at + move);
  });
  byId("charts").append(holder);
  onRedraw(() => drawChart(holder, chart));
}

if (REPORT.groups.length > 1) {
  REPORT.groups.forEach((label, group) => {
    const sample = make("span", { style: `width:14px;height:14px;border-radius:3px;background:${tint(group)}` });
    byId("groups").append(make("span", {}, sample, label));
  });
}
REPORT.charts.forEach(makeChart);
byId("curves-caption").textContent = REPORT.charts_caption;
