import { defineConfig } from "vite";

// One classic script and one style sheet, with names that stay: the page loads them, and a report,
// which has to open from a disk, has them in it. A browser loads no module script from a disk.
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  publicDir: "public",
  build: {
    outDir: "../src/handrail/web/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    sourcemap: false,
    lib: {
      entry: "src/main.tsx",
      formats: ["iife"],
      name: "handrail",
      fileName: () => "app.js",
      cssFileName: "app",
    },
  },
});
