"""Scripts for osascript, in JavaScript for Automation (JXA).

A script is constant. Its values come as one JSON object on standard input: so no value is code, an option or
visible in the list of processes, and no length is too long for an argument list.

Sources: osascript(1) for `-l` and `-e`; Apple, "JavaScript for Automation Release Notes", for the bridge to
Objective-C.
"""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from mcp_toolserver.text.desktop.commands import Argv, starting_apps

_MESSAGES = r"""
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


def script_command(osascript: str, script: str) -> Argv:
    """Run a script whose function `run` may call `readRequest` and `encodeReply`.

    An Apple event starts the app that it is for.
    """
    return *starting_apps(osascript), "-l", "JavaScript", "-e", _MESSAGES + script


def encode_request(request: Mapping[str, JsonValue]) -> str:
    """Return the standard input of a script."""
    return json.dumps(request, ensure_ascii=False)
