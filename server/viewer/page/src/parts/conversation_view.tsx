// A conversation that is followed while one is at its end, and else says how much has come.

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChild, VNode } from "preact";
import { useRef } from "preact/hooks";
import { plural } from "../lib/text";
import type { Conversation } from "../model/conversation";
import type { Row, Shown } from "../model/rows";
import { Icon } from "./icons";
import { heightOf, type RowActions, RowView } from "./rows";
import { type Control, VirtualList } from "./virtual";

const keyOf = (one: Shown) => one.key;
const estimate = (one: Shown) => heightOf(one.row);

export function ConversationView({
  conversation,
  version,
  actions = {},
  only,
  onStart,
  before,
  after,
}: {
  conversation: Conversation;
  /** Changes with everything that comes. */
  version: Signal<number>;
  actions?: Pick<RowActions, "whole" | "request">;
  /** The agent whose steps alone are shown. */
  only: Signal<string | null>;
  onStart?: () => void;
  before?: ComponentChild;
  after?: ComponentChild;
}): VNode {
  const folds = useSignal<Map<string, boolean>>(new Map());
  const atEnd = useSignal(true);
  const seen = useRef(0);
  const list = useRef<Control | null>(null);
  void version.value;
  const isFolded = (row: Row) =>
    folds.value.get(row.key) ?? (row.state === "success" && row.agents.length > 0 && isLong(row));
  const rows = conversation.flat(isFolded, only.value);
  const size = conversation.appended;
  if (atEnd.value) seen.current = size;
  const fresh = size - seen.current;
  const all: RowActions = {
    ...actions,
    isFolded,
    fold: (row) => (folds.value = new Map(folds.value).set(row.key, !isFolded(row))),
  };
  return (
    <div class="conversation">
      {only.value !== null ? (
        <p class="chip">
          Only what {conversation.agents.get(only.value)?.name ?? "one agent"} did
          <button type="button" class="icon" aria-label="Show all" onClick={() => (only.value = null)}>
            <Icon name="cross" />
          </button>
        </p>
      ) : null}
      <VirtualList
        control={list}
        id="steps"
        label="Conversation"
        rows={rows}
        keyOf={keyOf}
        estimate={estimate}
        onEnd={(end) => {
          if (end !== atEnd.value) atEnd.value = end;
        }}
        onStart={onStart}
        before={before}
        after={after}
        render={({ row, depth }) => (
          <RowView
            row={row}
            version={row.version}
            depth={depth}
            folded={row.agents.length > 0 && isFolded(row)}
            actions={stable(all)}
          />
        )}
      />
      {!atEnd.value ? (
        <button type="button" class="to-end" onClick={() => list.current?.toEnd()}>
          <Icon name="down" />
          {fresh > 0 ? plural(fresh, "new step") : "Jump to the end"}
        </button>
      ) : null}
      <p class="unseen" role="status" aria-live="polite">
        {!atEnd.value && fresh > 0 ? plural(fresh, "new step") : ""}
      </p>
    </div>
  );
}

/** Finished tasks of many steps are folded at first: their report says what came of them. */
function isLong(row: Row): boolean {
  return row.agents.reduce((sum, one) => sum + one.rows.length, 0) > 12;
}

const kept: { given?: RowActions; stable?: RowActions } = {};

/** Return actions that stay the same object, so that rows are not drawn anew for them. */
function stable(given: RowActions): RowActions {
  kept.given = given;
  kept.stable ??= {
    fold: (row) => kept.given!.fold(row),
    isFolded: (row) => kept.given!.isFolded(row),
    whole: (row) => kept.given!.whole?.(row),
    request: (row) => kept.given!.request?.(row),
  };
  return kept.stable;
}
