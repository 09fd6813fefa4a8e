"""What scripts/deploy-key init makes, keeps and refuses."""

from __future__ import annotations

import fcntl
import os
import pty
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy_key.server import ALIAS, BOUND_S, SCRIPT, Clone, Server, clone

MINE = "ServerAliveInterval 77\n\nHost elsewhere\n    Port 44\n    User me\n"


def ssh_takes(node: Clone, host: str) -> str:
    argv = ["ssh", "-F", str(node.config), "-G", host]
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=node.env()).stdout


def test_init_makes_key_alias_remote_and_upstream(node: Clone) -> None:
    ran = node.init()
    assert ran.exit == 0, ran
    assert node.ssh.stat().st_mode & 0o777 == 0o700
    assert node.key.stat().st_mode & 0o777 == 0o600
    assert node.public().startswith("ssh-ed25519 ")
    assert node.public() in ran.out
    assert "PRIVATE" not in ran.out + ran.err
    assert "read-only" in ran.out
    taken = ssh_takes(node, ALIAS)
    for line in (
        f"port {node.server.port}",
        "hostname 127.0.0.1",
        "identitiesonly yes",
        "batchmode yes",
        "stricthostkeychecking true",
        f"identityfile {node.key}",
    ):
        assert f"{line}\n" in taken
    assert node.git("remote", "get-url", "origin") == f"{ALIAS}:{node.server.repository}"
    assert node.git("rev-parse", "--abbrev-ref", "main@{upstream}") == "origin/main"


def test_a_plain_pull_works_once_the_key_is_registered(node: Clone) -> None:
    node.registered("read").git("pull", "--ff-only")


def test_gitea_s_port_is_the_default(node: Clone) -> None:
    words = ["init", "--host-key", str(node.server.host_key), "git.example.org", "team/node"]
    ran = node.run(*words)
    assert ran.exit == 0, ran
    assert "port 2223\n" in ssh_takes(node, ALIAS)
    assert "user git\n" in ssh_takes(node, ALIAS)
    assert "https://git.example.org/team/node/settings/keys" in ran.out


def test_a_second_run_changes_no_file(node: Clone) -> None:
    first = node.init()
    before = node.snapshot()
    again = node.init()
    assert again == first
    assert node.snapshot() == before
    # Without a word about the host key, what was pinned stays.
    assert node.run(*node.init_words()) == first
    assert node.snapshot() == before


def test_the_operator_s_own_config_means_what_it_meant(node: Clone) -> None:
    node.ssh.mkdir(mode=0o700)
    mine = node.home / "dotfiles"
    mine.write_text(MINE.rstrip("\n"))
    mine.chmod(0o640)
    node.config.symlink_to(mine)
    before = ssh_takes(node, "elsewhere")
    assert node.init().exit == 0
    assert node.config.is_symlink()
    assert mine.stat().st_mode & 0o777 == 0o640
    assert mine.read_text().endswith(f"<<<\n{MINE}")
    assert ssh_takes(node, "elsewhere") == before
    assert "serveraliveinterval 15\n" in ssh_takes(node, ALIAS)


def test_a_key_of_the_operator_for_every_host_is_refused(node: Clone) -> None:
    node.ssh.mkdir(mode=0o700)
    node.config.write_text("Host *\n    IdentityFile ~/.ssh/mine\n")
    before = node.snapshot()
    ran = node.init()
    assert ran.exit == 1
    assert "ssh would offer other keys too" in ran.err
    assert node.snapshot() == before


def test_a_block_without_an_end_is_refused(node: Clone) -> None:
    assert node.init().exit == 0
    node.config.write_text(node.config.read_text().replace("# <<<", "# <<") + MINE)
    before = node.snapshot()
    ran = node.init()
    assert ran.exit == 1
    assert "has a beginning and no end" in ran.err
    assert node.snapshot() == before


def test_a_host_key_with_the_given_fingerprint_is_pinned(node: Clone) -> None:
    ran = node.init("--fingerprint", node.server.fingerprint())
    assert ran.exit == 0, ran
    kind, key = node.server.host_key.read_text().split()[:2]
    assert f"{ALIAS} {kind} {key}\n" in node.key.with_suffix(".known_hosts").read_text()


def test_a_file_of_known_hosts_gives_the_keys_of_this_host_alone(node: Clone) -> None:
    kind, key = node.server.host_key.read_text().split()[:2]
    known = node.home / "known"
    known.write_text(
        f"other.example.org {kind} {key[:-1]}A\n[127.0.0.1]:{node.server.port} {kind} {key}\n"
    )
    assert node.init("--host-key", str(known)).exit == 0
    pinned = node.key.with_suffix(".known_hosts").read_text().splitlines()[1:]
    assert pinned == [f"{ALIAS} {kind} {key}"]
    known.write_text(f"other.example.org {kind} {key}\n")
    assert "no public key of [127.0.0.1]" in node.init("--host-key", str(known)).err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fingerprint", f"SHA256:{'A' * 43}"], "has none with"),
        (["--branch", "main"], "cannot pin a host key that nobody has confirmed"),
        (["--host-key", "/dev/null"], "no public key of"),
        (["--host-key", "/nowhere"], "cannot read /nowhere"),
        (["--port", "0"], "--port can't be '0'"),
        (["--alias", "-x"], "--alias can't be '-x'"),
        (["--port"], "init needs HOST and OWNER/NAME"),
        (["--colour", "red"], "unexpected option '--colour'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_refusal_changes_nothing_and_never_asks(
    node: Clone, options: list[str], says: str
) -> None:
    before = node.snapshot()
    words = node.init_words(*options)
    if options == ["--port"]:
        words = ["init", "--port", *words[-2:]]
    ran = node.run(*words)
    assert ran.exit == 1, ran
    assert says in ran.err
    assert "hint: " in ran.err or says.startswith("cannot read")
    assert node.snapshot() == before
    assert not list(node.home.rglob("*deploy-key*"))


def test_a_refusal_shows_the_fingerprints_that_were_seen(node: Clone) -> None:
    ran = node.run(*node.init_words())
    assert ran.exit == 1
    assert node.server.fingerprint() in ran.err


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("no", 1)])
def test_a_terminal_is_asked(node: Clone, answer: str, code: int) -> None:
    outside, inside = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, *node.init_words("--checkout", str(node.checkout))],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=node.env(),
        start_new_session=True,
    )
    os.close(inside)
    shown = b""
    while b"(yes/no)?" not in shown:
        shown += os.read(outside, 4096)
    os.write(outside, f"{answer}\n".encode())
    while True:
        try:
            shown += os.read(outside, 4096)
        except OSError:
            break
    os.close(outside)
    assert process.wait(BOUND_S) == code, shown
    assert node.server.fingerprint().encode() in shown
    assert node.key.exists() == (code == 0)


def test_what_would_go_round_the_alias_is_refused(node: Clone) -> None:
    for name, value in (("core.sshCommand", "ssh -i mine"), ("remote.origin.pushurl", "/nowhere")):
        node.git("config", name, value)
        before = node.snapshot()
        ran = node.init()
        assert ran.exit == 1
        assert value in ran.err
        assert node.snapshot() == before
        node.git("config", "--unset", name)


def test_a_checkout_that_is_none_or_has_no_branch_is_refused(node: Clone) -> None:
    node.git("checkout", "-q", "--detach")
    assert "no branch is checked out" in node.init().err
    shutil.rmtree(node.checkout / ".git")
    assert "it is not a git checkout" in node.init().err


@pytest.mark.parametrize("kind", ["passphrase", "rsa"])
def test_a_key_that_is_not_as_init_makes_it_is_refused(node: Clone, kind: str) -> None:
    node.ssh.mkdir(mode=0o700)
    how = ["-t", "ed25519", "-N", "secret"] if kind == "passphrase" else ["-t", "rsa", "-N", ""]
    argv = ["ssh-keygen", "-q", *how, "-f", str(node.key)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    before = node.snapshot()
    ran = node.init()
    assert ran.exit == 1
    assert "move it away and run this again" in ran.err
    assert node.snapshot() == before


def test_the_revocation_s_commands_take_back_what_init_made(node: Clone) -> None:
    node.ssh.mkdir(mode=0o700)
    node.config.write_text(MINE)
    assert node.init().exit == 0
    ran = node.run("revoke-help")
    assert ran.exit == 0
    public = ["ssh-keygen", "-lf", f"{node.key}.pub"]
    shown = subprocess.run(public, capture_output=True, text=True, check=True).stdout.split()[1]
    assert shown in ran.out
    commands = [line.strip() for line in ran.out.partition("or to remove")[2].splitlines()[1:]]
    for command in commands:
        subprocess.run(
            command.replace("ADDRESS", "/nowhere"), shell=True, check=True, env=node.env()
        )
    assert [path.name for path in node.ssh.iterdir()] == ["config"]
    assert node.config.read_text() == MINE
    assert node.git("remote", "get-url", "origin") == "/nowhere"


def test_two_runs_at_a_time_do_not_mix(node: Clone) -> None:
    node.ssh.mkdir(mode=0o700)
    folder = os.open(node.ssh, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        ran = node.init()
        assert ran.exit == 1
        assert "another run is at work" in ran.err
        assert not list(node.ssh.iterdir())
    finally:
        os.close(folder)
    assert node.init().exit == 0


def test_in_the_account_s_own_home_git_needs_no_option(node: Clone) -> None:
    """ssh reads the home of the account, whatever HOME says: seen with ours mounted there."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    inside = (
        f'mount --bind "$0" {home} && export HOME={home} && cd && '
        f'scripts/deploy-key init --checkout checkout "$@" && git -C checkout pull'
    )
    make = ["unshare", "--mount", "bash", "-c", inside, str(node.home)]
    words = node.init_words("--host-key", str(node.server.host_key))[1:]
    tried = ["unshare", "--mount", "mount", "--bind", str(node.home), home]
    if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace here: not root")
    assert node.init().exit == 0
    node.server.register(node.public(), "read")
    node.git("config", "--unset", "core.sshCommand")
    # The checkout of the script may be below the home that is hidden then.
    shutil.copytree(SCRIPT.parent, node.home / "scripts")
    ran = subprocess.run(
        [*make, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=node.env(),
        check=False,
    )
    assert ran.returncode == 0, ran
    assert "sshCommand" not in (node.checkout / ".git" / "config").read_text()
    assert f'IdentityFile "{home}/.ssh/{ALIAS}"' in node.config.read_text()


# Ended half-way: each program that init runs ends it at its Nth call, SIGKILL to the whole session.

SHIM = """#!/bin/sh
echo >>{count}
[ "$(wc -l <{count})" -ne "$KILL_AT" ] || kill -KILL 0
exec {real} "$@"
"""
CHANGING = ("mv", "sync", "ssh-keygen", "mktemp")


@pytest.fixture
def shims(tmp_path: Path) -> Path:
    folder = tmp_path / "shims"
    folder.mkdir()
    for name in CHANGING:
        shim = folder / name
        shim.write_text(SHIM.format(count=tmp_path / "calls", real=shutil.which(name)))
        shim.chmod(0o755)
    return folder


def test_a_kill_at_any_moment_leaves_whole_files_and_the_next_run_completes(
    tmp_path: Path, server: Server, shims: Path
) -> None:
    calls = tmp_path / "calls"
    path = f"{shims}:{os.environ['PATH']}"
    words = ["--host-key", str(server.host_key)]
    done = False
    at = 0
    while not done:
        at += 1
        calls.unlink(missing_ok=True)
        node = clone(tmp_path / f"home{at}", server)
        node.ssh.mkdir(mode=0o700)
        node.config.write_text(MINE)
        git_config = (node.checkout / ".git" / "config").read_text()
        process = node.start(*node.init_words(*words), PATH=path, KILL_AT=str(at))
        process.communicate(timeout=BOUND_S)
        done = process.returncode == 0
        config = node.config.read_text()
        assert config == MINE or (config.endswith(f"<<<\n{MINE}") and "Match all" in config)
        remote = (node.checkout / ".git" / "config").read_text()
        assert remote == git_config or (ALIAS in remote and ALIAS in config and node.key.exists())
        assert not node.key.exists() or node.key.stat().st_mode & 0o777 == 0o600
        if at % 3 == 0 or done:
            assert node.init().exit == 0
            names = {path.name for path in node.ssh.iterdir()}
            assert names == {"config", ALIAS, f"{ALIAS}.pub", f"{ALIAS}.known_hosts"}
            assert not list((node.checkout / ".git").glob("config.*"))
            assert node.git("remote", "get-url", "origin").startswith(f"{ALIAS}:")
    assert at > 10
