// A window over the page. The keyboard stays in it, and returns to where it was.

import type { ComponentChild, VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icons";

export function Dialog({
  title,
  close,
  children,
  wide = false,
}: {
  title: string;
  close: () => void;
  children: ComponentChild;
  wide?: boolean;
}): VNode {
  const place = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    place.current!.showModal();
    return () => before?.focus();
  }, []);
  return (
    <dialog
      ref={place}
      class={wide ? "wide" : undefined}
      aria-label={title}
      onClose={close}
      onClick={(event) => {
        if (event.target === event.currentTarget) close();
      }}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="icon" aria-label="Close" onClick={close}>
          <Icon name="cross" />
        </button>
      </header>
      {children}
    </dialog>
  );
}
