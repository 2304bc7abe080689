// Lints the modules of the page in the browser: names that nothing defines, and names that nothing uses.
//
//   node scripts/clients/lint.mjs FOLDER

import { ESLint } from "eslint";
import globals from "globals";

const rules = ["no-const-assign", "no-dupe-keys", "no-redeclare", "no-undef", "no-unreachable", "no-unused-vars"];
const eslint = new ESLint({
  cwd: process.argv[2],
  overrideConfigFile: true,
  overrideConfig: { languageOptions: { globals: globals.browser }, rules: Object.fromEntries(rules.map((rule) => [rule, "error"])) },
});
const results = await eslint.lintFiles(["*.js"]);
const faults = results.flatMap(({ filePath, messages }) => messages.map(({ line, message }) => `${filePath}:${line}: ${message}`));
console.log([`${results.length} modules`, ...faults].join("\n"));
process.exit(faults.length || results.length < 2 ? 1 : 0);
