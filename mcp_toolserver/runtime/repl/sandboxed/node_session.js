// A session of JavaScript for driver.py: Node's own REPL without its terminal, so declarations stay, the last
// value is shown, and `await` works at the top level.
"use strict";

const fs = require("fs");
const { createRequire } = require("module");
const { Socket } = require("net");
const readline = require("readline");
const repl = require("repl");
const { PassThrough } = require("stream");
const util = require("util");

const COMMANDS_FD = 3;
const REPLIES_FD = 4;

const silent = new PassThrough().resume();
const shell = repl.start({
  prompt: "",
  input: new PassThrough(),
  output: silent,
  terminal: false,
  useGlobal: true,
  breakEvalOnSigint: true,
});
globalThis.require = createRequire(process.cwd() + "/");

// Ends the code that runs: with an error or with a value.
let finish = null;

const print = (error) => {
  const found = (error && error.err) || error;
  const text = found && found.stack ? found.stack : util.inspect(found);
  // Frames of Node and of this file say nothing of the code.
  console.error(text.replace(/\n +at [^\n]*(\(node:|node_session\.js|REPLServer)[^\n]*/g, ""));
};
// Whether the last code has run and the process ends when nothing is left to do.
let ending = false;
const fail = (error) => {
  if (finish) return finish(error);
  print(error);
  if (ending) process.exit(1);
};
const interrupt = () => finish && finish(new Error("interrupted"));

if (shell._domain) {
  // Up to Node 24 errors of the code go here, and would end in the REPL's own printer.
  shell._domain.removeAllListeners("error").on("error", fail);
}
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
process.on("SIGINT", interrupt);

const run = (code) =>
  new Promise((resolve) => {
    finish = (error, value) => {
      finish = null;
      if (error) print(error);
      else if (value !== undefined) console.log(util.inspect(value));
      resolve(error ? 1 : 0);
    };
    // Node watches for interrupts itself while code runs that does not wait; a listener would take that away.
    process.removeListener("SIGINT", interrupt);
    shell.eval(code + "\n", shell.context, "REPL", (error, value) => finish && finish(error, value));
    process.on("SIGINT", interrupt);
  });

const end = (status) => {
  if (status) process.exit(status);
  ending = true;
  process.removeListener("SIGINT", interrupt);
  commands.destroy();
};

const answer = (word) => fs.writeSync(REPLIES_FD, JSON.stringify(word) + "\n");

let turn = Promise.resolve();
// A file stream would keep a thread waiting, and process.exit() would wait for that.
const commands = new Socket({ fd: COMMANDS_FD, writable: false });
readline.createInterface({ input: commands }).on("line", (line) => {
  const { code, tag, last } = JSON.parse(line);
  turn = turn.then(() => run(code)).then((done) => (last ? end(done) : answer({ done, tag })));
});
answer({ done: 0 });
