"""A development server in the background answers 500; the handler is repaired."""

import re

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import SourceDistribution
from benchmarks.agent.task import Place, Task, succeeds
from benchmarks.client import Unanswered

APP = '''\
"""A list of notes over HTTP."""

from bottle import Bottle, HTTPError, run

app = Bottle()
NOTES = {1: "buy milk", 2: "call Ada"}


@app.get("/notes/<number:int>")
def note(number):
    if number not in NOTES:
        raise HTTPError(404, "no such note")
    return {"number": number, "text": NOTES[str(number)]}


if __name__ == "__main__":
    run(app, host="127.0.0.1", port=PORT, debug=True, quiet=True)
'''
WRONG = "NOTES[str(number)]"
RIGHT = "NOTES[number]"
SERVE = ".venv/bin/python app.py"
WANTED = '{"number": 1, "text": "buy milk"}'


def prepare(place: Place) -> None:
    (place.root / "app.py").write_text(APP.replace("PORT", str(place.port)), encoding="utf-8")


def _ask(place: Place) -> str:
    """Ask for a note as soon as the server listens; an HTTP error is an answer, too."""
    ask = f"curl --silent localhost:{place.port}/notes/1"
    return f"for _ in $(seq 50); do {ask} && break; sleep 0.2; done"


def ours(agent: Agent, place: Place) -> str:
    job = agent.call("bash", {"command": f"exec {SERVE}", "run_in_background": True})
    agent.call("bash", {"command": f"{_ask(place)}; cat app.py"})
    agent.call("edit_file", {"path": "app.py", "old_string": WRONG, "new_string": RIGHT})
    agent.call("TaskStop", {"task_id": _first(r"bg_\w+", job)})
    job = agent.call("bash", {"command": f"exec {SERVE}", "run_in_background": True})
    answer = agent.call("bash", {"command": _ask(place)})
    agent.call("TaskStop", {"task_id": _first(r"bg_\w+", job)})
    return answer


def other(agent: Agent, place: Place) -> str:
    serve = f"nohup {SERVE} >server.log 2>&1 & echo process $!"
    said = agent.call("run_command", {"command": f"{serve}; {_ask(place)}; cat app.py"})
    edits = [{"oldText": WRONG, "newText": RIGHT}]
    agent.call("edit_file", {"path": "app.py", "edits": edits})
    stop = f"kill {_first(r'(?<=process )[0-9]+', said)}"
    return agent.call("run_command", {"command": f"{stop}; sleep 1; {serve}; {_ask(place)}; kill $!"})


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise Unanswered(f"nothing in the answer matches {pattern}: {text[:500]}")
    return found[0]


def is_done(place: Place, answer: str) -> bool:
    return WANTED in answer and succeeds(
        place, [".venv/bin/python", "-c", "import app; assert app.note(2)['text'] == 'call Ada'"]
    )


TASK = Task(
    name="dev server in the background, bottle",
    prompt="GET /notes/1 answers 500. Start the server in the background, repair it, and stop it.",
    project=SourceDistribution(
        "bottle", "0.13.2", "e53803b9d298c7d343d00ba7d27b0059415f04b9f6f40b8d58b5bf914ba9d348"
    ),
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
