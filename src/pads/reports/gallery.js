const LOOK = REPORT.look;

/* Short addresses for the sheets: thousands of elements name them. */
const SHEETS = (LOOK ? LOOK.sheets : []).map((url) => {
  const [head, body] = url.split(",");
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: head.slice(5, head.indexOf(";")) }));
});

const sheetOf = (image) => ({ sheet: Math.floor(image / LOOK.per_sheet), row: Math.floor((image % LOOK.per_sheet) / LOOK.columns), column: image % LOOK.columns });

function thumb(image, size) {
  const { sheet, row, column } = sheetOf(image);
  const style = `width:${size}px;height:${size}px;background-image:url(${SHEETS[sheet]});background-size:${LOOK.columns * size}px auto;background-position:${-column * size}px ${-row * size}px`;
  return make("span", { class: "thumb", style });
}

const className = (image) => LOOK.classes[LOOK.labels[image]];
const shotSize = () => (document.documentElement.clientWidth < 640 ? 56 : 72);

/* A query, or what it found; an answer without a thumbnail in this page is a number below 0 that tells its class. */
function shot(image, kind) {
  const mark = { right: "✓", wrong: "✗" }[kind];
  const name = image < 0 ? LOOK.classes[-1 - image] : className(image);
  const words = `${{ query: "query", right: "right", wrong: "wrong" }[kind]}: ${name}${image < 0 ? "" : `, ${LOOK.names[image]}`}`;
  const picture = image < 0 ? make("span", { class: "thumb", style: `width:${shotSize()}px;height:${shotSize()}px` }) : thumb(image, shotSize());
  const node = make("span", { class: `shot ${kind}`, role: "img", "aria-label": words, title: words }, picture);
  if (mark) node.append(make("span", { class: "mark", "aria-hidden": "true" }, mark));
  return node;
}

function queryRow(image) {
  const precision = LOOK.precisions[image];
  const row = make("div", { class: "row" });
  const words = make("div", { class: "words" }, make("b", {}, className(image)), ` · ${LOOK.names[image]}${precision === null ? "" : ` · AP ${(100 * precision).toFixed(0)} %`}`);
  row.append(words, shot(image, "query"));
  for (const found of LOOK.neighbours[image]) {
    const label = found < 0 ? -1 - found : LOOK.labels[found];
    row.append(shot(found, label === LOOK.labels[image] ? "right" : "wrong"));
  }
  return row;
}

const classLink = (label) => make("button", { type: "button", class: "link", onclick: () => openClass(label, true) }, LOOK.classes[label]);

function pairOf({ first, second, share, query, found }) {
  const asked = make("div", {}, classLink(first), " and ", classLink(second), make("div", { class: "caption", style: "margin:0" }, `${(100 * share).toFixed(0)} % of what either finds nearest is of the other`));
  return make("div", { class: "pair" }, shot(query, "query"), shot(found, "wrong"), asked);
}

/* -- class by class -- */

const classes = { precisions: [], images: [], open: [] };

function openClass(label, isMove = false) {
  classes.open = [label, ...classes.open.filter((other) => other !== label)].slice(0, 6);
  byId("class-pages").replaceChildren(...classes.open.map(classPage));
  if (isMove) {
    const page = byId("class-pages").firstChild;
    page.scrollIntoView({ block: "start" });
    page.focus({ preventScroll: true });
  }
}

function closeClass(label) {
  classes.open = classes.open.filter((other) => other !== label);
  byId("class-pages").replaceChildren(...classes.open.map(classPage));
}

function classPage(label) {
  const images = classes.images[label].filter((image) => LOOK.neighbours[image].length);
  images.sort((a, b) => (LOOK.precisions[a] ?? 2) - (LOOK.precisions[b] ?? 2));
  const head = make("h3", {}, LOOK.classes[label], make("button", { type: "button", onclick: () => closeClass(label), "aria-label": `Close ${LOOK.classes[label]}` }, "Close"));
  const mean = classes.precisions[label];
  const words = `${images.length} ${images.length === 1 ? "query" : "queries"}, worst first${mean === null ? "" : `; mean AP ${(100 * mean).toFixed(1)} %`}`;
  return make("article", { class: "class-page", tabindex: "-1" }, head, make("p", { class: "caption" }, words), ...images.map(queryRow));
}

function fillClassList() {
  const order = byId("class-order").value, wanted = byId("class-search").value.trim().toLowerCase();
  const labels = LOOK.classes.map((_, label) => label).filter((label) => classes.images[label].length && LOOK.classes[label].toLowerCase().includes(wanted));
  const by = (label) => classes.precisions[label] ?? 2;
  if (order === "worst") labels.sort((a, b) => by(a) - by(b));
  if (order === "best") labels.sort((a, b) => by(b) - by(a));
  byId("class-list").replaceChildren(
    ...labels.slice(0, 1000).map((label) => {
      const mean = classes.precisions[label];
      const value = make("span", { class: "value" }, mean === null ? "" : `${(100 * mean).toFixed(0)} %`);
      return make("button", { type: "button", class: "link", onclick: () => openClass(label, true) }, make("span", { class: "name" }, LOOK.classes[label]), value);
    }),
  );
  byId("classes-caption").textContent = `${labels.length.toLocaleString("en")} ${labels.length === 1 ? "class" : "classes"}, each with the mean AP of its queries; choose one to see all of its queries.`;
}

function startGallery() {
  if (!LOOK) {
    for (const part of ["map", "gallery"]) {
      byId(`${part}-body`).hidden = true;
      byId(`${part}-missing`).hidden = false;
      byId(`${part}-missing`).textContent = REPORT.look_missing;
    }
    byId("classes").hidden = true;
    return;
  }
  classes.images = LOOK.classes.map(() => []);
  LOOK.labels.forEach((label, image) => classes.images[label].push(image));
  classes.precisions = classes.images.map((images) => {
    const known = images.map((image) => LOOK.precisions[image]).filter((value) => value !== null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  });
  const none = (words) => [make("p", { class: "caption" }, words)];
  onRedraw(() => {
    byId("good").replaceChildren(...LOOK.good.map(queryRow));
    byId("bad").replaceChildren(...(LOOK.bad.length ? LOOK.bad.map(queryRow) : none("There are none: every query finds all of its class first.")));
    byId("confused").replaceChildren(...(LOOK.confused.length ? LOOK.confused.map(pairOf) : none("There are none.")));
    byId("class-pages").replaceChildren(...classes.open.map(classPage));
  });
  byId("class-names").append(...LOOK.classes.filter((_, label) => classes.images[label].length).map((name) => make("option", { value: name })));
  for (const [value, words] of [["worst", "worst first"], ["best", "best first"], ["name", "as listed"]]) byId("class-order").append(make("option", { value }, words));
  byId("class-order").addEventListener("change", fillClassList);
  byId("class-search").addEventListener("input", () => {
    fillClassList();
    const label = LOOK.classes.indexOf(byId("class-search").value);
    if (label >= 0) openClass(label);
  });
  fillClassList();
  [...LOOK.pinned].reverse().forEach((label) => openClass(label));
}
startGallery();
