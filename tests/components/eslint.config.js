import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["dashboard/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      "eqeqeq": ["error", "always", { null: "ignore" }],
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-unused-expressions": ["error", { allowShortCircuit: true, allowTernary: true, allowTaggedTemplates: false }],
      "no-use-before-define": ["error", { functions: false, variables: false }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  { files: ["tests/**/*.js", "docs/**/*.js", "**/*.config.js"], languageOptions: { globals: globals.node } },
];
