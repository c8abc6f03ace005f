import type { VNode } from "preact";
import { shown } from "../lib/text";
import type { Todo } from "../model/types";

/** A todo list as it was written, or as it is. */
export function Todos({ todos }: { todos: Todo[] }): VNode {
  if (!todos.length) return <p class="quiet">No todo list.</p>;
  return (
    <ul class="todos">
      {todos.map((one) => (
        <li data-status={shown(one.status, 20)}>
          <span class="tick" aria-hidden="true" />
          <span dir="auto">{shown(one.content, 2_000)}</span>
          <span class="unseen">{shown(one.status, 20).replace("_", " ")}</span>
        </li>
      ))}
    </ul>
  );
}
