// What all parts of the page know: the server, who looks at it, and where they are.

import { computed, signal } from "@preact/signals";
import type { Inbox, Me } from "./model/types";
import type { HttpServer, Server } from "./server/mcp";
import { stored } from "./server/mcp";

export interface Route {
  page: "threads" | "inbox" | "new" | "thread" | "run" | "fleet" | "rules";
  id: string;
}

export const server = { current: null as unknown as Server };
export const me = signal<Me | null>(null);
export const inbox = signal<Inbox | null>(null);
export const route = signal<Route>(routeOf(location.hash));
export const signedIn = signal(false);
/** Counts up when somebody else may be looking: all is asked for anew. */
export const generation = signal(0);
/** A moment that changes now and then, for "5 minutes ago". */
export const now = signal(Date.now());

const NARROW = matchMedia("(max-width: 56.25rem)");
export const narrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => (narrow.value = NARROW.matches));

export const waiting = computed(() => inbox.value?.total ?? 0);

export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function routeOf(hash: string): Route {
  const id = decoded(hash.replace(/^#\/?/, ""));
  if (!id || id === "threads") return { page: "threads", id: "" };
  if (id === "inbox" || id.startsWith("inbox/")) return { page: "inbox", id: id.slice(6) };
  if (id === "new" || id === "fleet" || id === "rules") return { page: id, id: "" };
  if (id.startsWith("run_")) return { page: "run", id };
  return { page: "thread", id };
}

export function linkTo(id: string): string {
  return `#${encodeURIComponent(id)}`;
}

export function http(): HttpServer {
  return server.current as HttpServer;
}

/** Whether the person may do what needs a scope; what the server has not said is tried. */
export function may(scope: string): boolean {
  return me.value === null || me.value.scopes.includes(scope);
}

const THEME_KEY = "deep-agent-theme";
export type Theme = "light" | "dark" | "";
export const theme = signal<Theme>(
  (stored(() => localStorage.getItem(THEME_KEY)) as Theme | null) ?? "",
);

/** Show the page in light or dark; "" for what the system says. */
export function useTheme(chosen: Theme): void {
  theme.value = chosen;
  stored(() =>
    chosen ? localStorage.setItem(THEME_KEY, chosen) : localStorage.removeItem(THEME_KEY),
  );
  document.documentElement.style.colorScheme = chosen;
}
