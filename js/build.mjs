// Bundles every view, the lab's own (dtfm_lab/widgets/views/<name>/view.js and view.css) and those of extensions
// (dtfm_lab/extensions/*/views/<name>), into dtfm_lab/widgets/static.
// The result is committed, so a clone or a wheel needs no Node. The same sources and lock file always give the same bytes.
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const EXTENSIONS = here("../dtfm_lab/extensions");
const folders = (path) => (existsSync(path) ? readdirSync(path) : []).map((name) => `${path}/${name}`);
const VIEWS = [here("../dtfm_lab/widgets/views"), ...folders(EXTENSIONS).map((extension) => `${extension}/views`)];
const STATIC = here("../dtfm_lab/widgets/static");
const named = process.argv.slice(2).filter((word) => !word.startsWith("--")); // npm run build -- gantt: this one only
const found = Object.fromEntries(VIEWS.flatMap(folders).filter((folder) => existsSync(`${folder}/view.js`)).map((folder) => [folder.split("/").at(-1), folder]));
const all = Object.keys(found).sort();

const entries = (named.length ? named : all).flatMap((name) =>
  ["js", "css"].filter((kind) => existsSync(`${found[name]}/view.${kind}`))
    .map((kind) => ({ in: `${found[name]}/view.${kind}`, out: name })));

/** Leaves out what the editor has no use for: cytoscape's WebGL renderer and its layouts by forces and by breadth. */
const UNUSED = /cytoscape.src.extensions.(renderer.canvas.webgl.drawing-redraw-webgl|layout.cose|layout.breadthfirst)\.mjs$/;
const withoutUnused = {
  name: "without-unused",
  setup: (building) => building.onLoad({ filter: UNUSED }, () => ({ contents: "export default function () {}" })),
};

const options = {
  absWorkingDir: here("."),
  entryPoints: entries,
  outdir: STATIC,
  alias: {
    shared: here("shared"),
    cytoscape: here("node_modules/cytoscape/src/index.mjs"), // its own sources: the published bundle is written for older browsers, and larger
  },
  nodePaths: [here("node_modules")],
  plugins: [withoutUnused],
  bundle: true,
  minify: true,
  metafile: true,
  define: Object.fromEntries(["NODE_ENV", "VERSION", "TEST_BUILD"].map((name) => [`process.env.${name}`, '"production"'])),
  format: "esm",
  target: "es2021",
  charset: "utf8",
  legalComments: "none", // the licences travel whole, in LICENSES.txt
  logLevel: "info",
};

/** Every package that a bundle holds, with the bundles that hold it. */
function bundledPackages({ outputs }) {
  const packages = new Map();
  for (const [output, { inputs }] of Object.entries(outputs))
    for (const name of Object.keys(inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []))
      packages.set(name, (packages.get(name) ?? new Set()).add(output.split("/").at(-1)));
  return [...packages].sort(([a], [b]) => (a < b ? -1 : 1));
}

function writeLicences(packages) {
  const texts = packages.map(([name, files]) => {
    const { version } = JSON.parse(readFileSync(here(`node_modules/${name}/package.json`), "utf8"));
    const licence = readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim();
    return `${name} ${version}, bundled into ${[...files].sort().join(", ")}\n\n${licence}\n`;
  });
  writeFileSync(`${STATIC}/LICENSES.txt`, texts.join("\n" + "-".repeat(80) + "\n\n"));
}

if (process.argv.includes("--watch")) {
  await (await context(options)).watch();
} else {
  const { metafile } = await build(options);
  if (!named.length) {
    writeLicences(bundledPackages(metafile));
    const built = new Set(Object.keys(metafile.outputs).map((path) => path.split("/").at(-1)));
    for (const name of readdirSync(STATIC)) if (/\.(js|css)$/.test(name) && !built.has(name)) rmSync(`${STATIC}/${name}`);
  }
}
