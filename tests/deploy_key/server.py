"""A real sshd on loopback with git behind it, and a node that pulls from there."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.node import free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "deploy-key"
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
ALIAS = "lumbridge-compute-deploy"
BOUND_S = 120

# What a server does with a key: `read` refuses in Gitea's words, `cut` drops the connection.
GATE = """#!/bin/sh
case $1:$SSH_ORIGINAL_COMMAND in
    *:git-upload-pack\\ * | write:git-receive-pack\\ *) exec git shell -c "$SSH_ORIGINAL_COMMAND" ;;
    read:*) echo "Gitea: Deploy Key: 7:node is not authorized to write to team/node." >&2 ;;
    broken:*) echo "Gitea: Internal Server Error" >&2 ;;
    mirror:*) echo "Gitea: Mirror Repository team/node is read-only" >&2 ;;
    silent:*) exit 0 ;;
    cut:*) kill -KILL "$PPID" ;;
esac
exit 1
"""


@dataclass
class Ran:
    exit: int
    out: str
    err: str


@dataclass
class Server:
    """An sshd whose keys open one bare repository."""

    folder: Path
    port: int
    name: str = field(default_factory=getpass.getuser)

    @property
    def host_key(self) -> Path:
        return self.folder / "host_key.pub"

    @property
    def repository(self) -> Path:
        return self.folder / "node.git"

    def fingerprint(self) -> str:
        return _run("ssh-keygen", "-lf", str(self.host_key)).split()[1]

    def register(self, public: str, access: str) -> None:
        """Let the key in as far as `access` goes: see GATE."""
        gate = f'restrict,command="{self.folder}/gate {access}"'
        (self.folder / "authorized_keys").write_text(f"{gate} {public}\n")

    def branches(self) -> list[str]:
        return _run(
            "git", "-C", str(self.repository), "branch", "--format=%(refname:short)"
        ).split()

    def set(self, name: str, value: str) -> None:
        _run("git", "-C", str(self.repository), "config", name, value)

    def hook(self, name: str, *lines: str) -> None:
        path = self.repository / "hooks" / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)

    def fresh(self) -> None:
        """As at the beginning: no key, one branch, no hook."""
        (self.folder / "authorized_keys").write_text("")
        shutil.rmtree(self.repository, ignore_errors=True)
        shutil.copytree(self.folder / "first.git", self.repository)


@dataclass
class Clone:
    """A node's home folder and its checkout, cloned by path."""

    home: Path
    server: Server

    @property
    def checkout(self) -> Path:
        return self.home / "checkout"

    @property
    def ssh(self) -> Path:
        return self.home / ".ssh"

    @property
    def config(self) -> Path:
        return self.ssh / "config"

    @property
    def key(self) -> Path:
        return self.ssh / ALIAS

    def env(self, **extra: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "SSH_"))}
        return {**kept, "HOME": str(self.home), **extra}

    def start(self, *words: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *words, *([] if "--help" in words else ["--checkout", str(self.checkout)])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env(**extra),
            start_new_session=True,
        )

    def run(self, *words: str, **extra: str) -> Ran:
        process = self.start(*words, **extra)
        out, err = process.communicate(timeout=BOUND_S)
        return Ran(process.returncode, out, err)

    def init_words(self, *options: str) -> list[str]:
        at = ["--port", str(self.server.port), "--user", self.server.name]
        return ["init", *at, *options, "127.0.0.1", str(self.server.repository)]

    def init(self, *options: str) -> Ran:
        """Set up, with the host key from a file unless `options` say otherwise."""
        return self.run(*self.init_words(*(options or ("--host-key", str(self.server.host_key)))))

    def registered(self, access: str) -> Clone:
        """Set up, and let in by the server."""
        ran = self.init()
        assert ran.exit == 0, ran
        self.server.register(self.public(), access)
        return self

    def public(self) -> str:
        return self.key.with_suffix(".pub").read_text().strip()

    def git(self, *words: str) -> str:
        return _run("git", "-C", str(self.checkout), *words, env=self.env())

    def snapshot(self) -> dict[str, tuple[bytes, int, int]]:
        """Content, mode and inode of every file that init may touch."""
        files = [*self.ssh.glob("*"), *(self.checkout / ".git").glob("config*")]
        return {
            str(path.relative_to(self.home)): (
                path.read_bytes(),
                path.stat().st_mode,
                path.stat().st_ino,
            )
            for path in files
            if path.is_file()
        }


@contextmanager
def open_server(folder: Path) -> Iterator[Server]:
    """A server that answers by now.

    Raises: OSError with the reason where this machine can't run one.
    """
    server = Server(folder, free_port())
    (folder / "gate").write_text(GATE)
    (folder / "gate").chmod(0o755)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
    _make_repository(folder / "first.git")
    server.fresh()
    process = start_sshd(server)
    try:
        yield server
    finally:
        process.kill()
        process.communicate()


def start_sshd(server: Server, host_key: str = "host_key") -> subprocess.Popen[str]:
    """An sshd that listens by now.

    Raises: OSError with its words if it does not.
    """
    folder = server.folder
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{server.port}\nHostKey {folder}/{host_key}\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        # Quick, and a bash that is not the first reads nobody's .bashrc.
        "KexAlgorithms curve25519-sha256\nSetEnv SHLVL=2\n"
    )
    argv = [SSHD or "sshd", "-D", "-e", "-f", str(folder / "sshd_config")]
    if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
        # An empty folder that only a service manager makes: made in a mount namespace instead.
        inside = 'mount -t tmpfs -o mode=755 run /run && mkdir /run/sshd && exec "$@"'
        argv = ["unshare", "--mount", "sh", "-c", inside, "-", *argv]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line.strip())
        if "Server listening" in line:
            return process
    process.communicate()
    raise OSError("; ".join(said) or "sshd ended without a word")


def _make_repository(bare: Path) -> None:
    _run("git", "init", "-q", "--bare", "-b", "main", str(bare))
    who = ["-c", "user.name=node", "-c", "user.email=node@example.org"]
    tree = _run("git", "-C", str(bare), "hash-object", "-t", "tree", "-w", "/dev/null")
    commit = _run("git", "-C", str(bare), *who, "commit-tree", "-m", "first", tree)
    _run("git", "-C", str(bare), "update-ref", "refs/heads/main", commit)


def clone(home: Path, server: Server) -> Clone:
    made = Clone(home, server)
    home.mkdir()
    _run("git", "clone", "-q", str(server.repository), str(made.checkout), env=made.env())
    return made


def _run(*argv: str, env: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False
    )
    assert ended.returncode == 0, (argv, ended.stderr)
    return ended.stdout.strip()
