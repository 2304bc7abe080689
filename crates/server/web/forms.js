// Forms made from a JSON schema.

import { el } from "./text.js";
import { count } from "./words.js";

/** The fields for a schema: strings, numbers, booleans, choices, lists of choices, and JSON for anything else. */
export function formOf(schema, args, id) {
  const action = schema?.properties?.userAction;
  if (action) return surfaceForm(schema, action, id);
  if (schema?.type !== "object" || !schema.properties) {
    const field = fieldOf("Answer", schema ?? {}, true, `${id}-0`, args);
    return { fields: [field.node], read: () => field.read(), buttons: [null] };
  }
  const group = groupOf(schema, id, args);
  return { fields: group.nodes, read: () => group.read(), buttons: [null] };
}

/** A form whose answer names the button: `{userAction: {name, surfaceId}, dataModel}`. */
function surfaceForm(schema, action, id) {
  const names = action.properties?.name?.enum ?? action.properties?.name?.examples ?? [null];
  const model = schema.properties.dataModel ?? {};
  const required = schema.then?.properties?.dataModel?.required ?? [];
  const shape = { type: "object", required, ...model };
  const field = model.properties ? groupOf(shape, id) : fieldOf("Data", shape, false, `${id}-0`);
  const read = (name) => {
    const userAction = { name: name ?? "submit", surfaceId: action.properties?.surfaceId?.const };
    // Whoever declines fills in nothing.
    if (name !== names[0] && schema.if) return { value: { userAction } };
    const got = field.read();
    return got.problem ? got : { value: { userAction, dataModel: got.value } };
  };
  return { fields: field.nodes ?? [field.node], read, buttons: names.length ? names : [null] };
}

function groupOf(schema, id, args) {
  const entries = Object.entries(schema.properties ?? {}).map(([name, property], at) => {
    const isRequired = (schema.required ?? []).includes(name);
    return [name, fieldOf(property.title ?? name, property, isRequired, `${id}-${at}`, args)];
  });
  const read = () => {
    const value = {};
    for (const [name, field] of entries) {
      const got = field.read();
      if (got.problem) return got;
      if (got.value !== undefined) value[name] = got.value;
    }
    return { value };
  };
  return { nodes: entries.map(([, field]) => field.node), read };
}

function fieldOf(label, schema, isRequired, id, args) {
  if ("const" in schema) return { node: null, read: () => ({ value: schema.const }) };
  const key = `field-${id}`;
  const hint = schema.description ? el("span", { class: "dim" }, schema.description) : null;
  const optional = isRequired ? null : el("span", { class: "dim" }, " (optional)");
  // The question's own choices say more than the schema's.
  const told = new Map((args?.choices ?? []).map((choice) => (typeof choice === "string" ? [choice, ""] : [choice?.label, choice?.description ?? ""])));
  const items = schema.type === "array" ? schema.items : null;
  const options = schema.enum ?? items?.enum ?? (told.size && (schema.type === "string" || items?.type === "string") ? [...told.keys()] : null);
  const missing = (at) => ({ problem: `${label}: an answer is needed.`, at });

  if (options && (items || options.length <= 8)) {
    const isFree = !schema.enum && !items?.enum;
    const boxes = options.map((option, at) => {
      const box = el("input", { type: items ? "checkbox" : "radio", name: key, value: String(at) });
      box.checked = schema.default === option || (Array.isArray(schema.default) && schema.default.includes(option));
      return box;
    });
    const own = isFree ? el("input", { type: "text", placeholder: "Something else", "aria-label": "Something else" }) : null;
    own?.addEventListener("input", () => !items && boxes.forEach((box) => (box.checked = false)));
    const node = el(
      "fieldset",
      {},
      el("legend", {}, label === "answer" || label === "answers" ? "Choose" : label, optional),
      hint,
      boxes.map((box, at) => el("label", { class: "choice" }, box, el("span", {}, String(options[at]), told.get(options[at]) && el("span", { class: "dim" }, ` ${told.get(options[at])}`)))),
      own,
    );
    const read = () => {
      const picked = options.filter((_, at) => boxes[at].checked);
      const written = own?.value.trim();
      if (items) {
        const all = written ? [...picked, written] : picked;
        return isRequired && all.length < (schema.minItems ?? 0) ? missing(boxes[0]) : { value: all };
      }
      const value = written || picked[0];
      return value === undefined && isRequired ? missing(boxes[0]) : { value };
    };
    return { node, read };
  }
  if (options) {
    const select = el("select", { id: key }, el("option", { value: "" }, ""), options.map((option, at) => el("option", { value: String(at) }, String(option))));
    if (schema.default !== undefined) select.value = String(options.indexOf(schema.default));
    const read = () => (select.value === "" ? (isRequired ? missing(select) : {}) : { value: options[Number(select.value)] });
    return { node: el("div", { class: "field" }, el("label", { for: key }, label, optional), hint, select), read };
  }
  if (schema.type === "boolean") {
    const box = el("input", { type: "checkbox", id: key });
    box.checked = schema.default === true;
    return { node: el("label", { class: "choice" }, box, el("span", {}, label, hint && " ", hint)), read: () => ({ value: box.checked }) };
  }
  if (schema.type === "number" || schema.type === "integer") {
    const input = el("input", { id: key, type: "text", inputmode: schema.type === "integer" ? "numeric" : "decimal" });
    input.value = schema.default ?? "";
    const read = () => {
      const text = input.value.trim();
      if (!text) return isRequired ? missing(input) : {};
      const value = Number(text);
      if (!Number.isFinite(value) || (schema.type === "integer" && !Number.isInteger(value))) {
        return { problem: `${label}: expected ${schema.type === "integer" ? "a whole number" : "a number"}.`, at: input };
      }
      if (value < (schema.minimum ?? -Infinity)) return { problem: `${label}: at least ${schema.minimum}.`, at: input };
      if (value > (schema.maximum ?? Infinity)) return { problem: `${label}: at most ${schema.maximum}.`, at: input };
      return { value };
    };
    return { node: el("div", { class: "field" }, el("label", { for: key }, label, optional), hint, input), read };
  }
  if (schema.type === "string") {
    const isLong = !schema.format && !(schema.maxLength <= 120);
    const isSecret = schema.format === "password" || schema.writeOnly === true;
    const input = el(isLong ? "textarea" : "input", { id: key, ...(isLong ? { rows: "2" } : { type: isSecret ? "password" : "text", autocomplete: "off" }) });
    input.value = schema.default ?? "";
    const read = () => {
      const value = input.value;
      if (!value) return isRequired ? missing(input) : {};
      if (value.length < (schema.minLength ?? 0)) return { problem: `${label}: at least ${count(schema.minLength, "character")}.`, at: input };
      if (value.length > (schema.maxLength ?? Infinity)) return { problem: `${label}: at most ${count(schema.maxLength, "character")}.`, at: input };
      return { value };
    };
    const name = label === "answer" ? "Answer" : label;
    return { node: el("div", { class: "field" }, el("label", { for: key }, name, optional), hint, input), read };
  }
  const area = el("textarea", { id: key, rows: "5", class: "mono", spellcheck: "false" });
  const example = schema.default ?? schema.examples?.[0];
  area.value = example === undefined ? "" : JSON.stringify(example, null, 2);
  const read = () => {
    if (!area.value.trim()) return isRequired ? missing(area) : {};
    try {
      return { value: JSON.parse(area.value) };
    } catch (error) {
      return { problem: `${label}: not valid JSON: ${error.message}`, at: area };
    }
  };
  return { node: el("div", { class: "field" }, el("label", { for: key }, `${label}, as JSON`, optional), hint, area), read };
}
