"""A new argument of a function of click, with its documentation and its test."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import FINISH, Place, Task, is_finished, make_repository, succeeds, tests_pass
from benchmarks.agent.tasks.click_project import CLICK

SOURCE = "src/click/utils.py"
TESTS = "tests/test_utils.py"
READ = f"grep -n -A 42 'def format_filename' {SOURCE}; grep -n format_filename tests/*.py"
RUN = f".venv/bin/python -m pytest -q {TESTS} 2>&1 | tail -n 5; {FINISH}"

SIGNATURE = '    shorten: bool = False,\n) -> str:\n    """Format a filename as'
NEW_SIGNATURE = '    shorten: bool = False,\n    home: bool = False,\n) -> str:\n    """Format a filename as'
PARAMETER = "    :param shorten: this optionally shortens the filename to strip of the\n"
END = '            "utf-8", "replace"\n        )\n\n    return filename\n\n\ndef get_app_dir('
NEW_END = (
    '            "utf-8", "replace"\n        )\n\n'
    '    if home:\n        folder = os.path.expanduser("~") + os.sep\n\n'
    "        if filename.startswith(folder):\n"
    '            filename = os.path.join("~", filename[len(folder) :])\n\n'
    "    return filename\n\n\ndef get_app_dir("
)
NEW_PARAMETER = f"    :param home: show the user's home folder as ``~``.\n{PARAMETER}"
TEST = '    assert click.format_filename(b"/x/\\xff.txt", shorten=True) == "�.txt"\n'
NEW_TEST = f"""{TEST}

def test_filename_formatting_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert click.format_filename("/home/ada/foo.txt", home=True) == "~/foo.txt"
    assert click.format_filename(b"/home/ada/foo.txt", home=True) == "~/foo.txt"
    assert click.format_filename("/home/adam/foo.txt", home=True) == "/home/adam/foo.txt"
    assert click.format_filename("/home/ada/foo.txt") == "/home/ada/foo.txt"
"""
CHANGES = ((SIGNATURE, NEW_SIGNATURE), (PARAMETER, NEW_PARAMETER), (END, NEW_END))
ACCEPTED = (
    "import os, click; os.environ['HOME'] = '/h';"
    "assert click.format_filename('/h/x', home=True) == '~/x';"
    "assert click.format_filename('/h/x') == '/h/x'"
)


def ours(agent: Agent, _place: Place) -> str:
    agent.call("bash", {"command": READ})
    edits = [{"old_string": old, "new_string": new} for old, new in CHANGES]
    agent.call("edit_file", {"path": SOURCE, "edits": edits})
    agent.call("edit_file", {"path": TESTS, "old_string": TEST, "new_string": NEW_TEST})
    return agent.call("bash", {"command": RUN})


def other(agent: Agent, place: Place) -> str:
    agent.call("run_command", {"command": READ})
    edits = [{"oldText": old, "newText": new} for old, new in CHANGES]
    agent.call("edit_file", {"path": SOURCE, "edits": edits})
    test = [{"oldText": TEST, "newText": NEW_TEST}]
    agent.call("edit_file", {"path": TESTS, "edits": test})
    return agent.call("run_command", {"command": RUN})


def is_done(place: Place, _answer: str) -> bool:
    has_test = "def test_filename_formatting_home" in (place.root / TESTS).read_text(encoding="utf-8")
    works = succeeds(place, [".venv/bin/python", "-c", ACCEPTED]) and tests_pass(place)
    return has_test and works and is_finished(place)


TASK = Task(
    name="feature with its test, click",
    prompt="Give format_filename an argument `home` that shows the home folder as ~, with a test. Install "
    "and commit it.",
    project=CLICK,
    prepare=make_repository,
    ours=ours,
    other=other,
    is_done=is_done,
)
