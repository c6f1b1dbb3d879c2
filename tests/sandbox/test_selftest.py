"""The self-test: it proves each layer of the sandbox that works, and finds each one that does not."""

import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from tests.sandbox.weakened_sandbox import Wanted, proof
from tests.support.confinement import READ_ONLY, WORKSPACE_WRITE, Scene, as_user, visible_folder
from tests.support.sessions import each_once
from tests.support.without import around

OUTSIDE = "nothing outside of the root is changed"
ROOT = "nothing in the root is changed"
HOOKS = "hooks and configuration of git are not changed"
STATE = "the server's own folder cannot be read"
HIDDEN = "hidden files cannot be read"
REACHED = "a socket that listens on this machine cannot be reached"
SEEN = "processes outside cannot be seen"
POWERS = "no power of root is left"
FILTERED = "system calls are filtered"
NESTED = "no user namespace can be made"
WRITABLE = "files in the root can be written"
SCRATCH = "temporary files are the command's own"

EVERYWHERE = {"files in the root can be read", "temporary files can be written", STATE, HIDDEN, REACHED}


@pytest.fixture
def base() -> Generator[Path]:
    with visible_folder() as folder:
        for name in ("root", "home", "state"):
            (folder / name).mkdir()
        yield folder


def leftovers(base: Path) -> list[str]:
    """What was not cleared away."""
    return [path.name for path in (base / "state").rglob("*") if path.name != "scratch"]


def held(proof: Proof) -> set[str]:
    assert all(check.held for check in proof.checks), proof.checks
    return {check.name for check in proof.checks}


@each_once
def test_bubblewrap_is_proven(user: str, mode: str, base: Path) -> None:
    scene = Scene(base=base, user=user)
    (base / "run").mkdir()
    scene.own()
    wanted = Wanted(base=base, mode=mode)
    proven = proof(wanted, as_user(scene))
    assert (proven.commands, proven.helpers) == ("bubblewrap", "landlock"), proven.reasons
    assert proven.program in candidates(os.environ["PATH"], ())
    assert proven.shares_session
    names = held(proven)
    assert names >= EVERYWHERE | {OUTSIDE, SEEN, POWERS, FILTERED, SCRATCH}
    assert names >= ({ROOT} if mode == READ_ONLY else {WRITABLE, HOOKS})
    assert leftovers(base) == []


def test_without_bubblewrap_landlock_is_proven_for_reading(base: Path) -> None:
    wanted = Wanted(base=base, options={"programs": []})
    proven = proof(wanted)
    assert (proven.commands, proven.helpers, proven.program) == ("landlock", "landlock", "")
    assert held(proven) >= EVERYWHERE | {ROOT, OUTSIDE, POWERS, FILTERED}
    assert SEEN not in held(proven)
    assert any("no program was found" in reason for reason in proven.reasons)
    assert any("/dev/shm" in reason for reason in proven.reasons)
    assert leftovers(base) == []


def test_landlock_alone_is_not_used_for_writing_unless_the_operator_says_so(base: Path) -> None:
    wanted = Wanted(base=base, mode=WORKSPACE_WRITE, options={"programs": []})
    refused = proof(wanted)
    assert (refused.commands, refused.helpers) == ("none", "landlock")
    assert any("--allow-degraded" in reason for reason in refused.reasons)
    allowed = proof(replace(wanted, options={"programs": [], "allow_degraded": True}))
    assert allowed.commands == "landlock"
    assert held(allowed) >= EVERYWHERE | {WRITABLE}
    assert HOOKS not in held(allowed)
    assert any(".git" in reason for reason in allowed.reasons)


def test_a_granted_network_is_no_problem_of_the_sandbox(base: Path) -> None:
    proven = proof(Wanted(base=base, mode=WORKSPACE_WRITE, options={"network": True}))
    assert proven.commands == "bubblewrap", proven.reasons
    assert REACHED not in held(proven)
    assert proven.shares_session


def test_the_first_program_that_is_proven_is_used(base: Path) -> None:
    (works,) = candidates(os.environ["PATH"], ())[:1]
    proven = proof(Wanted(base=base, options={"programs": ["/nonexistent/bwrap", "/bin/false", works]}))
    assert (proven.commands, proven.program) == ("bubblewrap", works)
    assert ["/bin/false" in reason for reason in proven.reasons] == [False, True]
    assert "status 1" in proven.reasons[1]


@pytest.mark.parametrize(
    ("weakness", "mode", "found"),
    [
        pytest.param("may only read", WORKSPACE_WRITE, [WRITABLE], id="the root is not writable"),
        pytest.param("has network", READ_ONLY, [REACHED], id="network"),
        pytest.param("nothing hidden", WORKSPACE_WRITE, [STATE, HIDDEN], id="secrets"),
        pytest.param(
            "no sandbox", READ_ONLY, [ROOT, OUTSIDE, STATE, REACHED, SEEN, FILTERED], id="none at all"
        ),
        pytest.param(
            "no sandbox", WORKSPACE_WRITE, [HOOKS, OUTSIDE, HIDDEN, NESTED], id="none at all, writing"
        ),
    ],
)
def test_a_layer_that_does_not_work_is_found_out(
    weakness: str, mode: str, found: list[str], base: Path
) -> None:
    (works,) = candidates(os.environ["PATH"], ())[:1]
    # Without Landlock, there is nothing else to use.
    options = {"programs": [works], "allow_degraded": True}
    wanted = Wanted(base=base, mode=mode, weakness=weakness, options=options, abi=0)
    proven = proof(wanted)
    assert proven.commands == "none"
    assert proven.helpers == "none"
    tried = next(reason for reason in proven.reasons if works in reason)
    assert [name for name in found if name not in tried] == []
    assert leftovers(base) == []


@pytest.mark.parametrize(
    ("weakness", "says"), [("joins the machine's network", REACHED), ("cannot share", "no namespace")]
)
def test_what_a_session_shares_is_not_used_unless_it_holds(weakness: str, says: str, base: Path) -> None:
    proven = proof(Wanted(base=base, mode=WORKSPACE_WRITE, weakness=weakness))
    assert (proven.commands, proven.shares_session) == ("bubblewrap", False), proven.reasons
    assert REACHED in held(proven)
    (reason,) = proven.reasons
    assert "share nothing" in reason
    assert says in reason


def test_powers_of_root_that_are_kept_are_found_out(base: Path) -> None:
    proven = proof(Wanted(base=base, weakness="keeps powers", options={"allow_degraded": True}, abi=0))
    has_powers = os.geteuid() == 0
    assert proven.commands == ("none" if has_powers else "bubblewrap")
    assert any(POWERS in reason for reason in proven.reasons) == has_powers


@pytest.mark.parametrize("weakness", ["does not start", "lies", "is cut short"])
def test_what_did_not_run_proves_nothing(weakness: str, base: Path) -> None:
    wanted = Wanted(base=base, mode=WORKSPACE_WRITE, weakness=weakness)
    proven = proof(wanted)
    assert (proven.commands, proven.helpers, proven.checks) == ("none", "none", ())
    assert leftovers(base) == []


def test_a_proof_that_goes_wrong_is_a_proof_of_nothing(base: Path) -> None:
    proven = proof(Wanted(base=base, options={"programs": None}))
    assert (proven.commands, proven.helpers) == ("none", "none")
    assert proven.reasons


def test_an_old_landlock_is_not_used(base: Path) -> None:
    proven = proof(Wanted(base=base, abi=2, options={"programs": []}))
    assert (proven.commands, proven.helpers) == ("none", "none")
    assert any("version 2" in reason and "version 3" in reason for reason in proven.reasons)
    lower = proof(Wanted(base=base, abi=2))
    assert (lower.commands, lower.helpers) == ("bubblewrap", "bubblewrap")
    none = proof(Wanted(base=base, abi=0))
    assert (none.commands, none.helpers) == ("none", "none")
    assert any("named pipes" in reason for reason in none.reasons)


def test_without_user_namespaces_the_reason_is_what_bubblewrap_said(base: Path) -> None:
    proven = proof(Wanted(base=base), around("user-namespaces"))
    assert (proven.commands, proven.helpers) == ("landlock", "landlock"), proven.reasons
    (works,) = candidates(os.environ["PATH"], ())[:1]
    assert any(works in reason and "namespace" in reason for reason in proven.reasons)


def test_without_filters_nothing_holds_commands_that_use_the_network(base: Path) -> None:
    proven = proof(Wanted(base=base, options={"network": True}), around("seccomp"))
    assert (proven.commands, proven.helpers) == ("none", "none")
    assert any("network" in reason for reason in proven.reasons)
