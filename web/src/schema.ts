// A form for a value, made from the JSON schema of its type. Pure: shapes, drafts, values.

export type Schema = { readonly [key: string]: unknown };

export type Shape =
  | { kind: "text"; note: string; long: boolean }
  | { kind: "number"; note: string; integer: boolean; min: number | null; max: number | null }
  | { kind: "boolean"; note: string }
  | { kind: "choice"; note: string; options: readonly unknown[] }
  | { kind: "list"; note: string; item: Shape }
  | { kind: "object"; note: string; title: string; fields: readonly Field[] }
  | { kind: "optional"; note: string; inner: Shape }
  | { kind: "json"; note: string };

export interface Field {
  readonly name: string;
  readonly required: boolean;
  readonly shape: Shape;
  readonly preset: unknown;
}

/** What a person has entered so far: text for a leaf, and the same below for the rest. */
export type Draft = string | boolean | null | readonly Draft[] | { readonly [name: string]: Draft };

export type Read = { ok: true; value: unknown } | { ok: false; at: string; problem: string };

const DEEPEST = 6;

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
      return { kind: "text", note, long: known["format"] === undefined };
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
  if (!isSchema(properties)) return { kind: "json", note };
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
  if (rest.length < members.length && rest.length === 1 && rest[0]) {
    return { kind: "optional", note, inner: shapeOf(rest[0], root, depth + 1) };
  }
  if (rest.length === 1 && rest[0]) return shapeOf(rest[0], root, depth + 1);
  if (rest.length === members.length && rest.every((one) => "const" in one)) {
    return { kind: "choice", note, options: rest.map((one) => one["const"]) };
  }
  return { kind: "json", note };
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
    case "json":
      return preset === undefined ? "" : JSON.stringify(preset, null, 2);
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
