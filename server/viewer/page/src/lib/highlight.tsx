// Colours for code: a tree of spans, never HTML.

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import type { ComponentChild } from "preact";
import { seen } from "./text";

const low = createLowlight({
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  dockerfile,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  markdown,
  php,
  python,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
});
low.registerAlias({ ini: ["toml", "cfg", "conf"], bash: ["sh", "zsh", "shell", "console"] });

const BY_ENDING: Record<string, string> = {
  h: "c",
  hpp: "cpp",
  htm: "xml",
  mjs: "javascript",
  cjs: "javascript",
  pyi: "python",
  lock: "ini",
  svg: "xml",
};

const MOST = 60_000; // more of it would hold the page up

/** Return the language of a file, or nothing. */
export function languageOf(path: string): string {
  const name = path.split("/").at(-1)?.toLowerCase() ?? "";
  if (name === "dockerfile" || name.startsWith("dockerfile.")) return "dockerfile";
  const ending = name.includes(".") ? (name.split(".").at(-1) ?? "") : "";
  const language = BY_ENDING[ending] ?? ending;
  return low.registered(language) ? language : "";
}

interface Leaf {
  type: "text";
  value: string;
}
interface Branch {
  type: "element" | "root";
  properties?: { className?: string[] };
  children: (Leaf | Branch)[];
}
interface Piece {
  text: string;
  name: string;
}

function treeOf(code: string, language: string): Branch | null {
  if (!language || code.length > MOST || !low.registered(language)) return null;
  return low.highlight(language, code) as unknown as Branch;
}

/** Return code in colours; unknown languages as plain text. */
export function coloured(code: string, language: string): ComponentChild {
  const tree = treeOf(code, language);
  return tree ? tree.children.map(nodeOf) : seen(code);
}

function nodeOf(node: Leaf | Branch): ComponentChild {
  if (node.type === "text") return seen(node.value);
  return <span class={node.properties?.className?.join(" ")}>{node.children.map(nodeOf)}</span>;
}

/** Return each line of code in colours; lines are told apart by `\n` alone. */
export function colouredLines(code: string, language: string): ComponentChild[] {
  const tree = treeOf(code, language);
  if (!tree) return code.split("\n").map((line) => seen(line));
  const lines: Piece[][] = [[]];
  const walk = (node: Leaf | Branch, name: string): void => {
    if (node.type !== "text") {
      const own = node.properties?.className?.join(" ") ?? name;
      for (const child of node.children) walk(child, own);
      return;
    }
    node.value.split("\n").forEach((text, at) => {
      if (at > 0) lines.push([]);
      if (text) lines.at(-1)!.push({ text, name });
    });
  };
  walk(tree, "");
  return lines.map((pieces) =>
    pieces.map(({ text, name }) => (name ? <span class={name}>{seen(text)}</span> : seen(text))),
  );
}
