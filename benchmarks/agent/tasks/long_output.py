"""A check of semver prints 20,000 lines; two of them, in the middle, show a bug."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import NpmPackage
from benchmarks.agent.task import Place, Task, replace, succeeds

SOURCE = "internal/identifiers.js"
RIGHT = "    a = +a\n    b = +b\n"
WRONG = "    a = a | 0\n    b = b | 0\n"
"""Bitwise operators work on 32 bits."""

CHECK = """\
const semver = require('.')

let wrong = 0
for (let number = 0; number < 20000; number++) {
  const build = 2147480000 + Math.floor(number / 2)
  const before = `1.${number % 100}.0-rc.${build}`
  const after = `1.${number % 100}.0-rc.${build + 1}`
  const order = semver.compare(before, after)
  wrong += order !== -1
  console.log(`pair ${number}: ${before} and ${after}: ${order === -1 ? 'ok' : 'wrong'}`)
}
console.log(`20000 pairs, ${wrong} wrong`)
process.exitCode = wrong ? 1 : 0
"""
LOOK = f"grep -n compareIdentifiers -r classes; cat {SOURCE}"


def prepare(place: Place) -> None:
    replace(place.root / SOURCE, RIGHT, WRONG)
    (place.root / "check.js").write_text(CHECK, encoding="utf-8")


def _run(log: str) -> str:
    return f"node check.js >{log} 2>&1; head -n 2 {log}; tail -n 1 {log}"


def ours(agent: Agent, _place: Place) -> str:
    agent.call("bash", {"command": _run("$TMPDIR/check.log")})
    agent.call("grep_search", {"pattern": ": wrong", "path": "/tmp/check.log", "output_mode": "content"})
    agent.call("bash", {"command": LOOK})
    agent.call("edit_file", {"path": SOURCE, "old_string": WRONG, "new_string": RIGHT})
    return agent.call("bash", {"command": "node check.js | tail -n 1"})


def other(agent: Agent, place: Place) -> str:
    log = f"/tmp/check-{place.port}.log"
    agent.call("run_command", {"command": _run(log)})
    agent.call("run_command", {"command": f"grep ': wrong' {log}; {LOOK}"})
    edits = [{"oldText": WRONG, "newText": RIGHT}]
    agent.call("edit_file", {"path": SOURCE, "edits": edits})
    return agent.call("run_command", {"command": f"node check.js | tail -n 1; rm {log}"})


def is_done(place: Place, answer: str) -> bool:
    return answer.startswith("20000 pairs, 0 wrong") and succeeds(place, ["node", "check.js"])


TASK = Task(
    name="long output to search, semver",
    prompt="`node check.js` prints 20,000 lines; some pairs are wrong. Find out why, and repair it.",
    project=NpmPackage("semver", "7.6.3", "376d2ca2c941fc5a37e9ac3ec65302e5e421e2cc1ee3dee57a854d2bd9bee125"),
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
