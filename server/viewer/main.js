// In a browser of its own: which page is shown, by the address.

let current = new AbortController();

/** Show what the address says: a run, a thread, or all of them. */
async function showPage(server) {
  current.abort();
  current = new AbortController();
  const signal = current.signal;
  trouble.hidden = true;
  main.replaceChildren(el("p", { class: "quiet" }, "Looking…"));
  const id = decoded(location.hash.slice(1));
  if (id.startsWith("run_")) await followRun(server, id, true, signal);
  else if (id) await followThread(server, id, signal);
  else await listThreads(server, signal);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showBar(server) {
  bar.hidden = false;
  bar.replaceChildren(el("h1", {}, el("a", { href: "#" }, "Deep Agent")));
  if (server.token)
    bar.append(
      button("Sign out", () => {
        server.keepToken("");
        showBar(server);
        showPage(server);
      }),
    );
}

function startHere() {
  const server = new HttpServer("mcp");
  showBar(server);
  window.addEventListener("hashchange", () => showPage(server));
  showPage(server);
}

if (window.parent === window) startHere();
else startInHost();
