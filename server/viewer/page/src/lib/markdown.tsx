// Markdown as elements. The text is read into tokens, and each token becomes an element of a fixed
// kind: there is no HTML on the way, so a text cannot become anything else. HTML in it stays text.

import { marked, type Token, type Tokens } from "marked";
import type { ComponentChild, VNode } from "preact";
import { memo } from "./memo";
import { coloured } from "./highlight";
import { seen, shown } from "./text";
import { CopyButton } from "../parts/copy";

const MOST = 100_000;
const ENTITIES: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  "#39": "'",
  nbsp: "\u00a0",
};

/** Whether links lead somewhere: in a chat application they would not. */
export const linking = { on: true };

export const Markdown = memo(function Markdown({ text }: { text: string }): VNode {
  if (text.length > MOST) return <pre class="text">{shown(text, MOST)}</pre>;
  let tokens: Token[];
  try {
    tokens = marked.lexer(text.replace(/\r\n?/g, "\n"));
  } catch {
    return <pre class="text">{shown(text, MOST)}</pre>;
  }
  const depths = tokens.filter((one) => one.type === "heading") as Tokens.Heading[];
  const first = Math.min(...depths.map((one) => one.depth));
  return (
    <div class="markdown" dir="auto">
      {tokens.map((one) => (one.type === "heading" ? heading(one as Tokens.Heading, first) : block(one)))}
    </div>
  );
});

function plain(text: string): string {
  return seen(text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => ENTITIES[name]!));
}

/** The page has a heading above these: the highest of a text is of the second level. */
function heading(token: Tokens.Heading, first: number): VNode {
  const Tag = `h${Math.min(6, token.depth - first + 2)}` as "h2";
  return <Tag>{inlines(token.tokens)}</Tag>;
}

function block(token: Token): ComponentChild {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return heading(token as Tokens.Heading, 1);
    case "paragraph":
      return <p>{inlines(token.tokens)}</p>;
    case "blockquote":
      return <blockquote>{(token.tokens ?? []).map(block)}</blockquote>;
    case "hr":
      return <hr />;
    case "code": {
      const { lang = "", text } = token as Tokens.Code;
      return <CodeBlock text={text} language={lang.split(/\s/)[0] ?? ""} />;
    }
    case "list":
      return list(token as Tokens.List);
    case "table":
      return table(token as Tokens.Table);
    case "text":
      return token.tokens ? inlines(token.tokens) : plain((token as Tokens.Text).text);
    default:
      return <p>{seen(token.raw)}</p>;
  }
}

export function CodeBlock({ text, language }: { text: string; language: string }): VNode {
  return (
    <div class="code">
      <pre tabIndex={0} role="group" aria-label={language ? `Code, ${language}` : "Code"}>
        <code>{coloured(text, language.toLowerCase())}</code>
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

function list(token: Tokens.List): VNode {
  const items = token.items.map((item) => (
    <li class={item.task ? "task" : undefined}>{item.tokens.map(block)}</li>
  ));
  const start = typeof token.start === "number" && token.start !== 1 ? token.start : undefined;
  return token.ordered ? <ol start={start}>{items}</ol> : <ul>{items}</ul>;
}

function table(token: Tokens.Table): VNode {
  const align = (at: number) => token.align[at] ?? undefined;
  return (
    <div class="wide-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, at) => (
              <th scope="col" class={align(at)}>
                {inlines(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row) => (
            <tr>
              {row.map((cell, at) => (
                <td class={align(at)}>{inlines(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inlines(tokens: Token[] | undefined): ComponentChild[] {
  return (tokens ?? []).map(inline);
}

function inline(token: Token): ComponentChild {
  switch (token.type) {
    case "text":
      return token.tokens ? inlines(token.tokens) : plain((token as Tokens.Text).text);
    case "escape":
      return seen((token as Tokens.Escape).text);
    case "strong":
      return <strong>{inlines(token.tokens)}</strong>;
    case "em":
      return <em>{inlines(token.tokens)}</em>;
    case "del":
      return <del>{inlines(token.tokens)}</del>;
    case "codespan":
      return <code>{plain((token as Tokens.Codespan).text)}</code>;
    case "br":
      return <br />;
    case "checkbox":
      return <span aria-hidden="true">{(token as { checked?: boolean }).checked ? "☑ " : "☐ "}</span>;
    case "link":
      return link(token as Tokens.Link);
    case "image": {
      // Loading it would tell its server who reads this.
      const { href, text } = token as Tokens.Image;
      return <span class="quiet">[image: {seen(text || href)}]</span>;
    }
    default:
      return seen(token.raw);
  }
}

/** Show a link with where it leads, unless that is what it says. */
function link({ href, tokens, text }: Tokens.Link): ComponentChild {
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return inlines(tokens);
  }
  const good = ["http:", "https:", "mailto:"].includes(url.protocol);
  const same = text === href || `mailto:${text}` === href;
  const where = same ? null : <span class="quiet"> ({seen(url.host || href)})</span>;
  if (!good || !linking.on)
    return (
      <>
        {inlines(tokens)}
        {same ? null : <span class="quiet"> ({seen(href)})</span>}
      </>
    );
  return (
    <>
      <a href={url.href} target="_blank" rel="noopener noreferrer" title={seen(href)}>
        {inlines(tokens)}
      </a>
      {where}
    </>
  );
}
