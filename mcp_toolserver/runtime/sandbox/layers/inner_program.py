"""Runs inside bubblewrap, as `python -I -S -c SOURCE FLAG FOLDER... -- COMMAND...`.

See `bubblewrap.inner_prefix`. It imports as little as it can: every command waits for it.
"""

import ctypes
import os
import sys

WRITE_FILE, REFER = 1 << 1, 1 << 13
ABSTRACT_SOCKETS = 1 << 0
VERSION = 1
FIRST_WITH_REFER, FIRST_WITH_SCOPES = 2, 6
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS = 38
SIGPIPE, SIGXFSZ = 13, 25


def restrict(libc: ctypes.CDLL, folders: list[str], *, scoped: bool) -> None:
    """Let this process, and all it starts, open files for writing and move them below `folders` only.

    Raises:
        OSError: the kernel refused.
    """
    version = _call(libc, CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)
    # Two numbers of 64 bits are handled rights to files and ports; the third is the scope.
    scope = ABSTRACT_SOCKETS if scoped and version >= FIRST_WITH_SCOPES else 0
    # Unless it is handled and allowed, nothing can be moved or linked from one folder to another.
    rights = WRITE_FILE | (REFER if version >= FIRST_WITH_REFER else 0)
    handled = (ctypes.c_uint64 * 3)(rights, 0, scope)
    size = 8 if version < FIRST_WITH_SCOPES else 24
    ruleset = _call(libc, CREATE_RULESET, handled, ctypes.c_size_t(size), 0)
    for folder in folders:
        try:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        _call(libc, ADD_RULE, ruleset, 1, rule, 0)
        os.close(place)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _call(libc, RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    found: int = libc.syscall(ctypes.c_long(number), *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return found


def main() -> None:
    flag, *words = sys.argv[1:]
    split = words.index("--")
    folders, command = words[:split], words[split + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        restrict(libc, folders, scoped=flag == "scoped")
        # Python ignores these for itself, and sets LC_CTYPE; the command gets what bubblewrap got.
        for number in (SIGPIPE, SIGXFSZ):
            libc.signal(number, None)
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib takes milliseconds to import
            given = file.read().split(b"\0")
        environment = dict(line.split(b"=", 1) for line in given if b"=" in line)
        os.execvpe(command[0], command, environment)  # noqa: S606  # this program exists to do this
    except OSError as error:
        sys.stderr.write(f"The sandbox could not be completed, so the command was not started: {error}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
