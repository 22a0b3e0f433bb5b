/** The fields for an answer, made of its JSON Schema; what is no plain form is written as JSON. */

import { el, pretty } from "./dom.js";

const PLAIN = ["string", "number", "integer", "boolean"];
const isPlain = ({ type, enum: choices }) => Boolean(choices) || PLAIN.includes(type);

/** Returns {node, value()}; value throws an Error that says what is wrong with what was typed. */
export function answerFields(schema, label) {
  if (schema == null || isPlain(schema)) return plain(schema ?? { type: "string" }, label, true);
  const properties = Object.entries(schema.properties ?? {});
  if (!properties.length || !properties.every(([, property]) => isPlain(property))) {
    return jsonField(`${label} (JSON)`, { array: [], object: {} }[schema.type] ?? null);
  }
  const needed = schema.required ?? [];
  const fields = properties.map(([name, property]) => ({ name, ...plain(property, name, needed.includes(name)) }));
  const node = el("div", { role: "group", "aria-label": label, class: "fields" }, ...fields.map((field) => field.node));
  const given = () => fields.map(({ name, value }) => [name, value()]).filter(([, value]) => value !== undefined);
  return { node, value: () => Object.fromEntries(given()) };
}

export function jsonField(label, given) {
  const text = pretty(given);
  const rows = Math.min(16, text.split("\n").length + 1);
  const input = el("textarea", { rows, spellcheck: "false", class: "code" }, text);
  const value = () => {
    try {
      return JSON.parse(input.value);
    } catch (error) {
      throw new Error(`This is no valid JSON: ${error.message}`);
    }
  };
  return { node: el("label", {}, label, input), value };
}

function plain({ type, enum: given }, label, required) {
  const choices = given ?? (type === "boolean" ? [true, false] : null);
  const input = choices ? choice(given ?? ["Yes", "No"], required) : entry(type, required);
  const value = () => {
    if (input.value === "") return undefined;
    return choices ? choices[input.value] : type === "string" ? input.value : Number(input.value);
  };
  return { node: el("label", {}, required ? label : `${label} (optional)`, input), value };
}

function choice(names, required) {
  const options = names.map((name, value) => el("option", { value }, String(name)));
  return el("select", { required }, el("option", { value: "" }), ...options);
}

const entry = (type, required) =>
  type === "string"
    ? el("textarea", { rows: 2, required, dir: "auto" })
    : el("input", { type: "number", step: type === "integer" ? 1 : "any", required });
