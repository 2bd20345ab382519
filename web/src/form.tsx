// The fields of a value, by the shape of its type.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Icon } from "./icons";
import { draftOf, type Draft, type Entry, type Field, type Shape } from "./schema";
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
      const format = shape.kind === "text" ? shape.format : "";
      return (
        <div class="field">
          {name}
          {note}
          {format !== "" ? (
            <input
              id={id}
              type="text"
              autocomplete="off"
              placeholder={HINTS[format] ?? format}
              value={String(draft ?? "")}
              onInput={(event) => onDraft(event.currentTarget.value)}
              {...described}
            />
          ) : (
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
          )}
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
    case "tuple":
      return <Tuple {...props} shape={shape} note={note} />;
    case "map":
      return <Mapping {...props} shape={shape} note={note} />;
    case "variants":
      return <Variants {...props} shape={shape} note={note} />;
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

const HINTS: { readonly [format: string]: string } = {
  duration: "PT1H30M", date: "2026-11-24", "date-time": "2026-11-24T09:30:00Z", decimal: "12.50",
};

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
        <span class="unseen">give </span><bdi>{visible(label)}</bdi>
        {!given && <span class="soft"> (none)</span>}
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

function Tuple(props: Props & { shape: Extract<Shape, { kind: "tuple" }>; note: ComponentChildren }) {
  const { shape, onDraft, label, bare, note } = props;
  const drafts = Array.isArray(props.draft) ? (props.draft as Draft[]) : [];
  return (
    <fieldset class="field">
      <legend class={bare ? "unseen" : "label"}><bdi>{visible(label)}</bdi></legend>
      {note}
      <ol class="many">
        {shape.items.map((item, place) => (
          <li key={place}>
            <Fields
              shape={item}
              label={`${label} ${place + 1}`}
              bare
              draft={drafts[place] ?? null}
              onDraft={(one) => onDraft(shape.items.map((_, i) => (i === place ? one : (drafts[i] ?? null))))}
            />
          </li>
        ))}
      </ol>
    </fieldset>
  );
}

function Mapping(props: Props & { shape: Extract<Shape, { kind: "map" }>; note: ComponentChildren }) {
  const { shape, onDraft, label, bare, note } = props;
  const entries = Array.isArray(props.draft) ? (props.draft as unknown as Entry[]) : [];
  const put = (next: readonly Entry[]) => onDraft(next as unknown as Draft);
  const change = (place: number, entry: Entry) => put(entries.map((was, i) => (i === place ? entry : was)));
  return (
    <fieldset class="field">
      <legend class={bare ? "unseen" : "label"}><bdi>{visible(label)}</bdi></legend>
      {note}
      <ol class="many">
        {entries.map((entry, place) => (
          <li key={place}>
            <input
              type="text"
              aria-label={`name ${place + 1} in ${label}`}
              placeholder="name"
              value={entry.key}
              onInput={(event) => change(place, { ...entry, key: event.currentTarget.value })}
            />
            <Fields shape={shape.value} label={`${label} ${entry.key || place + 1}`} bare draft={entry.it} onDraft={(it) => change(place, { ...entry, it })} />
            <button
              type="button"
              class="button bare square"
              aria-label={`remove ${label} ${entry.key || place + 1}`}
              onClick={() => put(entries.filter((_, i) => i !== place))}
            >
              <Icon of="close" />
            </button>
          </li>
        ))}
      </ol>
      <div>
        <button type="button" class="button small" onClick={() => put([...entries, { key: "", it: draftOf(shape.value) }])}>
          <Icon of="plus" /> add one
        </button>
      </div>
    </fieldset>
  );
}

/** A value that may be of several types: which one, and then its fields. */
function Variants(props: Props & { shape: Extract<Shape, { kind: "variants" }>; note: ComponentChildren }) {
  const { shape, onDraft, label } = props;
  const { at, it } = props.draft as { at: string; it: Draft };
  const chosen = shape.options[Number(at)]!;
  return (
    <div class="field">
      <Radios
        {...props}
        options={shape.options.map((one) => one.name)}
        chosen={Number(at)}
        onChoose={(place) => onDraft({ at: String(place), it: draftOf(shape.options[place]!.shape) })}
      />
      <Fields key={at} shape={chosen.shape} label={`${label} as ${chosen.name}`} bare draft={it} onDraft={(one) => onDraft({ at, it: one })} />
    </div>
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
          draft={given[field.name] ?? draftOf(field.shape)}
          onDraft={(one) => onDraft({ ...given, [field.name]: one })}
        />
      ))}
    </div>
  );
}
