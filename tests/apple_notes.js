// Apple Notes as its scripts see it, kept in a file, and `osascript` for one script and one word.
// Run as: node apple_notes.js STATE -l JavaScript -e SCRIPT WORD
const fs = require("fs");
const [state, ...words] = process.argv.slice(2);
if (words[0] !== "-l" || words[1] !== "JavaScript" || words[2] !== "-e" || words.length !== 5) process.exit(64);
const kept = JSON.parse(fs.readFileSync(state, "utf8"));

const unescaped = (html) => html
  .replace(/<br>/g, "").replace(/<\/div>/g, "\n").replace(/<[^>]*>/g, "")
  .replace(/&nbsp;/g, "\u00a0").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&")
  .replace(/\n$/, "");

class Note {
  constructor(data) { this.data = data; }
  id() { return this.data.id; }
  name() { return unescaped(this.data.body).split("\n")[0]; }
  plaintext() { return unescaped(this.data.body); }
  modificationDate() { return new Date(this.data.changed); }
  passwordProtected() { return this.data.locked === true; }
  attachments() { return Array(this.data.attachments || 0).fill({}); }
  get body() { return () => this.data.body; }
  set body(html) { this.data.body = html; this.data.changed = "2026-05-01T00:00:00.000Z"; }
}

const all = (notes) => {
  const list = () => notes.map((data) => new Note(data));
  const each = (what) => ({value: () => list().map((note) => note[what]())});
  return Object.defineProperties(list, {
    id: each("id"),
    name: each("name"),
    modificationDate: each("modificationDate"),
    byId: {value: (id) => list().find((note) => note.id() === id)},
  });
};

class Folder {
  constructor(data) { this.data = data; this.notes = all(data.notes); }
  id() { return this.data.id; }
  name() { return this.data.name; }
  folders() { return (this.data.folders || []).map((data) => new Folder(data)); }
}

const flat = (folders) => folders.flatMap((data) => [data, ...flat(data.folders || [])]);
const places = kept.accounts.flatMap((account) => flat(account.folders));

class Account {
  constructor(data) { this.data = data; }
  name() { return this.data.name; }
  // Notes may list nested folders twice.
  folders() { return flat(this.data.folders).map((data) => new Folder(data)); }
  defaultFolder() { return new Folder(this.data.folders[0]); }
}

globalThis.Application = (name) => {
  if (name !== "Notes") process.exit(65);
  return {
    accounts: () => kept.accounts.map((data) => new Account(data)),
    defaultAccount: () => new Account(kept.accounts[0]),
    notes: all(places.flatMap((folder) => folder.notes)),
    make: ({at, withProperties}) => {
      const data = {id: "new", changed: "2026-04-01T00:00:00.000Z", body: withProperties.body};
      at.data.notes.push(data);
      return new Note(data);
    },
  };
};

(0, eval)(words[3]);
console.log(run([words[4]]));
fs.writeFileSync(state, JSON.stringify(kept));
