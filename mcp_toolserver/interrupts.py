"""Handling of SIGINT (Ctrl-C) until an event loop handles signals."""

import signal


def end_at_once() -> None:
    """Let SIGINT terminate the process, as SIGTERM does by default. An ignored SIGINT stays ignored.

    Python's own handler raises KeyboardInterrupt in whatever code happens to run. In a destructor or in a
    callback of a weak reference (each import runs one), Python prints the exception and continues: the signal
    is lost. asyncio leaves this setting alone, and replaces it in one step when a handler is added.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_an_exception() -> None:
    """Let SIGINT raise KeyboardInterrupt again, for code that removes files when it is interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
