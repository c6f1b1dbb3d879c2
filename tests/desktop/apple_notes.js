// Apple Notes as its scripts see it. The state holds the accounts, gets the number of Apple events, and may name
// an error that each event meets.
const unescaped = (html) => html
  .replace(/<br>/g, "").replace(/<\/div>/g, "\n").replace(/<[^>]*>/g, "")
  .replace(/&nbsp;/g, "\u00a0").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&")
  .replace(/\n$/, "");

module.exports = (kept, functions, AppleEventError) => {
  kept.events = 0;
  const event = (value) => {
    kept.events += 1;
    if (kept.error) throw new AppleEventError(kept.error.message, kept.error.number);
    return value;
  };

  class Note {
    constructor(data) { this.data = data; }
    id() { return event(this.data.id); }
    name() { return event(unescaped(this.data.body).split("\n")[0]); }
    plaintext() { return event(unescaped(this.data.body)); }
    modificationDate() { return event(this.data.changed ? new Date(this.data.changed) : null); }
    passwordProtected() { return event(this.data.locked === true); }
    attachments() { return event(Array(this.data.attachments || 0).fill({})); }
    get body() { return () => event(this.data.body); }
    set body(html) { event(); this.data.body = html; this.data.changed = "2026-05-01T00:00:00.000Z"; }
  }

  const all = (notes) => {
    const list = () => notes.map((data) => new Note(data));
    const each = (what) => ({value: () => {
      const before = kept.events;
      const values = list().map((note) => note[what]());
      kept.events = before;
      // A note comes in while the lists are read.
      if (kept.unsteady && what === "name") { kept.unsteady -= 1; values.pop(); }
      return event(values);
    }});
    return Object.defineProperties(list, {
      id: each("id"),
      name: each("name"),
      modificationDate: each("modificationDate"),
      byId: {value: (id) => notes.map((data) => new Note(data)).find((note) => note.data.id === id)},
    });
  };

  class Folder {
    constructor(data) { this.data = data; this.notes = all(data.notes); }
    id() { return event(this.data.id); }
    name() { return event(this.data.name); }
    folders() { return event((this.data.folders || []).map((data) => new Folder(data))); }
  }

  const flat = (folders) => folders.flatMap((data) => [data, ...flat(data.folders || [])]);
  const places = kept.accounts.flatMap((account) => flat(account.folders));

  class Account {
    constructor(data) { this.data = data; }
    name() { return event(this.data.name); }
    // Notes may list nested folders twice.
    folders() { return event(flat(this.data.folders).map((data) => new Folder(data))); }
    defaultFolder() { return event(new Folder(this.data.folders[0])); }
  }

  globalThis.Application = (name) => {
    if (name !== "Notes") process.exit(65);
    return {
      accounts: () => event(kept.accounts.map((data) => new Account(data))),
      defaultAccount: () => event(new Account(kept.accounts[0])),
      notes: all(places.flatMap((folder) => folder.notes)),
      make: ({at, withProperties}) => {
        const data = {id: "new", changed: "2026-04-01T00:00:00.000Z", body: withProperties.body};
        at.data.notes.push(data);
        return event(new Note(data));
      },
    };
  };
};
