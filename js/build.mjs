// Bundles each canvas into dtfm_lab/widgets/static. The result is committed, so a clone or a
// wheel needs no Node; the same sources and lock file always give the same bytes.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const CANVASES = readdirSync(here("src")).filter((name) => name.endsWith(".js")).map((name) => name.slice(0, -3)).sort();
const named = process.argv.slice(2).filter((word) => !word.startsWith("--")); // npm run build -- gantt: this one only
const BUNDLED = ["cytoscape", "cytoscape-edgehandles", "lodash.memoize", "lodash.throttle"];

const options = {
  absWorkingDir: here("."),
  entryPoints: (named.length ? named : CANVASES).flatMap((name) => [`src/${name}.js`, `src/${name}.css`]),
  outdir: here("../dtfm_lab/widgets/static"),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2021",
  charset: "utf8",
  legalComments: "none", // the licences travel whole, in LICENSES.txt
  logLevel: "info",
};

function writeLicences() {
  const texts = BUNDLED.map((name) => {
    const { version } = JSON.parse(readFileSync(here(`node_modules/${name}/package.json`), "utf8"));
    const licence = readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim();
    return `${name} ${version}\n\n${licence}\n`;
  });
  const rule = "\n" + "-".repeat(80) + "\n\n";
  writeFileSync(`${options.outdir}/LICENSES.txt`, `Bundled into editor.js:\n${rule}${texts.join(rule)}`);
}

if (process.argv.includes("--watch")) {
  await (await context(options)).watch();
} else {
  await build(options);
  writeLicences();
}
