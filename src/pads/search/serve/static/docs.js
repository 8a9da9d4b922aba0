// The API, from the server's own openapi.json; nothing is loaded from elsewhere.

import { $, ask, hideError, make, showError } from "./dom.js";

const named = (schema, schemas) => (schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema);

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  return schema.type ?? "";
}

function listed(entries) {
  const list = make("dl");
  for (const [name, text] of entries) list.append(make("dt", {}, name), make("dd", {}, text));
  return list;
}

function parametersOf(operation) {
  return (operation.parameters ?? [])
    .filter((each) => each.in !== "header")
    .map((each) => {
      const preset = each.schema.default === undefined || each.schema.default === null ? "" : `, default ${each.schema.default}`;
      const about = each.description ? `: ${each.description}` : "";
      return [each.name, `${typeOf(each.schema)}${each.required ? ", required" : ""}${preset}${about}`];
    });
}

function answerOf(operation, schemas) {
  const schema = operation.responses["200"]?.content?.["application/json"]?.schema;
  const shape = named(schema, schemas);
  return properties(shape);
}

function properties(shape) {
  return Object.entries(shape?.properties ?? {}).map(([name, property]) => [name, `${typeOf(property)}${property.description ? `: ${property.description}` : ""}`]);
}

function example(verb, path, operation) {
  const required = (operation.parameters ?? []).filter((each) => each.in === "query" && each.required);
  const query = required.map((each) => `${each.name}=0`).join("&");
  const address = `${location.origin}${path.replace(/\{\w+\}/g, "0")}${query ? `?${query}` : ""}`;
  const isImage = Boolean(operation.responses["200"]?.content?.["image/*"]);
  return `curl ${operation.requestBody ? "-F image=@photo.jpg " : ""}${isImage ? "-o image " : ""}'${address}'`;
}

function section(verb, path, operation, schemas) {
  const box = make("section", { class: "panel" });
  box.append(make("h2", {}, make("span", { class: "verb" }, verb.toUpperCase()), make("code", {}, path)));
  box.append(make("p", {}, operation.description ?? operation.summary));
  const parameters = parametersOf(operation);
  if (parameters.length) box.append(make("p", { class: "small" }, "Parameters"), listed(parameters));
  const answer = answerOf(operation, schemas);
  if (answer.length) box.append(make("p", { class: "small" }, "Answer"), listed(answer));
  box.append(make("pre", {}, example(verb, path, operation)));
  return box;
}

// The parts that answers are made of.
function shapes(schemas) {
  const box = make("section", { class: "panel" }, make("h2", {}, "Shapes"));
  for (const name of ["ImageRow", "Neighbour", "Label", "Threshold"]) {
    box.append(make("p", { class: "small" }, name), listed(properties(schemas[name])));
  }
  return box;
}

async function start() {
  const api = await ask("/openapi.json");
  const schemas = api.components.schemas;
  $("#docs").append(make("p", { class: "small" }, `Every error is {"error": "a sentence"} with a fitting status.`));
  for (const [path, verbs] of Object.entries(api.paths)) {
    for (const [verb, operation] of Object.entries(verbs)) $("#docs").append(section(verb, path, operation, schemas));
  }
  $("#docs").append(shapes(schemas));
}

$("#error button").addEventListener("click", hideError);
start().catch((error) => showError(error.message));
