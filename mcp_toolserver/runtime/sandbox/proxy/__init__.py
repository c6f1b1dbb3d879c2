"""The proxy: the one way from the network namespace of a session to the hosts that the operator listed."""
