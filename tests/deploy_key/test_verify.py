"""What scripts/deploy-key verify says of a key, by what a real server lets the key do."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.deploy_key.server import BOUND_S, Clone, Server


def test_a_read_only_key_is_proved(node: Clone, server: Server) -> None:
    ran = node.registered("read").run("verify")
    assert ran.exit == 0, ran
    assert ran.out.startswith("proved: SHA256:")
    assert "not authorized to write" in ran.out
    assert server.branches() == ["main"]
    assert not node.git("branch", "--list", "deploy-key*")


def test_a_key_that_can_write_is_exposed_and_its_branch_deleted(
    node: Clone, server: Server
) -> None:
    ran = node.registered("write").run("verify")
    assert ran.exit == 1, ran
    assert "THIS KEY CAN WRITE" in ran.err
    assert "hint: delete that key at the server" in ran.err
    assert "proved" not in ran.out
    assert server.branches() == ["main"]


def test_a_branch_that_could_not_be_deleted_is_named_and_goes_with_the_next_run(
    node: Clone, server: Server
) -> None:
    node.registered("write")
    server.set("receive.denyDeletes", "true")
    ran = node.run("verify")
    assert ran.exit == 1
    (left,) = [name for name in server.branches() if name != "main"]
    assert f"the branch '{left}' could not be deleted again" in ran.err
    server.set("receive.denyDeletes", "false")
    ran = node.run("verify")
    assert ran.exit == 1
    assert "THIS KEY CAN WRITE" in ran.err
    assert server.branches() == ["main"]


def test_a_run_that_is_ended_while_it_pushes_leaves_no_branch(node: Clone, server: Server) -> None:
    node.registered("write")
    begun, go = server.folder / "begun", server.folder / "go"
    for pipe in (begun, go):
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    # Only the first push waits here; the one that deletes does not.
    server.hook("post-receive", f"[ -e {go} ] && echo >{begun} && read -r _ <{go} && rm {go}")
    process = node.start("verify")
    with begun.open() as told:
        told.readline()
    process.send_signal(signal.SIGTERM)
    with go.open("w") as told_to:
        told_to.write("\n")
    _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 143, err
    assert server.branches() == ["main"]


@pytest.mark.parametrize(
    ("access", "says"),
    [
        ("broken", "does not say that the key lacks write access: Gitea: Internal Server Error"),
        ("mirror", "nobody can write to this repository"),
        ("silent", "does not say that the key lacks write access"),
        ("cut", "the connection failed"),
    ],
)
def test_a_push_that_fails_for_another_reason_proves_nothing(
    node: Clone, access: str, says: str
) -> None:
    ran = node.registered(access).run("verify")
    assert ran.exit == 1, ran
    assert "a push failed, but that proves nothing" in ran.err
    assert says in ran.err
    assert not ran.out


def test_a_push_that_a_hook_declines_exposes_a_key_that_is_let_in(
    node: Clone, server: Server
) -> None:
    node.registered("write")
    server.hook("pre-receive", "echo protected >&2", "exit 1")
    ran = node.run("verify")
    assert ran.exit == 1
    assert "THIS KEY IS LET IN TO WRITE" in ran.err
    assert "proves nothing" in ran.err


def test_a_key_that_is_not_registered_can_not_fetch(node: Clone) -> None:
    assert node.init().exit == 0
    ran = node.run("verify")
    assert ran.exit == 1
    assert "cannot fetch from 'origin'" in ran.err
    assert "Permission denied (publickey)" in ran.err
    assert f"register {node.key}.pub" in ran.err


def test_a_server_that_is_down_proves_nothing(node: Clone) -> None:
    node.registered("read")
    node.config.write_text(node.config.read_text().replace(f"Port {node.server.port}", "Port 1"))
    ran = node.run("verify")
    assert ran.exit == 1
    assert "cannot fetch from 'origin'" in ran.err
    assert "Connection refused" in ran.err


def test_a_server_with_another_host_key_is_not_talked_to(node: Clone, server: Server) -> None:
    node.registered("read")
    other = server.folder / "other"
    if not other.exists():
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)]
        subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
    known = node.key.with_suffix(".known_hosts")
    kind, key = other.with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"{node.key.name} {kind} {key}\n")
    ran = node.run("verify")
    assert ran.exit == 1
    assert "Host key verification failed" in ran.err
    assert "init --host-key" in ran.err


def test_what_would_go_round_the_alias_is_refused(node: Clone) -> None:
    node.registered("write")
    node.git("config", "remote.origin.pushurl", "/nowhere")
    assert "pushes to '/nowhere'" in node.run("verify").err
    node.git("config", "--unset", "remote.origin.pushurl")
    node.git("config", "url./nowhere.pushInsteadOf", str(node.key.name))
    assert "git rewrites the address" in node.run("verify").err
    node.git("config", "--remove-section", "url./nowhere")
    node.git("remote", "set-url", "origin", "https://example.org/x")
    ran = node.run("verify")
    assert ran.exit == 1
    assert "is 'https://example.org/x', not 'lumbridge-compute-deploy'" in ran.err


def test_another_key_that_ssh_would_offer_is_refused(node: Clone) -> None:
    node.registered("read")
    node.config.write_text(node.config.read_text() + "Host *\n    IdentityFile ~/.ssh/mine\n")
    ran = node.run("verify")
    assert ran.exit == 1
    assert "ssh would offer other keys too" in ran.err


def test_options_of_the_caller_do_not_count(node: Clone) -> None:
    ran = node.registered("read").run("verify", GIT_SSH_COMMAND="false", GIT_DIR="/nowhere")
    assert ran.exit == 0, ran
