"""A branch of itsdangerous is reviewed: one of its two changes opens a timing attack."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import SourceDistribution
from benchmarks.agent.task import Place, Task, git, make_repository, replace, succeeds

SIGNER = "src/itsdangerous/signer.py"
RIGHT = "return hmac.compare_digest(sig, self.get_signature(key, value))"
WRONG = "return sig == self.get_signature(key, value)"
REVIEW = "REVIEW.md"
FOUND = f"""\
# Review of faster-verify

* {SIGNER}:28: compares signatures with `==`, whose time depends on the first difference. An attacker can
  guess a signature byte by byte. Keep `hmac.compare_digest`.
* src/itsdangerous/encoding.py: the new docstring is right.

The tests pass with the change, because none of them measures time. Do not merge.
"""
TESTS = ".venv/bin/python -m pytest -q tests/test_itsdangerous/test_signer.py 2>&1 | tail -n 3"


def prepare(place: Place) -> None:
    make_repository(place)
    git(place, "switch", "--quiet", "--create", "faster-verify")
    replace(place.root / SIGNER, RIGHT, WRONG)
    git(place, "commit", "--quiet", "--all", "--message=Compare signatures faster")
    encoding = place.root / "src/itsdangerous/encoding.py"
    replace(encoding, "or text. The result is\n    bytes.\n", "or text to bytes.\n")
    git(place, "commit", "--quiet", "--all", "--message=Shorten a docstring")


def ours(agent: Agent, place: Place) -> str:
    agent.call("git_diff", {"commit": "main...HEAD"})
    agent.call("bash", {"command": TESTS})
    agent.call("write_file", {"path": REVIEW, "content": FOUND})
    return ""


def other(agent: Agent, place: Place) -> str:
    agent.call("run_command", {"command": f"git diff main...HEAD; {TESTS}"})
    agent.call("write_file", {"path": REVIEW, "content": FOUND})
    return ""


def is_done(place: Place, _answer: str) -> bool:
    lines = (place.root / SIGNER).read_text(encoding="utf-8").splitlines()
    written = (place.root / REVIEW).read_text(encoding="utf-8")
    named = f"{SIGNER}:{1 + next(n for n, line in enumerate(lines) if WRONG in line)}"
    return named in written and succeeds(place, ["git", "diff", "--quiet", "HEAD"])


TASK = Task(
    name="review with git, itsdangerous",
    prompt=f"Review the branch faster-verify against main, run the tests of the signer, and write {REVIEW}.",
    project=SourceDistribution(
        "itsdangerous", "2.2.0", "e0050c0b7da1eea53ffaf149c0cfbb5c6e2e2b69c4bef22c81fa6eb73e5f6173"
    ),
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
    toolsets="default,git",
)
