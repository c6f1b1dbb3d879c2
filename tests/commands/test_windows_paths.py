"""Paths of Windows, as WSL shows them."""

from mcp_toolserver.text.windows_paths import WindowsPaths, drives_in

MOUNTS = r"""/dev/sdc / ext4 rw,relatime 0 0
C:\134 /mnt/c 9p rw,noatime,aname=drvfs;path=C:\;uid=1000;symlinkroot=/mnt/,cache=5,trans=fd,rfd=4,wfd=4 0 0
drvfs /windows\040drives/d virtiofs rw,noatime 0 0
none /mnt/wsl tmpfs rw 0 0
none /mnt/C tmpfs rw 0 0
"""
PATHS = WindowsPaths(distribution="Ubuntu", drives={"c": "/mnt/c", "d": "/windows drives/d"})


def test_drives_are_the_mounts_on_folders_named_by_a_letter() -> None:
    assert drives_in(MOUNTS) == PATHS.drives


LOCAL = {
    r"C:\Users\me": "/mnt/c/Users/me",
    "/c:/Users/me": "/mnt/c/Users/me",
    "D:/a b": "/windows drives/d/a b",
    "C:": "/mnt/c",
    "//wsl.localhost/Ubuntu/home/me": "/home/me",
    r"\\wsl$\ubuntu\home\me": "/home/me",
    "//wsl.localhost/Ubuntu": "/",
    "E:/x": None,
    "C:x": None,
    "CC:/x": None,
    "/home/me": None,
    "//wsl.localhost/Debian/home/me": None,
    "//wsl.localhost.example.org/Ubuntu/home/me": None,
    "//server/C:/x": None,
}


def test_a_path_of_windows_becomes_one_of_this_distribution() -> None:
    assert {path: PATHS.local(path) for path in LOCAL} == LOCAL
