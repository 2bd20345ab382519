import { describe, expect, test } from "vitest";
import { draftOf, shapeOf, valueOf, type Draft } from "../src/schema";

const plan = {
  $ref: "#/$defs/Plan",
  $defs: {
    Plan: {
      title: "Plan",
      type: "object",
      required: ["version", "channels"],
      properties: {
        version: { type: "string", description: "as in the tag" },
        channels: { type: "array", items: { enum: ["stable", "beta"] } },
        notify: { type: "boolean", default: true },
        waves: { type: "integer", default: 3 },
        comment: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
        extra: { type: "object" },
      },
    },
  },
};

describe("a form from a schema", () => {
  const shape = shapeOf(plan);

  test("what nobody touched is left to the type's own default", () => {
    const draft = { ...(draftOf(shape) as object), version: "1.2", channels: ["1"] } as Draft;
    expect(valueOf(shape, draft)).toEqual({ ok: true, value: { version: "1.2", channels: ["beta"] } });
  });

  test("what was entered is converted by its type", () => {
    const draft = {
      version: "1", channels: [], notify: false, waves: "5", comment: { it: "now" }, extra: '{"a": [1]}',
    };
    expect(valueOf(shape, draft)).toEqual({
      ok: true,
      value: { version: "1", channels: [], notify: false, waves: 5, comment: "now", extra: { a: [1] } },
    });
  });

  test.each([
    [{ waves: "many" }, "waves"],
    [{ waves: "1.5" }, "waves"],
    [{ channels: ["0", ""] }, "channels[1]"],
    [{ extra: "{" }, "extra"],
  ])("what does not fit is told with its place: %j", (wrong, at) => {
    const read = valueOf(shape, { ...(draftOf(shape) as object), ...wrong } as Draft);
    expect(read).toMatchObject({ ok: false, at });
  });

  test("a preset fills the form", () => {
    const draft = draftOf(shape, { version: "2", channels: ["beta"], comment: "soon" });
    expect(draft).toMatchObject({ version: "2", channels: ["1"], comment: { it: "soon" } });
  });

  test.each([
    [{ type: "object", additionalProperties: { type: "integer" } }, { a: 1, __proto__x: 2 }],
    [{ type: "array", prefixItems: [{ type: "string" }, { type: "integer" }] }, ["a", 3]],
    [{ anyOf: [{ type: "integer" }, { type: "string" }] }, "7"],
    [{ anyOf: [{ type: "integer" }, { type: "string" }] }, 7],
    [{ anyOf: [{ title: "A", type: "object", required: ["a"], properties: { a: { type: "integer" } } },
      { title: "B", type: "object", required: ["b"], properties: { b: { type: "string" } } }, { type: "null" }] }, { b: "x" }],
  ])("of %j the value %j goes into a form and comes out again", (schema, value) => {
    const found = shapeOf(schema);
    expect(valueOf(found, draftOf(found, value))).toEqual({ ok: true, value });
  });

  test("a name that is twice in a mapping, and a number out of its bounds, are told", () => {
    const map = shapeOf({ type: "object", additionalProperties: { type: "integer", maximum: 9 } });
    expect(valueOf(map, [{ key: "a", it: "1" }, { key: "a", it: "2" }])).toMatchObject({ ok: false });
    expect(valueOf(map, [{ key: "a", it: "10" }])).toMatchObject({ ok: false, at: "a" });
  });

  test("a schema that names itself without end becomes JSON in the end", () => {
    const node = { $ref: "#/$defs/N", $defs: { N: { type: "object", properties: { next: { $ref: "#/$defs/N" } } } } };
    expect(JSON.stringify(shapeOf(node))).toContain('"kind":"json"');
  });

  test.each([
    [{ type: ["integer", "null"] }, "optional"],
    [{ anyOf: [{ type: "string" }, { type: "integer" }] }, "variants"],
    [{ anyOf: [{ type: "string" }, { type: "integer" }, { type: "null" }] }, "optional"],
    [{ type: "object", additionalProperties: { type: "integer" } }, "map"],
    [{ type: "array", prefixItems: [{ type: "string" }], items: false }, "tuple"],
    [{ type: "array" }, "json"],
    [{ anyOf: [{ const: "a" }, { const: "b" }] }, "choice"],
    [{}, "json"],
    [{ $ref: "#/nowhere" }, "json"],
  ])("%j is entered as %s", (schema, kind) => {
    expect(shapeOf(schema).kind).toBe(kind);
  });
});
