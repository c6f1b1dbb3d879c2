"""The networks that sessions share among their commands, kept by the broker while they are in use."""

from collections.abc import Container

from mcp_toolserver.runtime.sandbox.layers.shared_network import SharedNetwork

MOST = 64
"""Networks at once. More commands than that cannot run, so there is always one that is not in use."""


class SessionNetworks:
    """Creates the network of a session with its first command."""

    def __init__(self) -> None:
        self._networks: dict[bytes, SharedNetwork] = {}
        """The most recently used last."""

    def of(self, session: bytes, in_use: Container[bytes]) -> SharedNetwork | None:
        """Return the network of `session`; None if none can be created, so that each command gets its own.

        Sessions `in_use` have running commands. The network of another one may be dropped to make room: it
        holds nothing that the next command of its session could miss.
        """
        network = self._networks.pop(session, None)
        if network is None:
            self._make_room(in_use)
            try:
                network = SharedNetwork.create()
            except OSError:
                return None
        self._networks[session] = network
        return network

    def _make_room(self, in_use: Container[bytes]) -> None:
        if len(self._networks) >= MOST:
            unused = next((session for session in self._networks if session not in in_use), None)
            if unused is not None:
                self._networks.pop(unused).close()

    def close(self) -> None:
        """Close all, in the broker or in a fork of it."""
        for network in self._networks.values():
            network.close()
        self._networks.clear()
