// Bundles the console into the Python package, with the licences of the libraries that end up in it.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** The folder of the package that a file belongs to. */
function packageOf(file: string): string | null {
  const match = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file);
  return match?.[1] ?? null;
}

/** Writes LICENSES.txt: every package that is bundled, with its licence text. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle() {
      // Fonts are assets, which are not among the modules of a bundle.
      const folders = new Set<string>([join(import.meta.dirname, "node_modules/@fontsource-variable/inter")]);
      for (const file of this.getModuleIds()) {
        const folder = packageOf(file);
        if (folder) folders.add(folder);
      }
      const texts = [...folders].sort().map((folder) => {
        const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const name = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
        if (!name) throw new Error(`${about.name} has no licence file`);
        return `${about.name} ${about.version} (${about.license})\n\n${readFileSync(join(folder, name), "utf8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

const output = join(dirname(import.meta.dirname), "src/penstock/console/static");
if (!existsSync(dirname(output))) throw new Error(`${dirname(output)} is missing: build within the repository`);

export default defineConfig({
  // The node serves everything but the page itself from here.
  base: "/assets/",
  plugins: [licences()],
  build: {
    outDir: output,
    emptyOutDir: true,
    assetsDir: "",
    // The page's security policy allows no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    chunkSizeWarningLimit: 200,
  },
});
