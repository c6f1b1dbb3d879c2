"""What the self-test runs inside Seatbelt beyond a shell: a Python program that tries calls of the system.

It prints one line for each thing that it could do, and `calls ended` at its end. It leaves out what a system
does not have. Names of functions are those of macOS: clonefile(2), renamex_np(2), sysctl(3), <libproc.h>,
<bootstrap.h>.
"""

CALLS = """\
import contextlib, ctypes, os, socket, sys
root, hidden_folder, port, local, outsider, token = sys.argv[1:]

def attempt(name, call):
    try:
        if call():
            print(name, "worked", flush=True)
    except (OSError, AttributeError, ValueError, ImportError):
        pass

def connects(family, address):
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as client:
        client.settimeout(5)
        client.connect(address)
    return True

def made_shared():
    import _posixshmem
    os.close(_posixshmem.shm_open(f"/{token}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600))
    _posixshmem.shm_unlink(f"/{token}")
    return True

def looked_at(pid):
    place = ctypes.create_string_buffer(4096)
    return c.proc_pidinfo(pid, 3, ctypes.c_uint64(0), place, len(place)) > 0

def arguments_of(pid):
    names = (ctypes.c_int * 3)(1, 49, pid)
    place, size = ctypes.create_string_buffer(1 << 20), ctypes.c_size_t(1 << 20)
    return c.sysctl(names, 3, place, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0

def found(service):
    bootstrap, port = ctypes.c_uint.in_dll(c, "bootstrap_port"), ctypes.c_uint()
    return c.bootstrap_look_up(bootstrap, service, ctypes.byref(port)) == 0

c = ctypes.CDLL(None)
if int(port):
    attempt("tcp", lambda: connects(socket.AF_INET, ("127.0.0.1", int(port))))
if local:
    attempt("local", lambda: connects(socket.AF_UNIX, local))
attempt("shared", made_shared)
attempt("others", lambda: looked_at(int(outsider)))
attempt("environment", lambda: arguments_of(int(outsider)))
for service in (b"com.apple.SecurityServer", b"com.apple.pasteboard.1",
                b"com.apple.coreservices.launchservicesd", b"com.apple.coreservices.appleevents"):
    attempt("service-" + service.decode(), lambda: found(service))
attempt("clone", lambda: c.clonefile(hidden_folder.encode(), f"{root}/cloned".encode(), 0) == 0)
attempt("folder", lambda: os.mkdir(f"{root}/swapped"))
attempt("swap", lambda: c.renamex_np(f"{root}/.git".encode(), f"{root}/swapped".encode(), 2) == 0)
print("calls ended", flush=True)
"""
