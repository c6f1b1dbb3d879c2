"""The script that controls Apple Notes; it receives its values and returns its result as JSON.

Source of the names: the scripting dictionary of Notes (Notes.sdef; Script Editor > File > Open Dictionary).
"""

from pydantic import BaseModel, ConfigDict

from mcp_toolserver.text.desktop.commands import Argv
from mcp_toolserver.text.desktop.osascript import script_command

_SCRIPT = r"""
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
  const one = same[(asked.index || 1) - 1];
  if (!one) return answer({problem: "no note", total: same.length});
  const note = app.notes.byId(one.id);
  if (note.passwordProtected()) return answer({problem: "locked"});

  if (asked.do === "read") {
    const text = Array.from(note.plaintext().replace(/\u00a0/g, " "));
    return answer({notes: [one], total: text.length, text: text.slice(0, asked.most).join("")});
  }

  if (note.attachments().length) return answer({problem: "attachments"});
  const before = asked.append ? note.body() : html(one.title);
  note.body = before + html(asked.body);
  return answer({notes: [card(note, one.folder)]});
}
"""


class CardReply(BaseModel):
    """A note without its text."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    title: str
    folder: str
    changed: str


class NotesReply(BaseModel):
    """The reply of the script."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    problem: str = ""
    notes: tuple[CardReply, ...] = ()
    total: int = 0
    """Number of notes, or of characters in the text."""
    text: str = ""


def check_named(title: str, note_id: str) -> None:
    """Raises: ValueError: a note is named by neither or by both."""
    if bool(title) == bool(note_id):
        raise ValueError("give either `title` or `id`")


def notes_script(osascript: str) -> Argv:
    """Run the script; its standard input is a request."""
    return script_command(osascript, _SCRIPT)


def parse_reply(printed: bytes) -> NotesReply:
    """Read its answer. Raises: ValueError: it is none."""
    return NotesReply.model_validate_json(printed)


def below_title(title: str, text: str) -> str:
    """Return the text of a note without its first line, when that is the title."""
    first, _, rest = text.partition("\n")
    return rest if first.strip() == title.strip() else text
