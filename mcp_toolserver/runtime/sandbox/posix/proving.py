"""Proves the sandbox of commands before the first request, with scripts that are started as commands are."""

import contextlib
import json
import os
import socket
from dataclasses import replace

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.sandbox.broker import temp_folder
from mcp_toolserver.runtime.sandbox.broker.fork import run_in_fork
from mcp_toolserver.runtime.sandbox.broker.messages import Script, encode
from mcp_toolserver.runtime.sandbox.broker.policy import UNCONFINED
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.posix.supervisor import Constants, Job, supervise
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe, Run

PROBE_SECONDS = 20.0
"""How long the script of a probe may take."""


def prove_layer(constants: Constants) -> Proof:
    """Prove what holds commands here, and create the folder for temporary files if any is needed.

    Nothing is raised: where the proof itself goes wrong, no command runs that has to be confined.
    """
    sandbox = constants.broker_policy.sandbox
    if sandbox.mode == UNCONFINED:
        return _unproven(f"commands run without a sandbox in {UNCONFINED}")
    if constants.unwatchable:
        return _unproven(constants.unwatchable)
    if not sandbox.programs:
        return _unproven("no sandbox-exec was found, which puts programs behind Seatbelt")
    try:
        # Only a confined mode needs it.
        from mcp_toolserver.runtime.sandbox.selftest.seatbelt_selftest import prove

        temp_folder.create(constants.broker_policy.scratch)
        proof = prove(sandbox, probe_runner(constants))
    except Exception as error:  # noqa: BLE001  # a server without commands is better than none
        return _unproven(f"the sandbox could not be tested: {str(error) or type(error).__name__}")
    return replace(proof, shares_session=proof.commands == "seatbelt")


def _unproven(reason: str) -> Proof:
    return Proof(commands="none", helpers="none", reasons=(reason,))


def probe_runner(constants: Constants) -> Run:
    """Return what runs the script of a probe as a command."""

    def run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
        """Run it in the first root of `sandbox`; its exit status and what it printed.

        Raises:
            OSError: it was not run, or not to its end.
        """
        # The layer is assumed to hold while it is tried.
        assumed = Proof(commands=probe.layer, helpers=probe.layer, program=probe.program)
        policy = replace(constants.broker_policy, sandbox=sandbox)
        tried = replace(constants, proof=assumed, broker_policy=policy)
        return _run(tried, Script(script=script, timeout=PROBE_SECONDS), sandbox.roots[0])

    return run


def _run(constants: Constants, script: Script, cwd: str) -> tuple[int, str]:
    with contextlib.ExitStack() as opened:
        ours, theirs = socket.socketpair()
        opened.callback(ours.close)
        output = anonymous_file("output")
        opened.callback(os.close, output)
        request = anonymous_file("request")
        os.write(request, encode(script))
        job = Job(
            control=theirs.detach(),
            request=request,
            cwd=os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
            stdin=os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),
            stdout=os.dup(output),
            stderr=os.dup(output),
            marker=os.urandom(16).hex(),
        )
        pid = os.fork()
        if pid == 0:
            ours.close()
            run_in_fork(lambda: supervise(constants, job))
        os.close(job.control)
        job.close_all_but_control()
        ours.settimeout(2 * PROBE_SECONDS)
        try:
            events = ours.makefile("rb").readlines()
        finally:
            ours.shutdown(socket.SHUT_WR)
            os.waitpid(pid, 0)
        printed = os.pread(output, os.fstat(output).st_size, 0)
    return _status(events), printed.decode(errors="replace")


def _status(events: list[bytes]) -> int:
    """The exit status that the last event reports.

    Raises:
        OSError: it reports none.
    """
    last: object = json.loads(events[-1]) if events else None
    match last:
        case {"reason": "exited", "status": int() as status}:
            return status
        case {"refused": str() as why} | {"failed": str() as why} | {"sandbox_failed": str() as why}:
            raise OSError(why)
        case _:
            raise OSError("the script of the self-test did not run to its end")
