"""What runs beside a session's code, behind the walls: nothing here is ever imported by the server.

`driver.py` starts an interpreter and speaks for it, in lines of JSON on its standard input and output.
`python_session.py` and `node_session.js` are what it has Python and Node run; bash needs no such thing. The
code can reach all of them, so the server believes nothing of what they say, and bounds how much.
"""
