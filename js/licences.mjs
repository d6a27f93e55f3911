/** The licences of the packages that a bundle carries, beside it. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** An esbuild plugin that writes the names, versions and licences of the packages in a bundle to `file`; nothing where there are none. */
export function licences(file) {
  return {
    name: "licences",
    setup(build) {
      build.initialOptions.metafile = true;
      build.onEnd(({ metafile }) => {
        const found = Object.keys(metafile?.inputs ?? {}).map(
          (path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0],
        );
        const texts = [...new Set(found)].filter(Boolean).sort().map(text);
        if (!texts.length) return;
        mkdirSync(dirname(file), { recursive: true });
        writeFileSync(file, texts.join("\n"));
      });
    },
  };
}

/** Packages without a text say where it lies. */
function text(folder) {
  const { name, version, license, author, homepage, repository } = JSON.parse(
    readFileSync(join(folder, "package.json"), "utf8"),
  );
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const where = [author?.name ?? author, homepage ?? repository?.url].filter(Boolean).join(", ");
  return `${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), "utf8").trim() : where}\n`;
}
