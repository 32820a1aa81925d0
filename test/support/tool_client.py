"""A command of test/filecheck: has test/support/tool_server.py run a tool, and ends as the tool does.

    python -I -S tool_client.py SOCKET TOOL ARGUMENTS...

It imports little, and not pathlib: Python's start is what it saves.
"""

import os
import signal
import socket
import sys

_, address, tool, *arguments = sys.argv
request = [os.getcwd(), tool, str(len(arguments)), *arguments]  # noqa: PTH109
environment = [b"%b=%b" % item for item in os.environb.items()]
status = b""
try:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"\0"], [0, 1, 2])
        server.sendall(b"\0".join([*map(os.fsencode, request), *environment]))
        server.shutdown(socket.SHUT_WR)
        status = server.recv(1)
except OSError as e:
    print(f"{tool}: the server of the tools is not there: {e}", file=sys.stderr)
if not status:
    print(f"{tool}: has ended without an exit status", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGABRT)  # a failure also behind `not`
sys.exit(status[0])
