// Draws formulas as HTML: a list of [LaTeX, whether it is a line of its own] comes in as JSON, a list of HTML goes out.
// One that KaTeX cannot read ends the program, and with it the build of the site.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

// The packages of node stand beside the tests of the JavaScript.
const katex = createRequire(new URL("../../tests/components/", import.meta.url))("katex");
const formulas = JSON.parse(await text(process.stdin));
const draw = ([latex, displayMode]) => katex.renderToString(latex, { displayMode, strict: "error" });
process.stdout.write(JSON.stringify(formulas.map(draw)));
