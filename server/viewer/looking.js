// Staying up to date: looking again and again, and what to do when that fails.

const RETRY_SECONDS = [1, 2, 4, 8, 10];

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const bar = document.getElementById("bar");

// A frame that was scrolled away is not `hidden`.
let inView = true;
new IntersectionObserver((seen) => {
  inView = seen.at(-1).isIntersecting;
  lookNow();
}).observe(document.body);
document.addEventListener("visibilitychange", lookNow);

function lookNow() {
  window.dispatchEvent(new Event("look-now"));
}

/** Wait, at most until `lookNow` or `signal`; a page that nobody sees waits until somebody does. */
async function pause(seconds, signal) {
  await heard(signal, (done) => {
    const timer = setTimeout(done, seconds * 1000);
    window.addEventListener("look-now", done);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("look-now", done);
    };
  });
  await seen(signal);
}

async function seen(signal) {
  while (document.hidden || !inView)
    await heard(signal, (done) => {
      window.addEventListener("look-now", done);
      return () => window.removeEventListener("look-now", done);
    });
}

function heard(signal, listen) {
  return new Promise((resolve, reject) => {
    let stop = () => {};
    const end = (settle, value) => {
      stop();
      signal.removeEventListener("abort", aborted);
      settle(value);
    };
    const aborted = () => end(reject, signal.reason);
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener("abort", aborted);
    stop = listen(() => end(resolve));
  });
}

/** Do `look` again and again as it says, until it returns null; tell of what stands in the way. */
async function keepLooking(server, look, signal) {
  let failed = 0;
  for (;;) {
    try {
      const seconds = await look();
      failed = 0;
      trouble.hidden = true;
      if (seconds === null) return;
      await pause(seconds, signal);
    } catch (failure) {
      if (signal.aborted) return;
      await overcome(server, failure, failed++, signal).catch((reason) => {
        if (!signal.aborted) throw reason;
      });
      if (signal.aborted) return;
    }
  }
}

async function overcome(server, failure, failed, signal) {
  if (!(failure instanceof Failure)) {
    showTrouble(`This page has failed (${failure}). Reload it; runs do not depend on it.`);
    throw failure;
  }
  if (failure.kind === "token") return askForToken(server, failure, signal);
  if (failure.kind !== "refused") return retryLater(failure, failed, signal);
  if (main.firstElementChild?.matches(".quiet")) main.replaceChildren();
  return heard(signal, (done) => {
    showTrouble(failure.message, button("Look again", done));
    return () => {};
  });
}

/** `more`: what is not read aloud again and again. */
function showTrouble(text, ...more) {
  if (!trouble.hasChildNodes()) trouble.append(el("span", { role: "alert" }), el("span"));
  trouble.hidden = false;
  say(trouble.firstChild, shown(text, 2_000));
  trouble.lastChild.replaceChildren(...more);
}

async function retryLater(failure, failed, signal) {
  const seconds = failure.after || RETRY_SECONDS[Math.min(failed, RETRY_SECONDS.length - 1)];
  const advice =
    failure.kind === "gone"
      ? " Runs do not depend on this page; those of a server that stopped go on when it is started " +
        "again."
      : "";
  await heard(signal, (done) => {
    showTrouble(
      failure.message,
      ` Trying again in ${seconds} s.${advice}`,
      button("Try now", done),
    );
    const timer = setTimeout(done, seconds * 1000);
    return () => clearTimeout(timer);
  });
  await seen(signal);
}

async function askForToken(server, failure, signal) {
  trouble.hidden = true;
  server.keepToken(""); // it is of no use any more
  showBar(server);
  await heard(signal, () => {
    const input = el("input", {
      type: "password",
      autocomplete: "off",
      required: true,
      pattern: "\\s*[\\x21-\\x7e]+\\s*",
      title: "one word, such as dam_…",
    });
    const keep = (event) => {
      event.preventDefault();
      server.keepToken(input.value.trim());
      showBar(server);
      showPage(server); // anew: it may be somebody else now
    };
    main.replaceChildren(
      el(
        "form",
        { id: "token", on: { submit: keep } },
        el("h2", {}, "Sign in"),
        el("p", { role: "alert" }, failure.message),
        el("label", {}, "Token", input),
        el(
          "p",
          { class: "quiet" },
          failure.issued
            ? "An access token of this server's OAuth issuer; or, where the server takes them " +
                "too, one made with “deep-agent-mcp token create NAME”."
            : "Made with “deep-agent-mcp token create NAME”.",
          " The token is kept until this tab is closed.",
        ),
        el("button", { class: "main" }, "Sign in"),
      ),
    );
    input.focus();
    return () => {};
  });
}
