"""A machine that lacks something.

`python -m tests.support.without FEATURE... -- COMMAND...` runs COMMAND on it.
What is taken away is taken away for real and for good, from the command and from all that it starts: system
calls by a filter that answers as a kernel without them does, a program by mounting a device over it.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

from mcp_toolserver.runtime.sandbox.layers import kernel, landlock
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.seccomp import MACHINES, SECCOMP

CALLS = {
    "x86_64": {"clone": 56, "prctl": 157, "mount": 165, "unshare": 272, "setns": 308},
    "aarch64": {"clone": 220, "prctl": 167, "mount": 40, "unshare": 97, "setns": 268},
}[os.uname().machine]
CLONE3 = 435

CLONE_NEWUSER = 0x10000000
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38

_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _answer(number: int, error: int) -> bytes:
    """`number` fails with `error`."""
    return _instruction(0x15, number, no=1) + _instruction(0x06, _ERROR | error)


def _answer_for(number: int, error: int, *, test: int, value: int) -> bytes:
    """As `_answer`, when the first argument passes the `test` of BPF with `value`."""
    refuse = _instruction(test, value, no=1) + _instruction(0x06, _ERROR | error)
    # Whatever comes next in the filter reads the number again.
    looked = _instruction(0x20, 16) + refuse + _instruction(0x20, 0)
    return _instruction(0x15, number, no=len(looked) // 8) + looked


def _user_namespaces() -> bytes:
    return (
        _answer(CALLS["unshare"], errno.EPERM)
        + _answer(CALLS["mount"], errno.EPERM)
        + _answer(CLONE3, errno.ENOSYS)
        + _answer_for(CALLS["clone"], errno.EPERM, test=0x45, value=CLONE_NEWUSER)
    )


def _filters() -> bytes:
    number = SECCOMP[MACHINES[os.uname().machine][0]]
    by_prctl = _answer_for(CALLS["prctl"], errno.EINVAL, test=0x15, value=PR_SET_SECCOMP)
    return _answer(number, errno.EINVAL) + by_prctl


FILTERS: Mapping[str, Callable[[], bytes]] = {
    "landlock": lambda: _answer(landlock.CREATE_RULESET, errno.ENOSYS),
    "landlock-at-boot": lambda: _answer(landlock.CREATE_RULESET, errno.EOPNOTSUPP),
    "user-namespaces": _user_namespaces,
    "seccomp": _filters,
    "setns": lambda: _answer(CALLS["setns"], errno.EPERM),
    "openat2": lambda: _answer(kernel.OPENAT2, errno.ENOSYS),
}


def _load(blocks: Sequence[bytes]) -> None:
    """By prctl, and all at once: the filter may take away the means of loading another."""
    program = _instruction(0x20, 0) + b"".join(blocks) + _instruction(0x06, _ALLOW)
    code = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    nothing = ctypes.c_ulong(0)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), nothing, nothing, nothing) == 0
    assert libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), described, nothing, nothing) == 0


def _hide_bubblewrap(command: Sequence[str]) -> list[str]:
    """`command` where each file that might be bubblewrap is a device that cannot be run."""
    hidden = [f"mount --bind /dev/null {program}" for program in candidates(os.environ["PATH"], ())]
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *as_root, "--mount", "sh", "-c", " && ".join((*hidden, 'exec "$@"')), "sh", *command]


FEATURES = (*FILTERS, "bubblewrap")


def around(*features: str) -> tuple[str, ...]:
    """What goes before a command for it to run without `features`."""
    assert set(features) <= set(FEATURES), features
    return (sys.executable, "-m", "tests.support.without", *features, "--")


def main(arguments: Sequence[str]) -> None:
    """Take the features away, and become the command."""
    split = arguments.index("--")
    features, command = arguments[:split], list(arguments[split + 1 :])
    if "bubblewrap" in features:
        rest = [feature for feature in features if feature != "bubblewrap"]
        command = _hide_bubblewrap([*around(*rest), *command])
        os.execvp(command[0], command)
    if filters := [FILTERS[feature]() for feature in features if feature in FILTERS]:
        _load(filters)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
