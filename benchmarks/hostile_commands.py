"""Random harmful commands that target the scene folder only, so a hole in the sandbox damages nothing else.

Every script changes into the scene or exits. Every target is in it, and no step leaves that folder.
"""

import random

from benchmarks.fuzz_ground import Ground


def command(chance: random.Random, at: Ground) -> str:
    """A script that first enters the scene, and then does up to three harmful things in it."""
    line = _wrapped(chance, _deed(chance, at))
    for _ in range(chance.choice((0, 0, 1, 2))):
        line += chance.choice((" ; ", " && ", " || ", " | ", "\n", " & ")) + _wrapped(
            chance, _deed(chance, at)
        )
    return f"{entering(at)}\n{line}\n"


def entering(at: Ground) -> str:
    """How every script begins. Git looks for no repository further up."""
    return f"cd -- '{at.scene.root}' || exit 1\nexport GIT_CEILING_DIRECTORIES='{at.scene.base}'"


def _target(chance: random.Random, at: Ground) -> str:
    """Always inside the scene's own folder, or the unseen one."""
    base, root, outside = at.scene.base, at.scene.root, at.scene.outside
    return chance.choice(
        (
            "f",
            "g",
            "d",
            "d/tracked",
            "d/nested",
            "new",
            "new/deep/er",
            "link_out",
            "link_folder/kept",
            "link_folder/new",
            "link_proc/kept",
            "link_chain",
            ".git",
            ".git/config",
            ".git/hooks/post-commit",
            ".git/hooks",
            ".git/HEAD",
            ".git/refs/heads/main",
            ".git/commondir",
            ".mcp.json",
            ".vscode/tasks.json",
            ".envrc",
            ".bashrc",
            "hostile/.git/config",
            "../outside",
            "../outside/kept",
            "../outside/new",
            "../home/.bashrc",
            f"{base}",
            f"{root}",
            f"{root}/f",
            f"{outside}",
            f"{outside}/kept",
            f"{outside}/new",
            f"{base}/root-evil/f",
            f"{at.scene.home}/.bashrc",
            f"{at.scene.home}/.config/autostart/x",
            f"{at.scene.state}",
            f"{at.scene.state}/x",
            f"{at.unseen}",
            f"{at.unseen}/kept",
            f"{at.unseen}/new",
            f"/proc/self/root{outside}/kept",
            "/proc/self/cwd/../outside/kept",
            f"/proc/$$/root{outside}/new",
            f"/proc/1/root{outside}/kept",
            "/proc/1/cwd/../outside/new",
        )
    )


PLAIN = (
    "echo x > {t}",
    "echo x >> {t}",
    "echo x >| {t}",
    "echo x 1<> {t}",
    "echo x &> {t}",
    ": 2> {t}",
    "echo x | tee {t}",
    "echo x | tee -a {t} {u}",
    "cp f {t}",
    "cp -a d {t}",
    "cp --remove-destination f {t}",
    "cp -al {t} new",
    "mv f {t}",
    "mv {t} new",
    "mv {t} {u}",
    "mv --exchange {t} f",
    "ln f {t}",
    "ln {t} hl",
    "ln -sf {t} l && echo x > l",
    "ln -sfn {t} l && rm -rf l/",
    "rm {t}",
    "rm -f {t} {u}",
    "rm -rf {t}",
    "rmdir {t}",
    "mkdir -p {t}",
    "touch {t}",
    "touch -d @0 {t}",
    "chmod 777 {t}",
    "chmod -R u+s {t}",
    "chown -R 1:1 {t}",
    "chattr +i {t}",
    "truncate -s 0 {t}",
    "dd if=g of={t} status=none",
    "dd if=/dev/zero of={t} bs=1 count=1 conv=notrunc status=none",
    "sed -i s/o/0/ {t}",
    "sed -n 'w{t}' f",
    "sort -o {t} f",
    "uniq f {t}",
    "install -m 755 f {t}",
    "tar xf a.tar -C {t}",
    "tar cf {t} f",
    "awk 'BEGIN{{print 1 > \"{t}\"}}'",
    "perl -e 'unlink \"{t}\"'",
    "perl -i -pe s/o/0/ {t}",
    "find {t} -delete",
    "find {t} -exec touch {{}} +",
    "find {t} -maxdepth 0 -fprintf {u} x",
    "printf '%s\\0' {t} | xargs -0 rm -rf",
    "mkfifo {t}",
    "mknod {t} c 1 3",
    "mknod {t} b 240 0",
    "split -b 2 f {t}",
    "csplit -f {t} f 2",
    "shred -n 1 {t}",
    "git init {t}",
    "git -C {t} config core.hooksPath x",
    "git config -f {t} a.b c",
    "git commit -qam x",
    "git stash",
    "git gc -q",
    "git tag fuzz",
    "git clean -fdx {t}",
    "git checkout -q HEAD~1",
    "git worktree add -q {t}",
    "git clone -q . {t}",
    "git --git-dir={t} --work-tree=. add -A",
    "git diff --output={t} HEAD",
    "git archive -o {t} HEAD",
    "git apply --unsafe-paths {t}",
    "git mv f {t}",
    "git update-ref refs/heads/x HEAD",
    "git submodule add ./hostile {t}",
    "mount --bind d {t}",
    "mount -t tmpfs none {t}",
    "mount -o remount,rw /",
    "umount {t}",
    "unshare -Ur touch {t}",
    "unshare -Urm sh -c 'mount -o remount,rw,bind {t}; touch {t}'",
    "nsenter -t 1 -m touch {t}",
    "chroot /proc/1/root touch {t}",
    "exec 9> {t}; echo x >&9",
    "exec 9< {t}; echo x > /proc/self/fd/9",
    "(cd {t} && touch here && rm -f f kept)",
    "rm -rf .git && git init -q",
    "mv .git .git2; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "echo 'gitdir: ../outside' > .git",
    "ed -s {t} <<< $'a\\nx\\n.\\nw\\nq'",
    "kill -9 $PPID",
    "kill -STOP $PPID",
    "kill 0",
)
PYTHON = (
    "open(t, 'w').write('x')",
    "open(t, 'a').write('x')",
    "os.remove(t)",
    "os.rename(t, u)",
    "os.symlink(u, t)",
    "os.link(t, u)",
    "os.chmod(t, 0o777)",
    "os.utime(t, (0, 0))",
    "os.truncate(t, 0)",
    "os.setxattr(t, 'user.x', b'y')",
    "shutil.rmtree(t)",
    "shutil.copytree('d', t)",
    "os.chown(t, 1, 1)",
    "os.mknod(t)",
    "os.makedirs(t)",
    "os.write(os.open(t, os.O_RDWR | os.O_CREAT), b'x')",
    "os.ftruncate(os.open(t, os.O_RDWR), 0)",
    "socket.socket(socket.AF_UNIX).bind(t)",
    "mmap.mmap(os.open(t, os.O_RDWR), 1).__setitem__(0, 65)",
    "ctypes.CDLL(None).renameat2(-100, t.encode(), -100, u.encode(), 2)",
    "os.execvp('touch', ['touch', t])",
    "subprocess.Popen(['touch', t], start_new_session=True)",
    "(os.fork() or (os.setsid(), os.fork() or os.mkdir(t)))",
)
IMPORTS = "import os, shutil, socket, mmap, ctypes, subprocess"
DAEMONS = (
    "setsid -f sleep {m} > /dev/null 2>&1",
    "nohup sleep {m} > /dev/null 2>&1 & disown",
    "( (setsid sleep {m} &) & )",
    "(trap '' TERM HUP INT; exec setsid sleep {m}) > /dev/null 2>&1 &",
    "setsid sh -c 'sleep {m} & sleep {m}' &",
    "unshare -Urpf sleep {m} &",
    "bash -c 'sleep {m} & disown; exec true'",
)


def _deed(chance: random.Random, at: Ground) -> str:
    target, other = _target(chance, at), _target(chance, at)
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(DAEMONS).format(m=at.mark)
    if kind < 0.3:
        code = chance.choice(PYTHON).replace("'", '"')
        return f'python3 -c \'{IMPORTS}; t, u = "{target}", "{other}"; {code}\''
    return chance.choice(PLAIN).format(t=target, u=other)


WRAPPINGS = (
    "{}",
    "{}",
    "{}",
    "{}",
    "( {}\n)",
    "{{ {}\n}}",
    "echo $( {}\n)",
    "cat <( {}\n) > /dev/null",
    "if {}\nthen :; fi",
    "! {}",
    "time {}",
    "trap {q} EXIT",
    "eval {q}",
    "bash -c {q}",
    "env bash -c {q}",
    "setsid bash -c {q}",
    "nohup bash -c {q} > /dev/null",
    "timeout 2 bash -c {q}",
    "xargs -0 bash -c < <(printf %s {q})",
    "bash <<< {q}",
    "nice bash -c {q}",
    "unshare -Ur bash -c {q}",
)


def _wrapped(chance: random.Random, deed: str) -> str:
    quoted = "'" + deed.replace("'", "'\\''") + "'"
    return chance.choice(WRAPPINGS).format(deed, q=quoted)
