"""The container image: its files, and what its server finds in a container."""

import subprocess
import sys
from pathlib import Path

_SESSION = """
import sys
from mcp_toolserver.runtime.sandbox.layers.session_namespaces import create_session
create_session(sys.argv[1], network=True).close()
"""


def test_devices_are_fixed_where_the_mount_of_dev_has_flags_that_cannot_be_lifted(tmp_path: Path) -> None:
    # As engines mount it; who owns the devices makes them unchangeable in a user namespace.
    script = 'mount -t tmpfs -o nosuid,nodev,noexec tmpfs /dev && touch /dev/null && exec "$@"'
    container = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*container, sys.executable, "-c", _SESSION, str(tmp_path)],
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
