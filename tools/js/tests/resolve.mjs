// Lets Node import views as they are: "shared/..." is js/shared, as esbuild has it, and every file is a module.
import { register } from "node:module";

const hooks = `
  const shared = ${JSON.stringify(new URL("../", import.meta.url).href)};
  export async function resolve(specifier, context, next) {
    const found = await next(specifier.startsWith("shared/") ? shared + specifier : specifier, context);
    return found.url.endsWith(".js") && !found.url.includes("/node_modules/") ? { ...found, format: "module" } : found;
  }`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
