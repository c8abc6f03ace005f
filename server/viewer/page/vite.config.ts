// Builds one HTML file with everything in it, which the server delivers as it is.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const PAGE = process.env.STUDIO_PAGE ?? here("../studio.html");

/** Put script and style into the page, so that nothing in them ends their element. */
function onePage(): Plugin {
  return {
    name: "one-page",
    enforce: "post",
    generateBundle(_, bundle) {
      let script = "";
      let style = "";
      for (const part of Object.values(bundle))
        if (part.type === "chunk") script += part.code;
        else if (part.fileName.endsWith(".css")) style += String(part.source);
      for (const name of Object.keys(bundle)) delete bundle[name];
      const inScript = script
        .trim()
        .replaceAll("</script", "<\\/script")
        .replaceAll("<script", "<\\u0073cript")
        .replaceAll("<!--", "<\\u0021--");
      const inStyle = style.trim().replaceAll("</", "<\\/");
      const page = readFileSync(here("index.html"), "utf8")
        .replace("/*style*/", () => inStyle)
        .replace("/*script*/", () => inScript);
      writeFileSync(PAGE, page);
    },
  };
}

export default defineConfig({
  root: here("."),
  plugins: [onePage()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2024",
    cssTarget: ["chrome125", "firefox126", "safari17.5"], // `light-dark()` stays: hosts and people switch it
    emptyOutDir: false,
    write: false,
    cssCodeSplit: false,
    rolldownOptions: {
      input: here("src/main.tsx"),
      output: { format: "iife", codeSplitting: false },
    },
  },
  test: { environment: "happy-dom", include: ["test/**/*.test.{ts,tsx}"] },
});
