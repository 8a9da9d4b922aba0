// Small things that every view uses. Names are only ever set as text: what a file or a class is called stays harmless.

export const $ = (selector, within = document) => within.querySelector(selector);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child != null));
  return element;
}

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// The JSON of an answer; an error carries the server's own sentence.
export async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is pads serve still running?");
  }
  if (answer.status === 304) return null;
  const value = await answer.json().catch(() => ({}));
  if (answer.status === 410) startAgain();
  if (!answer.ok) throw new Error(value.error || `The server answered with ${answer.status}.`);
  return value;
}

// The index was rebuilt: the rows on this page, and in its address, are of the one before.
export function startAgain() {
  history.replaceState(null, "", location.pathname);
  location.reload();
}

export function showError(sentence) {
  const box = $("#error");
  $("p", box).textContent = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  box.hidden = false;
}

export function hideError() {
  const wasShown = !$("#error").hidden;
  $("#error").hidden = true;
  return wasShown;
}

// -- the address of the page: #search?row=3&label=mugs -------------------------------------------------------------------

export function place() {
  const [view, query = ""] = location.hash.slice(1).split("?");
  return { view: view || "search", asked: new URLSearchParams(query) };
}

export function addressOf(view, asked = {}) {
  const given = Object.entries(asked).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

export const thumbnail = (index, row) => `/api/thumbnail/${row}?v=${index.version}`;
export const fullImage = (index, row) => `/api/image/${row}?v=${index.version}`;

// An image that says so when there is nothing to see.
export function picture(address) {
  const image = make("img", { alt: "", loading: "lazy", decoding: "async", draggable: "false" });
  image.addEventListener("error", () => image.parentElement?.classList.add("broken"), { once: true });
  image.src = address;
  return image;
}
