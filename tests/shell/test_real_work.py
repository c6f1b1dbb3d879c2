"""Servers, databases and test runners of other people work in the sandbox of commands.

Real programs in read-only, which holds more than workspace-write. What is not
installed on this machine is skipped.
"""

import textwrap

import pytest

from tests.support.confinement import READ_ONLY, Server, Servers
from tests.support.sessions import as_root

LIMIT = 60_000
"""Milliseconds for a command; more than any of them needs on a busy machine."""


def needs(server: Server, program: str) -> None:
    """Skip the test where commands do not find a program, or where it does not run."""
    if "exit status" in server.bash(f"{program} 2>&1"):
        pytest.skip(f"commands cannot run {program} on this machine")


def work(server: Server, folder: str, files: dict[str, str], command: str) -> str:
    """What `command` prints in a new folder of the session with these files, and its exit status."""
    lines = [f"rm -rf $TMPDIR/{folder}", f"mkdir $TMPDIR/{folder}", f"cd $TMPDIR/{folder}"]
    for name, text in files.items():
        lines.append(f"cat >{name} <<'END OF FILE'\n{textwrap.dedent(text).strip()}\nEND OF FILE")
    return server.bash("\n".join([*lines, command, "echo status $?"]), timeout=LIMIT)


MULTIPROCESSING = """
    import multiprocessing
    from multiprocessing.shared_memory import SharedMemory

    def square(number):
        return number * number

    if __name__ == "__main__":
        for method in ("fork", "forkserver", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(method, pool.map(square, range(4)))
        for method in ("fork", "forkserver"):
            with multiprocessing.get_context(method).Manager() as manager:
                print("manager", manager.dict(answer=42)["answer"])
        memory = SharedMemory(create=True, size=16)
        memory.buf[0] = 7
        same = SharedMemory(memory.name)
        print("memory", same.buf[0])
        same.close()
        memory.close()
        memory.unlink()
"""


@as_root
def test_processes_of_python_work_together(servers: Servers, user: str, mode: str) -> None:
    said = work(servers(user, mode), "mp", {"a.py": MULTIPROCESSING}, "python3 a.py")
    squares = "[0, 1, 4, 9]"
    expected = [
        f"fork {squares}",
        f"forkserver {squares}",
        f"spawn {squares}",
        *["manager 42"] * 2,
        "memory 7",
    ]
    assert said.splitlines() == [*expected, "status 0"]


POSTGRES = """
    export PATH="$PATH:$(echo /usr/lib/postgresql/*/bin)"
    initdb --auth=trust data >log 2>&1 || cat log
    pg_ctl -D data -o "-k $PWD -p 8125" -l log -w start >/dev/null || cat log
    psql -h 127.0.0.1 -p 8125 postgres -qtA \
        -c "create table numbers as select generate_series(1, 1000) as n" -c "select sum(n) from numbers"
    psql -h "$PWD" -p 8125 postgres -qtAc "select count(*) from numbers"
    pg_ctl -D data -w stop >/dev/null
"""


@pytest.mark.long
def test_a_database_server_works_in_the_temporary_folder(servers: Servers) -> None:
    # Its programs refuse to run as root.
    server = servers("unprivileged", READ_ONLY)
    needs(server, "ls /usr/lib/postgresql/*/bin/initdb")
    said = work(server, "pg", {"run.sh": POSTGRES}, "sh run.sh")
    assert said.splitlines() == ["500500", "1000", "status 0"]
