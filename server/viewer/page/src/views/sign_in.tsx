// Who comes without a token where one is needed.

import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { tokenAsked } from "../server/looking";
import type { Failure } from "../server/mcp";
import { generation, http, inbox, me } from "../state";

function anew(token: string): void {
  http().keepToken(token);
  me.value = null;
  inbox.value = null;
  tokenAsked.value = null;
  generation.value += 1; // it may be somebody else now
}

export function signOut(): void {
  anew("");
}

export function SignIn({ failure }: { failure: Failure }): VNode {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    http().keepToken(""); // it is of no use any more
    input.current?.focus();
  }, []);
  return (
    <main id="main" class="sign-in">
      <form
        id="token"
        onSubmit={(event) => {
          event.preventDefault();
          anew(input.current!.value.trim());
        }}
      >
        <h1>Sign in</h1>
        <p role="alert">{failure.message}</p>
        <label>
          Token
          <input
            ref={input}
            type="password"
            autocomplete="off"
            required
            pattern="\s*[\x21-\x7e]+\s*"
            title="one word, such as dam_…"
          />
        </label>
        <button class="main">Sign in</button>
        <p class="quiet">
          {failure.issued
            ? "Use an access token of this server's OAuth issuer. Where the server accepts its own tokens " +
              "too, you can create one with “deep-agent-mcp token create NAME”."
            : "Create one with “deep-agent-mcp token create NAME”."}{" "}
          To approve calls here, it needs the scope “approve”. The page forgets the token when you close this
          tab.
        </p>
      </form>
    </main>
  );
}
