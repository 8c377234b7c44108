// Run from the repository's root, as views lie outside of this folder: npm run lint does so.
import js from "@eslint/js";
import globals from "globals";

const VIEWS = [
  "tools/js/shared/**/*.js",
  "dtfm_lab/widgets/views/**/*.js",
  "dtfm_lab/extensions/*/views/**/*.js",
  "dtfm_lab/widgets/shell/still_page/*.js",
  "tools/labextension/static/*.js",
];

export default [
  { ignores: ["**/node_modules/**", "dtfm_lab/widgets/static/**", "dtfm_lab/extensions/*/static/**", "**/*.d.ts"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  {
    rules: {
      // what is taken out of an object to leave it out of the rest, and what a signature has to name
      "no-unused-vars": ["error", { ignoreRestSiblings: true, argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      eqeqeq: "error",
      "no-shadow-restricted-names": "error",
      "no-self-compare": "error",
      "no-implicit-globals": "error",
      "no-throw-literal": "error",
      "object-shorthand": "error",
      "prefer-template": "error",
    },
  },
  { files: VIEWS, languageOptions: { globals: globals.browser } },
  { files: ["tools/js/*.mjs", "tools/js/tests/*", "**/*.test.js"], languageOptions: { globals: globals.node } },
];
