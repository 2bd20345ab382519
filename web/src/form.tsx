// The fields of a value, by the shape of its type.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Icon } from "./icons";
import { draftOf, type Draft, type Field, type Shape } from "./schema";
import { visible } from "./text";

interface Props {
  readonly shape: Shape;
  readonly draft: Draft;
  readonly onDraft: (draft: Draft) => void;
  readonly label: string;
  /** The label is said by what is around: it is only read aloud. */
  readonly bare?: boolean;
  readonly optional?: boolean;
}

export function Fields(props: Props) {
  const id = useId();
  const { shape, draft, onDraft, label, bare } = props;
  const note = shape.note ? <span class="note" id={`${id}n`}>{visible(shape.note)}</span> : null;
  const described = note ? { "aria-describedby": `${id}n` } : {};
  const name = (
    <label for={id} class={bare ? "unseen" : undefined}>
      <bdi>{visible(label)}</bdi>
      {props.optional ? <span class="soft"> (optional)</span> : null}
    </label>
  );
  switch (shape.kind) {
    case "text":
    case "json": {
      const code = shape.kind === "json";
      return (
        <div class="field">
          {name}
          {note}
          <textarea
            id={id}
            class={code ? "code" : undefined}
            rows={code ? 3 : 1}
            spellcheck={!code}
            placeholder={code ? "JSON" : undefined}
            value={String(draft ?? "")}
            onInput={(event) => onDraft(event.currentTarget.value)}
            {...described}
          />
        </div>
      );
    }
    case "number":
      return (
        <div class="field">
          {name}
          {note}
          <input
            id={id}
            type="text"
            inputMode={shape.integer ? "numeric" : "decimal"}
            autocomplete="off"
            value={String(draft ?? "")}
            onInput={(event) => onDraft(event.currentTarget.value)}
            {...described}
          />
        </div>
      );
    case "boolean":
      return (
        <Radios
          {...props}
          note={note}
          options={["yes", "no"]}
          chosen={draft === null ? -1 : draft === true ? 0 : 1}
          onChoose={(place) => onDraft(place === 0)}
        />
      );
    case "choice":
      return (
        <Radios
          {...props}
          note={note}
          options={shape.options.map(spoken)}
          chosen={draft === "" || draft === null ? -1 : Number(draft)}
          onChoose={(place) => onDraft(String(place))}
        />
      );
    case "optional":
      return <Optional {...props} shape={shape} />;
    case "list":
      return <List {...props} shape={shape} note={note} />;
    case "object":
      return (
        <fieldset class="field">
          <legend class={bare ? "unseen" : "label"}><bdi>{visible(label)}</bdi></legend>
          {note}
          <Record fields={shape.fields} draft={draft} onDraft={onDraft} nested={!bare} />
        </fieldset>
      );
  }
}

function spoken(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

interface RadiosProps extends Props {
  readonly note: ComponentChildren;
  readonly options: readonly string[];
  readonly chosen: number;
  readonly onChoose: (place: number) => void;
}

function Radios({ label, bare, note, options, chosen, onChoose, optional }: RadiosProps) {
  const id = useId();
  if (options.length > 12) {
    return (
      <div class="field">
        <label for={id} class={bare ? "unseen" : undefined}><bdi>{visible(label)}</bdi></label>
        {note}
        <select id={id} value={String(chosen)} onChange={(event) => onChoose(Number(event.currentTarget.value))}>
          <option value="-1" disabled>choose one</option>
          {options.map((one, place) => <option key={place} value={String(place)}>{visible(one)}</option>)}
        </select>
      </div>
    );
  }
  return (
    <fieldset class="field">
      <legend class={bare ? "unseen" : "label"}>
        <bdi>{visible(label)}</bdi>
        {optional ? <span class="soft"> (optional)</span> : null}
      </legend>
      {note}
      <div class="choices">
        {options.map((one, place) => (
          <label class="choice" key={place}>
            <input type="radio" name={id} checked={place === chosen} onChange={() => onChoose(place)} />
            <span class="foreign">{visible(one)}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function Optional(props: Props & { shape: Extract<Shape, { kind: "optional" }> }) {
  const { shape, draft, onDraft, label } = props;
  const given = draft !== null;
  return (
    <div class="field">
      <label>
        <input
          type="checkbox"
          checked={given}
          onChange={() => onDraft(given ? null : { it: draftOf(shape.inner) })}
        />{" "}
        give <bdi>{visible(label)}</bdi>
      </label>
      {shape.note && <span class="note">{visible(shape.note)}</span>}
      {given && (
        <Fields
          shape={shape.inner}
          label={label}
          bare
          draft={(draft as { it: Draft }).it}
          onDraft={(it) => onDraft({ it })}
        />
      )}
    </div>
  );
}

function List(
  props: Props & { shape: Extract<Shape, { kind: "list" }>; note: ComponentChildren },
) {
  const { shape, onDraft, label, bare, note } = props;
  const drafts = Array.isArray(props.draft) ? (props.draft as Draft[]) : [];
  return (
    <fieldset class="field">
      <legend class={bare ? "unseen" : "label"}><bdi>{visible(label)}</bdi></legend>
      {note}
      <ol class="many">
        {drafts.map((draft, place) => (
          <li key={place}>
            <Fields
              shape={shape.item}
              label={`${label} ${place + 1}`}
              bare
              draft={draft}
              onDraft={(one) => onDraft(drafts.map((was, i) => (i === place ? one : was)))}
            />
            <button
              type="button"
              class="button bare square"
              aria-label={`remove ${label} ${place + 1}`}
              onClick={() => onDraft(drafts.filter((_, i) => i !== place))}
            >
              <Icon of="close" />
            </button>
          </li>
        ))}
      </ol>
      <div>
        <button type="button" class="button small" onClick={() => onDraft([...drafts, draftOf(shape.item)])}>
          <Icon of="plus" /> add one
        </button>
      </div>
    </fieldset>
  );
}

interface RecordProps {
  readonly fields: readonly Field[];
  readonly draft: Draft;
  readonly onDraft: (draft: Draft) => void;
  readonly nested: boolean;
}

function Record({ fields, draft, onDraft, nested }: RecordProps) {
  const given = (draft ?? {}) as { readonly [name: string]: Draft };
  return (
    <div class={nested ? "group" : "fields"}>
      {fields.map((field) => (
        <Fields
          key={field.name}
          shape={field.shape}
          label={field.name}
          optional={!field.required}
          draft={given[field.name] ?? (field.shape.kind === "text" ? "" : null)}
          onDraft={(one) => onDraft({ ...given, [field.name]: one })}
        />
      ))}
    </div>
  );
}
