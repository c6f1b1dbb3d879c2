"""A simulated Darwin: an interpreter of Seatbelt profiles, a stand-in that enforces them, and the server.

Nothing here is macOS. `sbpl` reads a profile more strictly than libsandbox does; `stand_in.c` enforces it
in the C library's functions, for programs that do not try to get around it.
"""
