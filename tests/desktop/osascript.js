// osascript for scripts in JavaScript, as far as the server uses it, with applications and functions that a
// test provides. Run as: node osascript.js PROVIDER STATE -l JavaScript -e SCRIPT
// PROVIDER is a file that exports a function of the state, which it may change; STATE is a file of JSON.
const fs = require("fs");
const [provider, file, ...words] = process.argv.slice(2);
if (words[0] !== "-l" || words[1] !== "JavaScript" || words[2] !== "-e" || words.length !== 4) process.exit(64);
const state = JSON.parse(fs.readFileSync(file, "utf8"));

// `bytes` makes NSData of an object, and `string` NSString.
const NIL = {isNil: () => true};
globalThis.$ = {
  NSUTF8StringEncoding: 4,
  NSFileHandle: {fileHandleWithStandardInput: {get readDataToEndOfFile() { return {bytes: fs.readFileSync(0)}; }}},
  NSString: {alloc: {initWithDataEncoding: (data, encoding) => {
    if (encoding !== 4) throw new Error("not UTF-8");
    return {string: new TextDecoder("utf-8", {fatal: true}).decode(data.bytes)};
  }}},
};
globalThis.ObjC = {
  import: () => undefined,
  unwrap: (value) => value.string,
  deepUnwrap: (value) => (value === NIL ? undefined : JSON.parse(JSON.stringify(value))),
  bindFunction: (name, [result, ...types]) => {
    if (!(name in functions)) throw new Error(`${name} is not in this system`);
    $[name] = (...args) => {
      if (args.length !== (types[0] || []).length) throw new Error(`${name} takes other arguments`);
      const value = functions[name](...args);
      return result === "id" && value === null ? NIL : value;
    };
  },
};
const functions = {};

// What osascript prints for an error of an Apple event.
class AppleEventError extends Error {
  constructor(message, number) { super(message); this.number = number; }
}

require(require("path").resolve(provider))(state, functions, AppleEventError);
try {
  (0, eval)(words[3]);
  const result = run([]);
  if (result !== undefined) console.log(result);
} catch (error) {
  console.error(`execution error: Error: ${error} (${error.number || -2700})`);
  process.exitCode = 1;
}
fs.writeFileSync(file, JSON.stringify(state));
