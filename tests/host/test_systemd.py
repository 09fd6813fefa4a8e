from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.host.systemd import detect_scopes, foreign_unit, scope_argv, scope_name

CONTAINER = "3f" * 32


def test_scopes_need_systemd_and_root_and_systemd_run(tmp_path: Path) -> None:
    here, program = str(tmp_path), sys.executable
    assert detect_scopes(0, here, program)
    assert not detect_scopes(1000, here, program)
    assert not detect_scopes(0, str(tmp_path / "no"), program)
    assert not detect_scopes(0, here, str(tmp_path / "no"))


@given(model=st.text(min_size=1, max_size=64), token=st.text("0123456789abcdef", min_size=32))
def test_any_model_gets_a_valid_unit_name(model: str, token: str) -> None:
    name = scope_name(model, token)
    assert re.fullmatch(r"[A-Za-z0-9:_.\\-]+\.scope", name)
    assert name == scope_name(model, token)


def test_two_starts_of_a_model_have_two_scopes() -> None:
    assert scope_name("qwen", "a" * 32) == f"lumbridge-compute-qwen-{'a' * 16}.scope"
    assert scope_name("qwen", "a" * 32) != scope_name("qwen", "b" * 32)


def test_the_longest_name_fits_a_unit() -> None:
    assert len(scope_name("x" * 64, "a" * 32)) < 255


def test_a_model_in_a_scope_runs_its_own_command_unchanged() -> None:
    argv = scope_argv("s.scope", ["vllm", "serve", "--port", "1"])
    assert os.path.basename(argv[0]) == "systemd-run"
    assert "--unit=s.scope" in argv
    assert "--slice=lumbridge-compute.slice" in argv
    assert argv[argv.index("--") + 1 :] == ("vllm", "serve", "--port", "1")


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/nginx.service", "service 'nginx.service'"),
        ("/system.slice/nginx.service/worker", "service 'nginx.service'"),
        (f"/system.slice/docker-{CONTAINER}.scope", f"container 'docker-{CONTAINER}.scope'"),
        (f"/docker/{CONTAINER}", f"container '{CONTAINER}'"),
        (
            f"/machine.slice/libpod-{CONTAINER}.scope/container",
            f"container 'libpod-{CONTAINER}.scope'",
        ),
        ("/machine.slice/machine-box.scope", "machine 'machine-box.scope'"),
        (
            f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINER}.scope",
            f"container 'cri-containerd-{CONTAINER}.scope'",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/qwen.service",
            "service 'qwen.service'",
        ),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", None),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope", None),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.kde.konsole@1.service",
            None,
        ),
        ("/lumbridge.slice/lumbridge-compute.slice/lumbridge-compute-qwen-1.scope", None),
        ("/system.slice/lumbridge-compute-agent.service", None),
        ("/init.scope", None),
        ("/", None),
    ],
)
def test_who_would_restart_a_process_is_read_from_its_cgroup(path: str, unit: str | None) -> None:
    assert foreign_unit(f"0::{path}\n") == unit
    assert foreign_unit(f"4:memory:{path}\n1:name=systemd:{path}\n0::/\n") == unit


def test_no_cgroups_mean_no_unit() -> None:
    assert foreign_unit("") is None
