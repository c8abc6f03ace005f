import { describe, expect, it } from "vitest";
import { changing, entriesOf, Inexact, Json, jsonText, plainly, spread } from "../src/lib/exact";

describe("JSON as text", () => {
  const EXACT = '{"account": 12345678901234567891, "amount": 1e+22, "deep": {"a": [1, {"b": 2}]}}';

  it("keeps long numbers when it is spread over lines", () => {
    expect(spread(EXACT)).toContain('"account": 12345678901234567891');
  });

  it("takes an object apart without reading its numbers", () => {
    expect(entriesOf(EXACT)).toEqual([
      ["account", "12345678901234567891"],
      ["amount", "1e+22"],
      ["deep", '{"a":[1,{"b":2}]}'],
    ]);
    expect(entriesOf("{}")).toEqual([]);
    expect(entriesOf("[1]")).toBeUndefined();
  });

  it("is sent as it was written, and not at all where a number would change", () => {
    expect(jsonText({ args: new Json(EXACT) })).toBe(`{"args":${EXACT}}`);
    expect(changing(EXACT)).toBe("12345678901234567891");
    expect(() => plainly({ args: new Json(EXACT) })).toThrow(Inexact);
  });
});
