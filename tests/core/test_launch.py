"""From a declared model to what is run, sent and put into the environment."""

from __future__ import annotations

import json

import pytest

from lumbridge_compute.core.launch import (
    TOKEN_VARIABLE,
    UnsetVariable,
    expanded_body,
    expanded_headers,
    expanded_probe_path,
    expanded_stop_command,
    launch_of,
)
from lumbridge_compute.core.registry import DeepProbe, HealthCheck, Model, StopPolicy

ROOT = "/srv/node"


def model(**changes: object) -> Model:
    values: dict[str, object] = {
        "name": "qwen",
        "command": ("serve", "--port", "${port}", "--as=${marker}"),
        "port": 8001,
        "marker": "qwen3-30b",
    }
    return Model(**{**values, **changes})  # type: ignore[arg-type]


def health(**changes: object) -> Model:
    return model(health=HealthCheck(**changes))  # type: ignore[arg-type]


def test_the_command_is_filled_in() -> None:
    launch = launch_of(model(), ROOT, {}, token="t0", scope="s.scope")
    assert launch.argv == ("serve", "--port", "8001", "--as=qwen3-30b")
    assert (launch.model, launch.token, launch.scope) == ("qwen", "t0", "s.scope")


@pytest.mark.parametrize(
    ("cwd", "wanted"),
    [
        (".", "/srv/node"),
        ("run/qwen", "/srv/node/run/qwen"),
        ("/data", "/data"),
        ("${root}/x", "/srv/node/x"),
        ("${env:WORK}", "/work/here"),
    ],
)
def test_the_folder_is_absolute(cwd: str, wanted: str) -> None:
    assert launch_of(model(cwd=cwd), ROOT, {"WORK": "/work/here"}).cwd == wanted


def test_the_environment_is_inherited_less_what_a_manager_tells_one_process_alone() -> None:
    told = {
        "NOTIFY_SOCKET": "/run/n",
        "LISTEN_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "x",
        "WATCHDOG_PID": "1",
        "WATCHDOG_USEC": "1",
        "JOURNAL_STREAM": "8:9",
        "INVOCATION_ID": "0f3c",
        "SYSTEMD_EXEC_PID": "311",
        "MANAGERPID": "1",
        "MANAGERPIDFDID": "7",
        "FDSTORE": "256",
        "MEMORY_PRESSURE_WATCH": "/sys/fs/cgroup/agent/memory.pressure",
        "MEMORY_PRESSURE_WRITE": "c29tZQ==",
        TOKEN_VARIABLE: "of another model",
    }
    assert launch_of(model(), ROOT, {"PATH": "/bin", **told}).env == {"PATH": "/bin"}


def test_the_models_own_environment_wins_and_is_filled_in() -> None:
    declared = (("HF_HOME", "/data/${name}"), ("PATH", "/opt:${env:PATH}"))
    launch = launch_of(model(env=declared), ROOT, {"PATH": "/bin"}, token="t0")
    assert launch.env == {"HF_HOME": "/data/qwen", "PATH": "/opt:/bin", TOKEN_VARIABLE: "t0"}


def test_every_unset_variable_is_named_with_its_place_and_the_model() -> None:
    wanting = model(command=("run", "${env:ONE}"), env=(("X", "${env:TWO}"),))
    with pytest.raises(UnsetVariable) as caught:
        launch_of(wanting, ROOT, {})
    assert caught.value.variables == ("ONE", "TWO")
    assert str(caught.value) == (
        "cannot fill in the placeholders of 'qwen': "
        "${env:ONE} is not set in the environment (in 'command[1]'); "
        "${env:TWO} is not set in the environment (in 'env.X')"
    )


def test_headers_are_filled_in() -> None:
    asked = health(headers=(("Authorization", "Bearer ${env:KEY}"), ("X-Empty", "")))
    assert expanded_headers(asked, ROOT, {"KEY": "s3cret"}) == (
        ("Authorization", "Bearer s3cret"),
        ("X-Empty", ""),
    )


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\n", "a\0", "é", "a "])
def test_a_variable_can_not_add_a_header_and_is_not_shown(value: str) -> None:
    with pytest.raises(UnsetVariable) as caught:
        expanded_headers(health(headers=(("A", "Bearer ${env:KEY}"),)), ROOT, {"KEY": value})
    assert "health.headers.A" in str(caught.value)
    assert "X: 1" not in str(caught.value)


def test_a_body_keeps_its_form_whatever_is_put_in() -> None:
    body = json.dumps({"model": "${marker}", "k-${name}": ["${env:Q}", 1, None, True]})
    asked = health(probe=DeepProbe("/v1/completions", body))
    sent = expanded_body(asked, ROOT, {"Q": '"}, \udc80 {"'})
    assert sent is not None
    assert json.loads(sent) == {
        "model": "qwen3-30b",
        "k-qwen": ['"}, \udc80 {"', 1, None, True],
    }


def test_a_probe_without_a_body_or_no_probe_sends_none() -> None:
    assert expanded_body(health(probe=DeepProbe("/x")), ROOT, {}) is None
    assert expanded_body(model(), ROOT, {}) is None
    assert expanded_probe_path(model(), ROOT, {}) is None


def test_a_body_without_placeholders_is_sent_as_it_is() -> None:
    assert expanded_body(health(probe=DeepProbe("/x", '{"a": 1}')), ROOT, {}) == b'{"a": 1}'


def test_what_is_put_into_a_path_is_encoded() -> None:
    asked = health(probe=DeepProbe("/v1/${env:ID}/x?y=1"))
    path = expanded_probe_path(asked, ROOT, {"ID": "a b?\r\n\udcff"})
    assert path == "/v1/a%20b%3F%0D%0A%FF/x?y=1"


def test_a_path_without_placeholders_is_sent_as_it_is() -> None:
    assert expanded_probe_path(health(probe=DeepProbe("/x%20y")), ROOT, {}) == "/x%20y"


def test_the_stop_command_is_filled_in() -> None:
    stopped = model(stop=StopPolicy(command=("docker", "stop", "${name}")))
    assert expanded_stop_command(stopped, ROOT, {}) == ("docker", "stop", "qwen")
    with pytest.raises(UnsetVariable, match=r"\$\{env:NO\} is not set"):
        expanded_stop_command(model(stop=StopPolicy(command=("${env:NO}",))), ROOT, {})


def test_secrets_do_not_appear_in_a_printed_launch() -> None:
    secret = "${env:KEY}"
    launch = launch_of(model(command=("x", secret), env=(("K", secret),)), ROOT, {"KEY": "s3cret"})
    assert "s3cret" not in repr(launch)
