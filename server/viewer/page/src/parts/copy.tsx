import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { Icon } from "./icons";

/** Copies a text as it is, unseen characters too. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }): VNode {
  const done = useSignal(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = true;
      setTimeout(() => (done.value = false), 1_500);
    } catch {
      // The browser does not let this page write there.
    }
  };
  return (
    <button type="button" class="icon copy" aria-label={label} title={label} onClick={copy}>
      <Icon name={done.value ? "check" : "copy"} />
    </button>
  );
}
