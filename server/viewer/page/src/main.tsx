// Begins in a browser of its own, or in a frame of a chat application.

import "./style.css";
import { effect } from "@preact/signals";
import { render, type VNode } from "preact";
import { useEffect } from "preact/hooks";
import { tokenAsked, trouble, watchSight } from "./server/looking";
import { HttpServer } from "./server/mcp";
import { generation, route, routeOf, server, theme, useTheme } from "./state";
import { Fleet } from "./views/fleet";
import { startInHost } from "./views/hosted";
import { Inbox } from "./views/inbox";
import { watchInbox } from "./views/inbox_watch";
import { NewTask } from "./views/new_task";
import { Rules } from "./views/rules";
import { Shell } from "./views/shell";
import { SignIn } from "./views/sign_in";
import { ThreadPage } from "./views/thread";
import { Threads } from "./views/threads";

function Page(): VNode {
  const { page, id } = route.value;
  switch (page) {
    case "inbox":
      return <Inbox key={id} />;
    case "new":
      return <NewTask />;
    case "rules":
      return <Rules />;
    case "fleet":
      return <Fleet />;
    case "run":
    case "thread":
      return <ThreadPage key={id} id={id} />;
    default:
      return <Threads />;
  }
}

function App(): VNode {
  const asked = tokenAsked.value;
  useEffect(() => {
    const hear = () => {
      trouble.value = null;
      if (tokenAsked.peek()) generation.value += 1; // it is asked for again, if it still is needed
      tokenAsked.value = null;
      route.value = routeOf(location.hash);
    };
    window.addEventListener("hashchange", hear);
    return () => window.removeEventListener("hashchange", hear);
  }, []);
  if (asked) return <SignIn failure={asked} key={asked.message} />;
  return (
    <Shell key={generation.value}>
      <Page key={generation.value} />
    </Shell>
  );
}

function startHere(place: HTMLElement): void {
  server.current = new HttpServer("mcp");
  useTheme(theme.value);
  render(<App />, place);
  // Another person may look from now on: whoever looked before stops.
  effect(() => {
    void generation.value;
    const end = new AbortController();
    void watchInbox(end.signal);
    return () => end.abort();
  });
}

watchSight();
const place = document.getElementById("app")!;
if (window.parent === window) startHere(place);
else void startInHost(place);
