function startMap() {
  const canvas = byId("map-canvas");
  const pictures = SHEETS.map((url) => Object.assign(new Image(), { src: url, onload: () => draw() }));
  const view = { x: 0.5, y: 0.5, zoom: 1 };
  const marked = new Set();
  let hovered = -1;
  const POINT = LOOK.labels.length > 2000 ? 2.4 : 3.5, PICTURE = 44, MOST_PICTURES = 500;

  const scale = () => Math.min(canvas.clientWidth, canvas.clientHeight) * 0.94 * view.zoom;
  const toX = (x) => (x - view.x) * scale() + canvas.clientWidth / 2;
  const toY = (y) => (y - view.y) * scale() + canvas.clientHeight / 2;
  const hue = (label) => (label * 137.508) % 360;

  function visible() {
    const found = [];
    for (let image = 0; image < LOOK.x.length; image++) {
      const x = toX(LOOK.x[image]), y = toY(LOOK.y[image]);
      if (x > -PICTURE && y > -PICTURE && x < canvas.clientWidth + PICTURE && y < canvas.clientHeight + PICTURE) found.push(image);
    }
    return found;
  }

  function draw() {
    const { pen } = prepared(canvas);
    const images = visible();
    const isLabelled = images.length <= MOST_PICTURES;
    canvas.dataset.pictures = isLabelled ? images.length : 0;
    canvas.dataset.zoom = view.zoom.toFixed(2);
    const light = colour("--point-light"), dim = colour("--point-dim");
    const isMarked = (image) => !marked.size || marked.has(LOOK.labels[image]);
    for (const image of [...images.filter((each) => !isMarked(each)), ...images.filter(isMarked)]) {
      const x = toX(LOOK.x[image]), y = toY(LOOK.y[image]);
      const paint = isMarked(image) ? `hsl(${hue(LOOK.labels[image])} 62% ${light})` : dim;
      if (isLabelled) {
        const { sheet, row, column } = sheetOf(image);
        pen.globalAlpha = isMarked(image) ? 1 : 0.25;
        pen.fillStyle = paint;
        pen.fillRect(x - PICTURE / 2 - 2, y - PICTURE / 2 - 2, PICTURE + 4, PICTURE + 4);
        if (pictures[sheet].complete) pen.drawImage(pictures[sheet], column * LOOK.tile, row * LOOK.tile, LOOK.tile, LOOK.tile, x - PICTURE / 2, y - PICTURE / 2, PICTURE, PICTURE);
        pen.globalAlpha = 1;
      } else {
        pen.fillStyle = paint;
        pen.beginPath();
        pen.arc(x, y, marked.size && isMarked(image) ? POINT + 2 : POINT, 0, 7);
        pen.fill();
      }
    }
    if (hovered >= 0) {
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(toX(LOOK.x[hovered]) - 7, toY(LOOK.y[hovered]) - 7, 14, 14);
    }
  }

  let frame = 0;
  const drawSoon = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  function nearest(x, y, reach) {
    let best = -1, least = reach * reach;
    for (const image of visible()) {
      const distance = (toX(LOOK.x[image]) - x) ** 2 + (toY(LOOK.y[image]) - y) ** 2;
      if (distance <= least) [best, least] = [image, distance];
    }
    return best;
  }

  function hover(image, x, y) {
    if (image !== hovered) {
      hovered = image;
      drawSoon();
    }
    if (image < 0) return hideTip();
    const area = canvas.getBoundingClientRect();
    showTip(x + area.left, y + area.top, thumb(image, 112), make("div", {}, `${className(image)}\n${LOOK.names[image]}`));
  }

  /* Zooms so that the point under (x, y) stays there. */
  function zoomBy(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const zoom = Math.min(Math.max(view.zoom * factor, 0.8), 400);
    const before = scale();
    view.zoom = zoom;
    const after = scale();
    view.x += (x - canvas.clientWidth / 2) * (1 / before - 1 / after);
    view.y += (y - canvas.clientHeight / 2) * (1 / before - 1 / after);
    drawSoon();
  }

  function showAll() {
    Object.assign(view, { x: 0.5, y: 0.5, zoom: 1 });
    drawSoon();
  }

  function zoomTo(images) {
    const xs = images.map((image) => LOOK.x[image]), ys = images.map((image) => LOOK.y[image]);
    const extent = Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), 0.01);
    Object.assign(view, { x: (Math.max(...xs) + Math.min(...xs)) / 2, y: (Math.max(...ys) + Math.min(...ys)) / 2, zoom: Math.min(0.75 / extent, 60) });
    drawSoon();
  }

  /* -- search -- */

  function search() {
    const wanted = byId("search").value.trim().toLowerCase();
    marked.clear();
    const status = byId("search-status");
    if (!wanted) status.replaceChildren();
    else {
      LOOK.classes.forEach((name, label) => {
        if (classes.images[label].length && name.toLowerCase().includes(wanted)) marked.add(label);
      });
      const exact = [...marked].filter((label) => LOOK.classes[label].toLowerCase() === wanted);
      if (exact.length) {
        marked.clear();
        exact.forEach((label) => marked.add(label));
      }
      const labels = [...marked];
      status.replaceChildren(labels.length === 0 ? "no class of that name" : labels.length === 1 ? classLink(labels[0]) : `${labels.length} classes; Enter shows them`);
      if (!labels.length) marked.add(-1);
    }
    drawSoon();
  }
  const markedImages = () => [...marked].filter((label) => label >= 0).flatMap((label) => classes.images[label]);
  byId("search").addEventListener("input", search);
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && markedImages().length) zoomTo(markedImages());
    if (event.key === "Escape") {
      byId("search").value = "";
      search();
    }
  });
  byId("zoom-in").addEventListener("click", () => zoomBy(1.6));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
  byId("zoom-all").addEventListener("click", showAll);

  /* -- pointers: one drags (a finger scrolls the page), two pinch -- */

  const held = new Map();
  let dragged = 0;
  const local = (event) => {
    const area = canvas.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, local(event));
    dragged = 0;
    if (event.pointerType === "mouse" || held.size > 1) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = local(event), before = held.get(event.pointerId);
    if (!before) return hover(nearest(now.x, now.y, 24), now.x, now.y);
    const others = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    if (others.length) {
      const [other] = others;
      const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      zoomBy(Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y)), middle.x, middle.y);
    }
    view.x -= (now.x - before.x) / scale() / held.size;
    view.y -= (now.y - before.y) / scale() / held.size;
    dragged += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    held.set(event.pointerId, now);
    hideTip();
    drawSoon();
  });
  const release = (event) => held.delete(event.pointerId);
  canvas.addEventListener("pointerup", (event) => {
    const { x, y } = local(event);
    if (dragged < 6) hover(nearest(x, y, 30), x, y);
    release(event);
  });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !held.size) hover(-1);
  });
  canvas.addEventListener("dblclick", () => {
    if (hovered >= 0) openClass(LOOK.labels[hovered], true);
  });
  /* The wheel scrolls the page unless the map was chosen by a click or Ctrl is held. */
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const { x, y } = local(event);
    zoomBy(Math.exp(-event.deltaY / 300), x, y);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (move) {
      view.x += (move[0] * 60) / scale();
      view.y += (move[1] * 60) / scale();
    } else if (event.key === "+" || event.key === "=") zoomBy(1.4);
    else if (event.key === "-") zoomBy(1 / 1.4);
    else if (event.key === "0") showAll();
    else if (event.key === "Enter" && hovered >= 0) return openClass(LOOK.labels[hovered], true);
    else return;
    event.preventDefault();
    const middle = { x: canvas.clientWidth / 2, y: canvas.clientHeight / 2 };
    hover(nearest(middle.x, middle.y, 200), middle.x, middle.y);
    drawSoon();
  });
  canvas.addEventListener("blur", () => hover(-1));
  canvas.setAttribute("aria-label", `Map of ${LOOK.x.length} test images. Arrow keys move it, plus and minus zoom, Enter opens the class in the middle.`);
  byId("map-caption").textContent = LOOK.map_caption;
  onRedraw(draw);
}

if (LOOK && LOOK.x) startMap();
else if (LOOK) {
  byId("map-body").hidden = true;
  byId("map-missing").hidden = false;
  byId("map-missing").textContent = LOOK.map_caption;
}
