"""The sessions of the server, each with the namespaces that its commands share."""

from mcp_toolserver.runtime.sandbox.layers.session_namespaces import NewSession, create_session

MOST = 128
"""Sessions at once; the commands of a further one share nothing."""


class Sessions:
    """Creates the namespaces of a session when they are first needed, and keeps them until it ends.

    `state` is the state folder, `network` whether commands have the machine's network, `devices` the result
    of `fixed_devices`.
    """

    def __init__(self, state: str, *, network: bool, devices: int) -> None:
        self._state = state
        self._network = network
        self._devices = devices
        self._sessions: dict[bytes, NewSession] = {}

    def of(self, session: bytes) -> NewSession | None:
        """Return the session of this id; None if it cannot be created, so that its commands share nothing."""
        if session not in self._sessions:
            if len(self._sessions) >= MOST:
                return None
            try:
                self._sessions[session] = create_session(
                    self._state, network=self._network, devices=self._devices
                )
            except OSError:
                return None
        return self._sessions[session]

    def end(self, session: bytes) -> None:
        """Let go of a session. What it shares goes with the last of its commands."""
        if (ended := self._sessions.pop(session, None)) is not None:
            ended.close()

    def close(self) -> None:
        """Let go of all sessions, in the broker or in a fork of it."""
        for session in tuple(self._sessions):
            self.end(session)
