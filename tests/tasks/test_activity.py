"""Whether processes have run: nothing that ran may be taken for something that slept."""

import subprocess
import sys

from mcp_toolserver.runtime.sandbox.protected.thread_activity import activity_of, has_run

HOPPING = """
import mmap, os, sys
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.protected.thread_activity import activity_of, has_run

kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
hops = memoryview(mmap.mmap(-1, 16)).cast("q")
if os.fork() == 0:
    # Each lives for a moment only, and its successor is nobody's child in particular.
    while not hops[1] and hops[0] < 10_000:
        hops[0] += 1
        if os.fork():
            os._exit(0)
    os._exit(0)
before, hopped, missed, looks = activity_of(os.getpid()), hops[0], 0, 0
while True:
    went_on = hops[0] != hopped
    after = activity_of(os.getpid())
    missed += went_on and not has_run(before, after)
    looks += went_on
    hops[1] = looks >= 10
    before, hopped = after, hops[0]
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        break
print(looks, missed)
"""


def test_what_sleeps_has_not_run_and_what_is_woken_has() -> None:
    sleeper = (
        "import sys; print('asleep', flush=True); sys.stdin.readline(); print('woken', flush=True); input()"
    )
    script = f"""
import os, subprocess, sys, time
from mcp_toolserver.runtime.sandbox.protected.thread_activity import activity_of, has_run
with subprocess.Popen([sys.executable, "-c", {sleeper!r}], stdin=-1, stdout=-1, bufsize=0) as child:
    def asleep():
        for _ in range(10_000):
            if (seen := activity_of(os.getpid())) is not None and seen == activity_of(os.getpid()):
                return seen
    child.stdout.readline()
    before = asleep()
    print(has_run(before, activity_of(os.getpid())))
    child.stdin.write(b"x\\n")
    child.stdout.readline()
    print(has_run(before, asleep()))
    child.kill()
"""
    assert _printed(script).split() == ["False", "True"]


def test_a_process_that_forks_and_ends_all_the_time_is_not_missed() -> None:
    looks, missed = map(int, _printed(HOPPING).split())
    assert looks >= 10
    assert missed == 0


def test_no_process_has_not_run() -> None:
    assert not has_run(frozenset(), frozenset())
    assert has_run(None, frozenset())
    assert has_run(activity_of(0), None)


def _printed(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return done.stdout
