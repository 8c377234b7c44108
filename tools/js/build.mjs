// Bundles every view, <views>/<name>/view.js and view.css, or a script.js that is no view, into the folder `static` beside
// its folder of views: of dtfm_lab/widgets, and of every extension that has views (FOLDERS of tools/view_traits.py are the
// same).
// The result is committed, so a clone or a wheel needs no Node. The same sources and lock file always give the same bytes.
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

/** @type {(path: string) => string} */
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const ROOT = resolve(here("../.."));
const STATIC = here("../../dtfm_lab/widgets/static");
const extensions = `${ROOT}/dtfm_lab/extensions`;
const owners = ["dtfm_lab/widgets", ...(existsSync(extensions) ? readdirSync(extensions).map((name) => `dtfm_lab/extensions/${name}`) : [])];
const named = process.argv.slice(2).filter((word) => !word.startsWith("--")); // npm run build -- gantt: this one only

const SOURCES = ["view.js", "view.css", "script.js"];

const all = owners
  .filter((owner) => existsSync(`${ROOT}/${owner}/views`))
  .flatMap((owner) => readdirSync(`${ROOT}/${owner}/views`).map((name) => ({ owner, name })))
  .filter(({ owner, name }) => SOURCES.some((file) => existsSync(`${ROOT}/${owner}/views/${name}/${file}`)))
  .sort((a, b) => (a.name < b.name ? -1 : 1));

const entries = all
  .filter(({ name }) => !named.length || named.includes(name))
  .flatMap(({ owner, name }) =>
    SOURCES.map((file) => `${ROOT}/${owner}/views/${name}/${file}`)
      .filter((path) => existsSync(path))
      .map((path) => ({ in: path, out: `${owner}/static/${name}` })),
  );

/** Leaves out what the editor has no use for: cytoscape's WebGL renderer and its layouts by forces and by breadth. */
const UNUSED = /cytoscape.src.extensions.(renderer.canvas.webgl.drawing-redraw-webgl|layout.cose|layout.breadthfirst)\.mjs$/;
/** @type {import("esbuild").Plugin} */
const withoutUnused = {
  name: "without-unused",
  setup: (building) => building.onLoad({ filter: UNUSED }, () => ({ contents: "export default function () {}" })),
};

/** @type {import("esbuild").BuildOptions & { metafile: true }} */
const options = {
  absWorkingDir: here("."),
  entryPoints: entries,
  outdir: ROOT,
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

/**
 * Every package that a bundle holds, with the bundles that hold it.
 * @type {(metafile: import("esbuild").Metafile) => [string, Set<string>][]}
 */
function bundledPackages({ outputs }) {
  /** @type {Map<string, Set<string>>} */
  const packages = new Map();
  for (const [output, { inputs }] of Object.entries(outputs))
    for (const name of Object.keys(inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []))
      packages.set(name, (packages.get(name) ?? new Set()).add(basename(output)));
  return [...packages].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** @type {(packages: [string, Set<string>][]) => void} */
function writeLicences(packages) {
  const texts = packages.map(([name, files]) => {
    const { version } = JSON.parse(readFileSync(here(`node_modules/${name}/package.json`), "utf8"));
    const licence = readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim();
    return `${name} ${version}, bundled into ${[...files].sort().join(", ")}\n\n${licence}\n`;
  });
  writeFileSync(`${STATIC}/LICENSES.txt`, texts.join(`\n${"-".repeat(80)}\n\n`));
}

if (process.argv.includes("--watch")) {
  await (await context(options)).watch();
} else if (process.argv.includes("--check")) {
  const { outputFiles } = await build({ ...options, write: false, logLevel: "error" });
  const stale = outputFiles.filter(({ path, contents }) => !existsSync(path) || !readFileSync(path).equals(contents));
  for (const { path } of stale) console.error(`${path} is not what its sources make: run make js`);
  process.exitCode = stale.length ? 1 : 0;
} else {
  const { metafile } = await build(options);
  if (!named.length) {
    writeLicences(bundledPackages(metafile));
    const built = new Set(Object.keys(metafile.outputs).map((path) => resolve(here("."), path)));
    for (const folder of owners.map((owner) => resolve(ROOT, owner, "static")).filter((path) => existsSync(path)))
      for (const name of readdirSync(folder)) if (/\.(js|css)$/.test(name) && !built.has(`${folder}/${name}`)) rmSync(`${folder}/${name}`);
  }
}
