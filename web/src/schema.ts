// A form for a value, made from the JSON schema of its type. Pure: shapes, drafts, values.

export type Schema = { readonly [key: string]: unknown };

export type Shape =
  | { kind: "text"; note: string; format: string }
  | { kind: "number"; note: string; integer: boolean; min: number | null; max: number | null }
  | { kind: "boolean"; note: string }
  | { kind: "choice"; note: string; options: readonly unknown[] }
  | { kind: "list"; note: string; item: Shape }
  | { kind: "tuple"; note: string; items: readonly Shape[] }
  | { kind: "map"; note: string; value: Shape }
  | { kind: "variants"; note: string; options: readonly Variant[] }
  | { kind: "object"; note: string; title: string; fields: readonly Field[] }
  | { kind: "optional"; note: string; inner: Shape }
  | { kind: "json"; note: string };

export interface Field {
  readonly name: string;
  readonly required: boolean;
  readonly shape: Shape;
  readonly preset: unknown;
}

export interface Variant {
  readonly name: string;
  readonly shape: Shape;
}

/** What a person has entered so far: text for a leaf, and the same below for the rest. */
export type Draft = string | boolean | null | readonly Draft[] | { readonly [name: string]: Draft };

export type Read = { ok: true; value: unknown } | { ok: false; at: string; problem: string };

const DEEPEST = 6;

export const text = (note = ""): Shape => ({ kind: "text", note, format: "" });
export const record = (
  fields: { [name: string]: Shape },
  required: readonly string[] = [],
  presets: { readonly [name: string]: unknown } = {},
): Shape => ({
  kind: "object",
  note: "",
  title: "",
  fields: Object.entries(fields).map(([name, shape]) => ({
    name,
    shape,
    required: required.includes(name),
    preset: presets[name],
  })),
});

/** The shape of a form for this schema; what it does not know is entered as JSON. */
export function shapeOf(schema: Schema, root: Schema = schema, depth = 0): Shape {
  const known = resolved(schema, root);
  const note = typeof known["description"] === "string" ? known["description"] : "";
  if (depth > DEEPEST) return { kind: "json", note };
  if (Array.isArray(known["enum"])) return { kind: "choice", note, options: known["enum"] };
  if ("const" in known) return { kind: "choice", note, options: [known["const"]] };
  const union = known["anyOf"] ?? known["oneOf"];
  if (Array.isArray(union)) return unionOf(union as Schema[], note, root, depth);
  const type = known["type"];
  if (Array.isArray(type)) {
    const each = type.map((one) => ({ ...known, type: one }) as Schema);
    return unionOf(each, note, root, depth);
  }
  switch (type) {
    case "string":
      return { kind: "text", note, format: typeof known["format"] === "string" ? known["format"] : "" };
    case "integer":
    case "number":
      return {
        kind: "number",
        note,
        integer: type === "integer",
        min: asNumber(known["minimum"]),
        max: asNumber(known["maximum"]),
      };
    case "boolean":
      return { kind: "boolean", note };
    case "array": {
      const items = known["items"];
      const each = known["prefixItems"];
      if (Array.isArray(each) && each.length > 0) {
        return { kind: "tuple", note, items: (each as Schema[]).map((one) => shapeOf(one, root, depth + 1)) };
      }
      if (!isSchema(items)) return { kind: "json", note };
      return { kind: "list", note, item: shapeOf(items, root, depth + 1) };
    }
    case "object":
      return objectOf(known, note, root, depth);
    default:
      return { kind: "json", note };
  }
}

function objectOf(known: Schema, note: string, root: Schema, depth: number): Shape {
  const properties = known["properties"];
  const values = known["additionalProperties"];
  if (!isSchema(properties)) {
    if (!isSchema(values) || Object.keys(values).length === 0) return { kind: "json", note };
    return { kind: "map", note, value: shapeOf(values, root, depth + 1) };
  }
  const required = new Set(Array.isArray(known["required"]) ? (known["required"] as string[]) : []);
  const fields = Object.entries(properties).map(([name, below]) => {
    const schema = isSchema(below) ? below : {};
    return {
      name,
      required: required.has(name),
      shape: shapeOf(schema, root, depth + 1),
      preset: schema["default"],
    };
  });
  const title = typeof known["title"] === "string" ? known["title"] : "";
  return { kind: "object", note, title, fields };
}

function unionOf(union: readonly Schema[], note: string, root: Schema, depth: number): Shape {
  const members = union.map((one) => resolved(one, root));
  const rest = members.filter((one) => one["type"] !== "null");
  if (rest.length === 0) return { kind: "json", note };
  if (rest.length < members.length) return { kind: "optional", note, inner: oneOf(rest, "", root, depth + 1) };
  return oneOf(rest, note, root, depth);
}

function oneOf(schemas: readonly Schema[], note: string, root: Schema, depth: number): Shape {
  if (schemas.length === 1) return shapeOf(schemas[0]!, root, depth);
  if (schemas.every((one) => "const" in one)) return { kind: "choice", note, options: schemas.map((one) => one["const"]) };
  const options = schemas.map((one) => ({ name: nameOf(one), shape: shapeOf(one, root, depth + 1) }));
  return { kind: "variants", note, options };
}

const NAMES: { readonly [type: string]: string } = {
  string: "text", integer: "whole number", number: "number", boolean: "yes or no", array: "list", object: "mapping",
};

function nameOf(schema: Schema): string {
  const { title, type } = schema;
  return typeof title === "string" ? title : typeof type === "string" ? (NAMES[type] ?? type) : "value";
}

function resolved(schema: Schema, root: Schema): Schema {
  let found = schema;
  for (let i = 0; i < 8; i++) {
    const reference = found["$ref"];
    if (typeof reference !== "string" || !reference.startsWith("#/")) return found;
    let target: unknown = root;
    for (const part of reference.slice(2).split("/")) {
      const key = part.replace(/~1/g, "/").replace(/~0/g, "~");
      target = isSchema(target) ? target[key] : undefined;
    }
    if (!isSchema(target)) return {};
    const { $ref: _, ...rest } = found;
    found = { ...target, ...rest };
  }
  return found;
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function asNumber(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** The draft that a form begins with: that of a preset value, or an empty one. */
export function draftOf(shape: Shape, preset?: unknown): Draft {
  switch (shape.kind) {
    case "text":
      return typeof preset === "string" ? preset : "";
    case "number":
      return typeof preset === "number" ? String(preset) : "";
    case "boolean":
      return typeof preset === "boolean" ? preset : null;
    case "choice": {
      if (shape.options.length === 1) return "0";
      const place = preset === undefined ? -1 : shape.options.findIndex((one) => same(one, preset));
      return place < 0 ? "" : String(place);
    }
    case "list":
      return Array.isArray(preset) ? preset.map((one) => draftOf(shape.item, one)) : [];
    case "object": {
      const given = isSchema(preset) ? preset : {};
      return Object.fromEntries(
        shape.fields.map((one) => [one.name, draftOf(one.shape, given[one.name] ?? one.preset)]),
      );
    }
    case "optional":
      return preset === undefined || preset === null ? null : { it: draftOf(shape.inner, preset) };
    case "tuple": {
      const given = Array.isArray(preset) ? (preset as unknown[]) : [];
      return shape.items.map((one, place) => draftOf(one, given[place]));
    }
    case "map":
      return Object.entries(isSchema(preset) ? preset : {}).map(([key, value]) => ({ key, it: draftOf(shape.value, value) }));
    case "variants": {
      const place = Math.max(0, preset === undefined ? 0 : shape.options.findIndex((one) => suits(one.shape, preset)));
      return { at: String(place), it: draftOf(shape.options[place]!.shape, preset) };
    }
    case "json":
      return preset === undefined ? "" : JSON.stringify(preset, null, 2);
  }
}

function suits(shape: Shape, value: unknown): boolean {
  switch (shape.kind) {
    case "text":
      return typeof value === "string";
    case "number":
      return typeof value === "number";
    case "boolean":
      return typeof value === "boolean";
    case "choice":
      return shape.options.some((one) => same(one, value));
    case "list":
    case "tuple":
      return Array.isArray(value);
    case "object":
      return isSchema(value) && shape.fields.every((one) => !one.required || one.name in value);
    case "map":
      return isSchema(value);
    default:
      return true;
  }
}

/** The value that a draft says, or what is wrong with it, and where. */
export function valueOf(shape: Shape, draft: Draft, at = ""): Read {
  const wrong = (problem: string): Read => ({ ok: false, at, problem });
  switch (shape.kind) {
    case "text":
      return { ok: true, value: typeof draft === "string" ? draft : "" };
    case "number": {
      const text = typeof draft === "string" ? draft.trim() : "";
      const value = Number(text);
      if (text === "" || !Number.isFinite(value)) return wrong("a number is needed");
      if (shape.integer && !Number.isInteger(value)) return wrong("a whole number is needed");
      if (shape.min !== null && value < shape.min) return wrong(`at least ${shape.min} is needed`);
      if (shape.max !== null && value > shape.max) return wrong(`at most ${shape.max} is allowed`);
      return { ok: true, value };
    }
    case "boolean":
      return typeof draft === "boolean" ? { ok: true, value: draft } : wrong("choose yes or no");
    case "choice": {
      const place = draft === "" ? -1 : Number(draft);
      if (!(place in shape.options)) return wrong("choose one");
      return { ok: true, value: shape.options[place] };
    }
    case "list":
      return listOf(shape.item, Array.isArray(draft) ? (draft as Draft[]) : [], at);
    case "object":
      return recordOf(shape.fields, draft as { [name: string]: Draft }, at);
    case "tuple":
      return tupleOf(shape.items, Array.isArray(draft) ? (draft as Draft[]) : [], at);
    case "map":
      return mapOf(shape.value, Array.isArray(draft) ? (draft as Entry[]) : [], at);
    case "variants": {
      const chosen = draft as { at: string; it: Draft };
      return valueOf(shape.options[Number(chosen.at)]!.shape, chosen.it, at);
    }
    case "optional":
      if (draft === null) return { ok: true, value: null };
      return valueOf(shape.inner, (draft as { it: Draft }).it, at);
    case "json":
      try {
        return { ok: true, value: JSON.parse(String(draft)) as unknown };
      } catch (error) {
        return wrong(`this is no JSON: ${(error as Error).message}`);
      }
  }
}

function listOf(item: Shape, drafts: readonly Draft[], at: string): Read {
  const values: unknown[] = [];
  for (const [place, draft] of drafts.entries()) {
    const read = valueOf(item, draft, `${at}[${place}]`);
    if (!read.ok) return read;
    values.push(read.value);
  }
  return { ok: true, value: values };
}

function tupleOf(items: readonly Shape[], drafts: readonly Draft[], at: string): Read {
  const values: unknown[] = [];
  for (const [place, item] of items.entries()) {
    const read = valueOf(item, drafts[place] ?? null, `${at}[${place}]`);
    if (!read.ok) return read;
    values.push(read.value);
  }
  return { ok: true, value: values };
}

/** One entry of a mapping, as it is entered. */
export interface Entry {
  readonly key: string;
  readonly it: Draft;
}

function mapOf(shape: Shape, entries: readonly Entry[], at: string): Read {
  const value: { [name: string]: unknown } = {};
  for (const { key, it } of entries) {
    if (Object.hasOwn(value, key)) return { ok: false, at, problem: `the name ${JSON.stringify(key)} is there twice` };
    const read = valueOf(shape, it, at ? `${at}.${key}` : key);
    if (!read.ok) return read;
    Object.defineProperty(value, key, { value: read.value, enumerable: true, configurable: true, writable: true });
  }
  return { ok: true, value };
}

function recordOf(
  fields: readonly Field[],
  draft: { readonly [name: string]: Draft },
  at: string,
): Read {
  const value: { [name: string]: unknown } = {};
  for (const field of fields) {
    const given = draft[field.name] ?? null;
    const path = at ? `${at}.${field.name}` : field.name;
    // What nobody touched is left to the type's own default.
    if (!field.required && same(given, draftOf(field.shape, field.preset))) continue;
    const read = valueOf(field.shape, given, path);
    if (!read.ok) return read;
    value[field.name] = read.value;
  }
  return { ok: true, value };
}

function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
