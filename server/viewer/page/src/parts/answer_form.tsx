// Fields for any answer: plain ones where the schema has them, else text or JSON. They are no
// `form`: in a host's sandbox those send nothing.

import type { VNode } from "preact";
import { useRef } from "preact/hooks";
import { Json, parsed } from "../lib/exact";
import { shown } from "../lib/text";
import type { Schema } from "../model/types";
import { Act } from "./small";

type Field = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

const PLAIN = ["string", "number", "integer", "boolean"];

function isPlain(schema: Schema | undefined): boolean {
  return typeof schema?.type === "string" && PLAIN.includes(schema.type);
}

export function AnswerForm({
  schema,
  send,
}: {
  schema: Schema;
  send: (value: unknown) => Promise<void>;
}): VNode {
  const place = useRef<HTMLDivElement>(null);
  const properties = schema.type === "object" ? Object.entries(schema.properties ?? {}) : [];
  const plain = properties.length > 0 && properties.every(([, one]) => isPlain(one));
  const fields = (plain ? properties : [["", schema] as [string, Schema]]).map(([name, one]) => ({
    name,
    schema: one,
    required: !plain || (schema.required ?? []).includes(name),
    title: shown(one.title ?? (name || "Your answer"), 200),
    hint: one.description ? ` ${shown(one.description, 500)}` : "",
  }));

  const act = async () => {
    const inputs = [...(place.current?.querySelectorAll<Field>("input, textarea, select") ?? [])];
    if (!inputs.every((one) => one.reportValidity())) return;
    const values: [string, unknown][] = [];
    for (const [at, field] of fields.entries()) {
      const input = inputs[at]!;
      if (!field.required && input.value === "") continue;
      const value = valueIn(input, field.schema.type);
      if (value === undefined) {
        input.reportValidity();
        return;
      }
      values.push([field.name, value]);
    }
    await send(plain ? Object.fromEntries(values) : values[0]![1]);
  };
  const enter = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.repeat && (event.target as Element).matches("input"))
      void act();
  };
  return (
    <div ref={place} onKeyDown={enter}>
      {fields.map((one) => (
        <label class={one.schema.type === "boolean" ? "check" : undefined}>
          <span>
            {one.title}
            <span class="quiet">{one.hint}</span>
          </span>
          <Input schema={one.schema} required={one.required && one.schema.type !== "boolean"} />
        </label>
      ))}
      <div class="row">
        <Act label="Answer" style="main" act={act} />
      </div>
    </div>
  );
}

function Input({ schema, required }: { schema: Schema; required: boolean }): VNode {
  if (schema.type === "string" && Array.isArray(schema.enum))
    return (
      <select required={required}>
        {schema.enum.map((one) => (
          <option value={String(one)}>{shown(one, 200)}</option>
        ))}
      </select>
    );
  if (schema.type === "boolean") return <input type="checkbox" />;
  if (schema.type === "number" || schema.type === "integer")
    return (
      <input type="number" required={required} step={schema.type === "integer" ? "1" : "any"} />
    );
  return (
    <textarea
      required={required}
      rows={2}
      onInput={(event) => event.currentTarget.setCustomValidity("")}
    />
  );
}

function valueIn(input: Field, type: string | undefined): unknown {
  if (type === "string") return input.value;
  if (type === "boolean") return (input as HTMLInputElement).checked;
  if (type === "number" || type === "integer")
    return parsed(input.value) === undefined ? Number(input.value) : new Json(input.value);
  const good = parsed(input.value) !== undefined;
  input.setCustomValidity(good ? "" : "This is not JSON.");
  return good ? new Json(input.value) : undefined;
}
