"""Programs that run in the sandbox together with a session's code; the server never imports them.

`driver.py` starts an interpreter and exchanges lines of JSON with the server over standard input and output.
Python and Node run `python_session.py` and `node_session.js`; bash needs no such script. The code can
interfere with all of them, so the server trusts none of their messages and bounds them.
"""
