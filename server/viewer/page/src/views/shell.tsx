// What is around every page: the rail with where one can go, and what stands in the way.

import { useSignal } from "@preact/signals";
import type { ComponentChild, VNode } from "preact";
import { useEffect } from "preact/hooks";
import { plural, shown } from "../lib/text";
import { Dialog } from "../parts/dialog";
import { Icon, type IconName } from "../parts/icons";
import { isCommand } from "../parts/small";
import { trouble } from "../server/looking";
import { http, inbox, may, me, route, theme, useTheme, waiting } from "../state";
import { askToNotify, canNotify, fleet, notifies } from "./inbox_watch";
import { signOut } from "./sign_in";

export function TroubleBar(): VNode {
  const what = trouble.value;
  return (
    <div id="trouble" hidden={!what}>
      <Icon name="warn" />
      <p>
        <span role="alert">{shown(what?.text ?? "", 2_000)}</span>
        <span>{what?.rest ?? ""}</span>
      </p>
      {what?.act ? (
        <button type="button" onClick={what.act}>
          {what.label}
        </button>
      ) : null}
    </div>
  );
}

interface Place {
  to: string;
  page: string;
  label: string;
  icon: IconName;
  key: string;
}

function places(): Place[] {
  const found: Place[] = [
    { to: "#inbox", page: "inbox", label: "Inbox", icon: "inbox", key: "i" },
    { to: "#", page: "threads", label: "Threads", icon: "threads", key: "t" },
  ];
  if (may("delegate"))
    found.push({ to: "#new", page: "new", label: "New task", icon: "plus", key: "n" });
  return found;
}

/** Places that a phone shows under “More”. */
function furtherPlaces(): Place[] {
  const found: Place[] = [];
  if (may("approve"))
    found.push({ to: "#rules", page: "rules", label: "Rules", icon: "check", key: "" });
  if (hasFleet())
    found.push({ to: "#fleet", page: "fleet", label: "Server", icon: "server", key: "" });
  return found;
}

function hasFleet(): boolean {
  const known = fleet.value;
  return Boolean(me.value?.replicas || known?.schedules || known?.queued?.length);
}

export function Shell({ children }: { children: ComponentChild }): VNode {
  const help = useSignal(false);
  const more = useSignal(false);
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (!isCommand(event)) return;
      const place = places().find((one) => one.key === event.key);
      if (place) location.hash = place.to;
      else if (event.key === "?") help.value = true;
      else if (event.key === "/") {
        location.hash = "#";
        setTimeout(() => document.querySelector<HTMLInputElement>("#search")?.focus(), 50);
      } else if (event.key === "Escape" && more.value) more.value = false;
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", hear);
    return () => window.removeEventListener("keydown", hear);
  }, []);
  const here = route.value.page === "run" || route.value.page === "thread" ? "threads" : route.value.page;
  return (
    <div class="shell">
      <nav class="rail" aria-label="Places">
        <a class="brand" href="#">
          <svg class="mark" width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
            <path d="M4 4.5h9.5a4 4 0 0 1 4 4v9H8a4 4 0 0 1-4-4z" />
            <path d="M8.2 9.2h5.2M8.2 12.8h3" />
          </svg>
          <span>Deep Agent</span>
        </a>
        <ul>
          {places().map((one) => (
            <PlaceLink place={one} here={here} />
          ))}
        </ul>
        <button
          type="button"
          class="plain more"
          aria-expanded={more.value}
          aria-controls="further"
          onClick={() => (more.value = !more.value)}
        >
          <Icon name="more" />
          <span>More</span>
        </button>
        <div
          class="further"
          id="further"
          data-open={more.value || undefined}
          onClick={() => (more.value = false)}
        >
          <ul>
            {furtherPlaces().map((one) => (
              <PlaceLink place={one} here={here} />
            ))}
          </ul>
          <Foot help={() => (help.value = true)} />
        </div>
      </nav>
      <div class="stage">
        <TroubleBar />
        <main id="main">{children}</main>
      </div>
      {help.value ? <Help close={() => (help.value = false)} /> : null}
    </div>
  );
}

function Foot({ help }: { help: () => void }): VNode {
  return (
    <div class="foot">
      {canNotify.value && !notifies.value ? (
        <button type="button" class="plain" onClick={askToNotify}>
          <Icon name="bell" />
          <span>Notify me</span>
        </button>
      ) : null}
      <ThemeSwitch />
      {http().token ? (
        <button
          type="button"
          class="plain"
          title={me.value?.principal ? `You are ${shown(me.value.principal, 60)}` : undefined}
          onClick={signOut}
        >
          <Icon name="exit" />
          <span>Sign out</span>
        </button>
      ) : null}
      <button type="button" class="plain keys" onClick={help}>
        <Icon name="question" />
        <span>Keys</span>
      </button>
      {me.value ? (
        <p class="quiet version">
          {shown(me.value.server.version, 30)}
          {inbox.value?.runs_working ? ` · ${plural(inbox.value.runs_working, "run")} working` : ""}
        </p>
      ) : null}
    </div>
  );
}

function PlaceLink({ place, here }: { place: Place; here: string }): VNode {
  return (
    <li>
      <a href={place.to} aria-current={here === place.page ? "page" : undefined}>
        <Icon name={place.icon} />
        <span>{place.label}</span>
        {place.page === "inbox" && waiting.value ? (
          <span class="count" aria-label={`${waiting.value} waiting`}>
            {waiting.value}
          </span>
        ) : null}
      </a>
    </li>
  );
}

function ThemeSwitch(): VNode {
  const dark =
    theme.value === "dark" ||
    (theme.value === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  return (
    <button
      type="button"
      class="plain"
      onClick={() => useTheme(dark ? "light" : "dark")}
      aria-label={dark ? "Use light colours" : "Use dark colours"}
    >
      <Icon name={dark ? "sun" : "moon"} />
      <span>{dark ? "Light" : "Dark"}</span>
    </button>
  );
}

const KEYS = [
  ["i", "Inbox"],
  ["t", "Threads"],
  ["n", "New task"],
  ["/", "Search"],
  ["j k", "Next, previous"],
  ["a", "Approve"],
  ["e", "Edit, then approve"],
  ["r", "Reject with a reason"],
  ["o", "Respond instead of calling"],
  ["Esc", "Close"],
];

function Help({ close }: { close: () => void }): VNode {
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <>
            <dt>
              {key!.split(" ").map((one) => (
                <kbd>{one}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}
