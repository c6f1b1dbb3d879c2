"""Scripts for osascript, in JavaScript for Automation (JXA).

A script is constant. Its values come as one JSON object on standard input: so no value is code, an option or
visible in the list of processes, and no length is too long for an argument list.

Sources: osascript(1) for `-l` and `-e`; Apple, "JavaScript for Automation Release Notes", for the bridge to
Objective-C; the scripting dictionary of Notes (Notes.sdef; Script Editor > File > Open Dictionary).
"""

START = r"""
ObjC.import("Foundation");
const readRequest = () => {
  const data = $.NSFileHandle.fileHandleWithStandardInput.readDataToEndOfFile;
  return JSON.parse(ObjC.unwrap($.NSString.alloc.initWithDataEncoding(data, $.NSUTF8StringEncoding)));
};
const encodeReply = (value) => JSON.stringify(value).replace(/[^ -~]/g, (unit) => (
  "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0")
));
"""
"""What each script begins with. A reply is ASCII, whatever encoding osascript prints in."""

NOTICE = """
function run() {
  const asked = readRequest();
  const app = Application.currentApplication();
  app.includeStandardAdditions = true;
  app.displayNotification(asked.message, {withTitle: asked.title});
}
"""
"""Shows a notification.

macOS attributes it to Script Editor and reports success even where the user's settings suppress it
(https://github.com/cline/cline/issues/3097).
"""

SCREEN = """
ObjC.import("CoreGraphics");
ObjC.bindFunction("CGSessionCopyCurrentDictionary", ["id", []]);
ObjC.bindFunction("CGWindowListCopyWindowInfo", ["id", ["unsigned int", "unsigned int"]]);
ObjC.bindFunction("CGPreflightScreenCaptureAccess", ["bool", []]);
ObjC.bindFunction("CGRequestScreenCaptureAccess", ["bool", []]);
const ON_SCREEN = 1, WITHOUT_DESKTOP = 16, ANY_WINDOW = 0;
function run() {
  const answer = (problem, windows) => encodeReply([problem, windows]);
  const session = ObjC.deepUnwrap($.CGSessionCopyCurrentDictionary());
  const windows = ObjC.deepUnwrap($.CGWindowListCopyWindowInfo(ON_SCREEN | WITHOUT_DESKTOP, ANY_WINDOW));
  if (!session || !windows) return answer("no session", []);
  if (session.CGSSessionScreenIsLocked) return answer("locked", []);
  const others = windows.filter((each) => !["Dock", "Window Server"].includes(each.kCGWindowOwnerName));
  if (!$.CGPreflightScreenCaptureAccess() && !others.some((each) => "kCGWindowName" in each)) {
    $.CGRequestScreenCaptureAccess();
    return answer("permission", []);
  }
  return answer("", windows.filter((each) => each.kCGWindowLayer === 0).map((each) => (
    [each.kCGWindowNumber, [each.kCGWindowOwnerName, each.kCGWindowName].filter((word) => word).join(": ")]
  )));
}
"""
"""Lists the windows on the screen of macOS, from front to back, or says why no picture can be taken.

* Without Screen Recording, screencapture may succeed with the desktop's background only
  (https://github.com/sonichi/sutando/issues/2942), so the permission is checked first. For child processes
  CGPreflightScreenCaptureAccess may deny a permission that exists
  (https://github.com/screenpipe/screenpipe/pull/3623). A title of another app's window then proves it: macOS
  reports kCGWindowName only with the permission.
* CGRequestScreenCaptureAccess does not wait: it adds the app to the list in System Settings.
* Both lists are NULL outside a session with a screen, for example over SSH.
* Source of the functions and numbers: the SDK headers CGWindow.h and CGSession.h; the key
  CGSSessionScreenIsLocked is not documented.
"""

NOTES = r"""
function run() {
  const asked = readRequest();
  const app = Application("Notes");
  const answer = encodeReply;

  const folders = [];
  const seen = new Set();
  const collect = (holder, account) => holder.folders().forEach((folder) => {
    if (seen.has(folder.id())) return;
    seen.add(folder.id());
    folders.push({folder: folder, name: folder.name(), place: account + "/" + folder.name()});
    collect(folder, account);
  });
  const accounts = app.accounts();
  if (!accounts.length) return answer({problem: "no account"});
  accounts.forEach((account) => collect(account, account.name()));
  const within = folders.filter((each) => !asked.folder || [each.name, each.place].includes(asked.folder));
  if (asked.folder && !within.length) return answer({problem: "no folder"});

  const time = (date) => date ? date.toISOString() : "";
  const card = (note, place) => (
    {id: note.id(), title: note.name(), folder: place, changed: time(note.modificationDate())}
  );
  const cards = () => {
    const found = within.flatMap(({folder, place}) => {
      // Three Apple events for a folder, however many notes it has. Notes may change between them.
      const read = () => [folder.notes.id(), folder.notes.name(), folder.notes.modificationDate()];
      const same = ([ids, titles, dates]) => ids.length === titles.length && ids.length === dates.length;
      let [ids, titles, dates] = read();
      if (!same([ids, titles, dates])) [ids, titles, dates] = read();
      if (!same([ids, titles, dates])) throw new Error("Notes changed meanwhile");
      return ids.map((id, at) => (
        {id: id, title: titles[at] || "", folder: place, changed: time(dates[at])}
      ));
    });
    return found.sort((one, other) => (
      other.changed.localeCompare(one.changed) || one.id.localeCompare(other.id)
    ));
  };
  const line = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")
    .replace(/\t/g, "    ").replace(/ (?= )|^ /g, "&nbsp;") || "<br>";
  const html = (text) => text.split(/\r\n?|\n/).map((each) => "<div>" + line(each) + "</div>").join("");

  if (asked.do === "list") {
    const wanted = asked.query.toLowerCase();
    const found = cards().filter((each) => each.title.toLowerCase().includes(wanted));
    return answer({total: found.length, notes: found.slice(0, asked.most)});
  }

  if (asked.do === "create") {
    if (asked.folder && within.length > 1) return answer({problem: "several folders"});
    const account = asked.folder ? null : app.defaultAccount();
    const folder = account ? account.defaultFolder() : within[0].folder;
    const place = account ? account.name() + "/" + folder.name() : within[0].place;
    const body = html(asked.title) + html(asked.body);
    const made = app.make({new: "note", at: folder, withProperties: {body: body}});
    return answer({notes: [card(made, place)]});
  }

  const same = cards().filter((each) => asked.id ? each.id === asked.id : each.title === asked.title);
  if (same.length > 1 && !asked.index) {
    return answer({problem: "several", total: same.length, notes: same.slice(0, asked.most)});
  }
  const one = same[asked.id ? 0 : (asked.index || 1) - 1];
  if (!one) return answer({problem: same.length ? "no index" : "no note", total: same.length});
  const note = app.notes.byId(one.id);
  if (note.passwordProtected()) return answer({problem: "locked"});

  if (asked.do === "read") {
    const text = Array.from(note.plaintext().replace(/\u00a0/g, " "));
    return answer({notes: [one], total: text.length, text: text.slice(0, asked.most).join("")});
  }

  if (note.attachments().length) return answer({problem: "attachments"});
  const before = asked.mode === "append" ? note.body() : html(one.title);
  note.body = before + html(asked.body);
  return answer({notes: [card(note, one.folder)]});
}
"""
"""Lists, reads, creates or changes notes."""
