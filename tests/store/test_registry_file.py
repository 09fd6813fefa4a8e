"""compute.yaml as an operator writes it, right and wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.registry import (
    Address,
    DeepProbe,
    GatewaySpec,
    HealthCheck,
    Match,
    Model,
    PortOwner,
    Registry,
    Scene,
    StopPolicy,
)
from lumbridge_compute.errors import BadInput, Exit
from lumbridge_compute.store.registry_file import (
    MAX_SHOWN_FAULTS,
    parse_registry,
    read_registry,
    render_fault,
)
from lumbridge_compute.store.yaml_values import Fault
from tests.store.registry_documents import FULL, to_yaml

OF_THE_CONTRACT = """\
version: 1

node:
  memory_floor: 3GiB
  gateways:
    - listen: 127.0.0.1:8011
      upstream: 127.0.0.1:8001
      allow: [127.0.0.0/8, 10.0.0.0/8]
      hold: 10m
      drain: 30s

models:
  qwen:
    command: [vllm, serve, Qwen/Qwen3-30B-A3B-FP8, --port, "${port}", --name, "${marker}"]
    host: 127.0.0.1
    port: 8001
    marker: qwen3-30b
    cwd: .
    env: {HF_HOME: /data/hf}
    memory: 60GiB
    health:
      path: /v1/models
      match: json
      pointer: /model
      ready: /health
      headers: {Authorization: "Bearer ${env:VLLM_API_KEY}"}
      timeout: 15m
      request_timeout: 5s
      probe: {path: /v1/completions, body: {model: "${marker}", prompt: "1", max_tokens: 1}}
    stop:
      signal: SIGTERM
      grace: 30s
    port_owner: any
    stop_command: [docker, stop, qwen]
  tiny: {command: tiny --port 8002 --name 'a b', port: 8002}

scenes:
  voice-qwen:
    models: [qwen, tiny]
    sacrifice: [tiny, qwen]
    description: Voice assistant on Qwen3-30B
"""


def good(text: str) -> Registry:
    registry, faults = parse_registry(text.encode())
    assert faults == ()
    assert registry is not None
    return registry


def lines(text: str) -> list[str]:
    registry, faults = parse_registry(text.encode())
    assert registry is None
    return [render_fault("f", fault) for fault in faults]


def model(body: str, *, before: str = "") -> str:
    """A registry with one model, whose keys begin on line 4 in column 5."""
    shift = "\n".join(f"    {line}" for line in body.splitlines())
    return f"version: 1\n{before}models:\n  m:\n{shift}\n"


GOOD_MODEL = "command: [m, '${port}']\nport: 8001\n"


def test_every_key_of_the_contract_is_read() -> None:
    registry = good(OF_THE_CONTRACT)
    qwen = Model(
        name="qwen",
        command=(
            *("vllm", "serve", "Qwen/Qwen3-30B-A3B-FP8", "--port", "${port}"),
            *("--name", "${marker}"),
        ),
        port=8001,
        marker="qwen3-30b",
        env=(("HF_HOME", "/data/hf"),),
        memory_bytes=60 * 1024**3,
        health=HealthCheck(
            path="/v1/models",
            match=Match.JSON,
            pointer="/model",
            ready="/health",
            headers=(("Authorization", "Bearer ${env:VLLM_API_KEY}"),),
            timeout_s=900.0,
            request_timeout_s=5.0,
            probe=DeepProbe("/v1/completions", '{"max_tokens":1,"model":"${marker}","prompt":"1"}'),
        ),
        stop=StopPolicy("SIGTERM", 30.0, ("docker", "stop", "qwen")),
        port_owner=PortOwner.ANY,
    )
    tiny = Model("tiny", ("tiny", "--port", "8002", "--name", "a b"), 8002, "tiny")
    scene = Scene("voice-qwen", ("qwen", "tiny"), ("tiny", "qwen"), "Voice assistant on Qwen3-30B")
    gateway = GatewaySpec(
        Address("127.0.0.1", 8011), Address("127.0.0.1", 8001), ("127.0.0.0/8", "10.0.0.0/8")
    )
    assert registry == Registry(
        models={"qwen": qwen, "tiny": tiny},
        scenes={"voice-qwen": scene},
        memory_floor_bytes=3 * 1024**3,
        gateways=(gateway,),
    )


def test_the_defaults_are_those_of_the_contract() -> None:
    found = good(model(GOOD_MODEL)).models["m"]
    assert found == Model("m", ("m", "${port}"), 8001, "m")
    assert (found.host, found.cwd, found.memory_bytes) == ("127.0.0.1", ".", None)
    assert found.health.path == "/v1/models"
    assert found.health.match is Match.MODELS
    assert (found.health.timeout_s, found.health.request_timeout_s) == (900.0, 5.0)
    assert (found.stop.signal, found.stop.grace_s) == ("SIGTERM", 30.0)
    assert found.port_owner is PortOwner.PROCESS
    assert good(model(GOOD_MODEL)).memory_floor_bytes is None


def test_anchors_aliases_and_merge_keys_work() -> None:
    registry = good("""\
version: 1
models:
  a: &a
    command: &c [serve, "${port}"]
    port: 8001
    health: &h {timeout: 1h}
  b:
    <<: *a
    port: 8002
  c: {command: *c, port: 8003, health: {<<: *h, path: /x}}
""")
    assert registry.models["b"] == Model(
        "b", ("serve", "${port}"), 8002, "b", health=HealthCheck(timeout_s=3600.0)
    )
    assert registry.models["c"].health == HealthCheck(path="/x", timeout_s=3600.0)


def test_two_scenes_may_use_one_port_for_different_models() -> None:
    registry = good("""\
version: 1
models: {a: {command: a, port: 1}, b: {command: b, port: 1}}
scenes: {x: {models: [a]}, y: {models: [b]}}
""")
    assert [found.name for found in registry.models_of("y")] == ["b"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("512MiB", 512 * 1024**2),
        ("3GiB", 3 * 1024**3),
        ("3 GiB", 3 * 1024**3),
        ("1.5GB", 1_500_000_000),
        ("2", 2 * 1024**3),
        ("0.5", 1024**3 // 2),
        ("'2'", 2 * 1024**3),
        ("17B", 17),
        ("0.1GiB", 107374182),
        ("1024TiB", 1024**5),
        ("0", 0),
    ],
)
def test_sizes_have_units_and_a_bare_number_is_gib(text: str, wanted: int) -> None:
    found = good(model(f"{GOOD_MODEL}memory: {text}"))
    assert found.models["m"].memory_bytes == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("15m", 900.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("0.001ms", 1e-06),
        ("45", 45.0),
        ("2.5", 2.5),
        ("168h", 604800.0),
    ],
)
def test_times_have_units_and_a_bare_number_is_seconds(text: str, wanted: float) -> None:
    assert good(model(f"{GOOD_MODEL}health: {{timeout: {text}}}")).models["m"].health.timeout_s == (
        wanted
    )


@pytest.mark.parametrize(
    "text", ["3G", "3gib", "-1", "1e3", "010", "1.5B", ".5GiB", "many", "1025TiB", "3  GiB", "~"]
)
def test_other_sizes_are_refused(text: str) -> None:
    (line,) = lines(model(f"{GOOD_MODEL}memory: {text}"))
    assert line.startswith("f:6:13: models.m.memory: wants a size up to 1024TiB, found ")


@pytest.mark.parametrize("text", ["0", "0s", "0.0ms", "1d", "-5s", "169h", "inf", ".inf", "1h30m"])
def test_other_times_are_refused(text: str) -> None:
    (line,) = lines(model(f"{GOOD_MODEL}health: {{request_timeout: {text}}}"))
    assert "wants a time over 0 and up to 168h, found " in line


def test_a_grace_and_a_hold_may_be_nothing() -> None:
    assert good(model(f"{GOOD_MODEL}stop: {{grace: 0}}")).models["m"].stop.grace_s == 0.0


@pytest.mark.parametrize("text", ["0", "0.0", "0GiB"])
def test_a_floor_of_nothing_is_no_floor(text: str) -> None:
    found = good(model(GOOD_MODEL, before=f"node: {{memory_floor: {text}}}\n"))
    assert found.memory_floor_bytes is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("8001", "8001"),
        ("0.50", "0.50"),
        ("010", "010"),
        ("1e3", "1e3"),
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_0", "1_0"),
        ("2024-01-01", "2024-01-01"),
        ("'true'", "true"),
    ],
)
def test_arguments_and_variables_keep_the_text_that_was_written(text: str, wanted: str) -> None:
    found = good(model(f"command: [x, {text}]\nport: 1\nenv: {{A: {text}}}")).models["m"]
    assert found.command == ("x", wanted)
    assert found.env == (("A", wanted),)


@pytest.mark.parametrize("text", ["true", "False", "~", "null"])
def test_booleans_and_nothing_are_no_arguments(text: str) -> None:
    first, second = lines(model(f"command: [x, {text}]\nport: 1\nenv: {{A: {text}}}"))
    assert first.startswith("f:4:18: models.m.command[1]: wants a text or a number, found ")
    assert "models.m.env.A: wants a text or a number" in second


@pytest.mark.parametrize("text", ["010", "1e3", "5", "true", "~"])
def test_a_marker_that_yaml_takes_for_something_else_is_to_be_quoted(text: str) -> None:
    (line,) = lines(model(f"{GOOD_MODEL}marker: {text}"))
    assert line.startswith("f:6:13: models.m.marker: wants a marker, found ")


@pytest.mark.parametrize("text", ["on", "no", "12:30", "1_0"])
def test_a_marker_that_is_a_text_by_yaml_1_2_is_a_text(text: str) -> None:
    assert good(model(f"{GOOD_MODEL}marker: {text}")).models["m"].marker == text


def test_the_order_of_variables_and_headers_means_nothing() -> None:
    one = good(model(f"{GOOD_MODEL}env: {{B: 1, A: 2}}\nhealth: {{headers: {{b: 1, a: 2}}}}"))
    other = good(model(f"{GOOD_MODEL}env: {{A: 2, B: 1}}\nhealth: {{headers: {{a: 2, b: 1}}}}"))
    assert one == other


def test_addresses_of_ipv6_have_one_form() -> None:
    found = good(
        model(
            f"{GOOD_MODEL}host: '0:0:0:0:0:0:0:1'",
            before='node: {gateways: [{listen: "[::0001]:9", upstream: "[::1]:8001"}]}\n',
        )
    )
    assert found.models["m"].host == "::1"
    assert found.gateways[0].listen == Address("::1", 9)


def test_all_faults_are_listed_with_place_key_and_nearest_name() -> None:
    text = """\
version: 2
nodes: {}
models:
  qwen:
    comand: x
    port: 70000
    health: {match: jsno, timeuot: 5}
    stop: {signal: SIGTREM}
  Whisper: {command: [], port: 8002, prot: 1}
  tts: {command: [a, "${prot}"], port: "8003"}
  vad: {command: 5, port: 8002}
scenes:
  one: {models: []}
  two: {models: [qwem, tts, tts, vad], sacrifice: [vid]}
"""
    assert (
        "\n".join(lines(text))
        == """\
f:1:10: version: wants version 1, found a whole number (2); this program reads version 1
f:2:1: nodes: unknown key 'nodes'; did you mean 'node'?
f:5:5: models.qwen: the key 'command' is missing
f:5:5: models.qwen.comand: unknown key 'comand'; did you mean 'command'?
f:6:11: models.qwen.port: wants a port from 1 to 65535, found a whole number (70000); \
write it as a decimal number without quotes
f:7:21: models.qwen.health.match: wants a way to find the marker, found 'jsno'; \
one of models, json, text; did you mean 'json'?
f:7:27: models.qwen.health.timeuot: unknown key 'timeuot'; did you mean 'timeout'?
f:8:20: models.qwen.stop.signal: wants a signal that asks a process to end, found 'SIGTREM'; \
one of SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGABRT; \
SIGKILL follows by itself after `grace`; did you mean 'SIGTERM'?
f:9:3: models.Whisper: wants a name as key, found 'Whisper'; \
1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit
f:9:22: models.Whisper.command: wants a list of arguments, or one line, found an empty list
f:9:38: models.Whisper.prot: unknown key 'prot'; did you mean 'port'?
f:10:22: models.tts.command[1]: '${prot}' is not a placeholder; did you mean 'port'?
f:10:40: models.tts.port: wants a port from 1 to 65535, found '8003'; \
write it as a decimal number without quotes
f:11:18: models.vad.command: wants a command, found a whole number (5); put it in quotes: "5"
f:13:17: scenes.one.models: wants a list of at least one model, found an empty list
f:14:18: scenes.two.models[0]: unknown model 'qwem'; did you mean 'qwen'?
f:14:29: scenes.two.models[2]: 'tts' stands here twice, first as [1]; keep one of the two
f:14:52: scenes.two.sacrifice[0]: 'vid' is not a model of this Scene; did you mean 'vad'?"""
    )


def test_where_no_name_is_near_those_that_there_are_are_named() -> None:
    models = ", ".join(f"m{i:02}: {{command: [a], port: {i + 1}}}" for i in range(12))
    text = f"""version: 1
models: {{{models}}}
scenes: {{s: {{models: [zebra, m00], sacrifice: [voice]}}}}
"""
    _, faults = parse_registry(text.encode())
    assert [fault.hint for fault in faults] == [
        "known here: m00, m01, m02, m03, m04, m05, m06, m07, m08, m09, ...",
        "known here: m00",
    ]


PLAIN = "{listen: '127.0.0.1:9', upstream: '127.0.0.1:8001'}"


@pytest.mark.parametrize(
    ("gateways", "message"),
    [
        ("[{listen: '127.0.0.1:8001', upstream: '127.0.0.1:9'}]", "on the port of the model 'm'"),
        ("[{listen: '10.0.0.1:8001', upstream: '127.0.0.1:8001'}]", "on the port of the model"),
        ("[{listen: '127.0.0.1:9', upstream: '127.0.0.1:9'}]", "would relay to itself"),
        ("[{listen: '0.0.0.0:9', upstream: '127.0.0.1:9'}]", "would relay to itself"),
        (f"[{PLAIN}, {{listen: '[::]:9', upstream: '127.0.0.1:8001'}}]",
         "[::]:9 is taken by gateways[0], on 127.0.0.1:9"),
        (f"[{PLAIN}, {{listen: '127.0.0.1:10', upstream: '127.0.0.1:9'}}]",
         "127.0.0.1:9 is the upstream of gateways[1]"),
        ("[{listen: '127.0.0.1:9', upstream: '127.0.0.1:8001', allow: []}]", "an empty list"),
        ("[{listen: '127.0.0.1:9', upstream: '127.0.0.1:8001', allow: [10.0.0.1/8]}]",
         "the network is 10.0.0.0/8"),
        ("[{listen: 'localhost:9', upstream: '127.0.0.1:8001'}]", "wants a literal address"),
        ("[{listen: '127.0.0.1:0', upstream: '127.0.0.1:8001'}]", "wants a literal address"),
        ("[{listen: '127.0.0.1:9'}]", "the key 'upstream' is missing"),
        ("{}", "wants a list of gateways, found a mapping"),
    ],
)  # fmt: skip
def test_gateways_that_can_not_work_are_refused(gateways: str, message: str) -> None:
    (line,) = lines(model(GOOD_MODEL, before=f"node: {{gateways: {gateways}}}\n"))
    assert message in line


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("host: localhost", "wants a literal IPv4 or IPv6 address, found 'localhost'"),
        ("host: fe80::1%eth0", "wants a literal IPv4 or IPv6 address"),
        ("cwd: ''", "wants a folder, found ''"),
        ("marker: ' x'", "wants a marker"),
        ("env: {1A: x}", "models.m.env.1A: wants the name of a variable as key"),
        ("env: {LUMBRIDGE_COMPUTE_TOKEN: x}", "is the program's own"),
        ('env: {A: "a\\0b"}', "models.m.env.A: wants a text or a number, found another text"),
        ("env: {A: [1]}", "found a list"),
        ("env: [A]", "wants environment variables by name, found a list"),
        ("health: {match: json}", "match: json needs the key 'pointer'"),
        ("health: {pointer: /a}", "models.m.health.pointer: only match: json has a pointer"),
        ("health: {match: json, pointer: a}", "wants a JSON pointer, found 'a'"),
        ("health: {match: json, pointer: /~2}", "wants a JSON pointer"),
        ("health: {path: v1}", "wants the path of a URL, beginning with '/', found 'v1'"),
        ("health: {ready: '/a b'}", "percent-encode"),
        ("health: {headers: {'A B': x}}", "wants the name of a header as key"),
        ("health: {headers: {Connection: close}}", "wants the name of a header as key"),
        ('health: {headers: {A: "x\\r\\nB: y"}}', "wants printable ASCII in one line"),
        ("health: {headers: {A: x, a: y}}", "names the same header as 'A'"),
        ("health: {probe: {path: /x, body: 5}}", "wants a mapping or a list, found a whole"),
        ("health: {probe: {path: /x, body: {a: .nan}}}", ".nan has no form in JSON"),
        ("health: {probe: {path: /x, body: {a: '${b}'}}}", "body.a: '${b}' is not a placeholder"),
        ("health: {probe: {path: '/${x}'}}", "'${x}' is not a placeholder"),
        ("health: {probe: {}}", "the key 'path' is missing"),
        ("health:", "wants a mapping with the keys of a health check, found nothing"),
        ("stop: {signal: SIGKILL}", "SIGKILL follows by itself"),
        ("stop: {signal: SIGSTOP}", "wants a signal that asks a process to end"),
        ("stop: {signal: 15}", "wants a signal that asks a process to end, found a whole number"),
        ("port_owner: docker", "wants 'process' or 'any', found 'docker'"),
        ("stop_command: 'a \"b'", "can't be split by shell rules: no closing quotation"),
        ("stop_command: ['']", "models.m.stop_command[0]: the program to run is an empty text"),
        ("stop_command: \"'' x\"", "the program to run is an empty text"),
        ("stop_command: \"x '$'{y}\"", "'${y}' is not a placeholder"),
        ('stop_command: ["${port"]', "'${' has no closing }"),
        ("command: [a]", "doubled key 'command', first on line 4"),
    ],
)  # fmt: skip
def test_what_a_model_can_not_be_is_refused(body: str, message: str) -> None:
    (line,) = lines(model(f"{GOOD_MODEL}{body}"))
    assert message in line


@pytest.mark.parametrize("name", ["Qwen", "-a", "a b", "x" * 65, "é", "''"])
def test_names_of_models_and_scenes_have_one_form(name: str) -> None:
    text = f"version: 1\nmodels: {{{name}: {{command: a, port: 1}}}}\n"
    assert len(lines(text)) == 1
    text = (
        f"version: 1\nmodels: {{a: {{command: a, port: 1}}}}\nscenes: {{{name}: {{models: [a]}}}}"
    )
    assert len(lines(text)) == 1


@pytest.mark.parametrize("name", ["a", "0", "no", "qwen2.5-7b_x", "x" * 64, "1e3", "null"])
def test_a_name_is_taken_by_its_text(name: str) -> None:
    assert list(good(f"version: 1\nmodels: {{{name}: {{command: a, port: 1}}}}").models) == [name]


def test_two_models_of_a_scene_on_one_port_are_refused_though_one_has_another_fault() -> None:
    found = lines("""\
version: 1
models:
  a: {command: a, port: 1, memory: much}
  b: {command: b, port: 1}
scenes: {s: {models: [a, b]}}
""")
    assert [line.split(": ")[1] for line in found] == ["models.a.memory", "scenes.s.models[1]"]
    assert "'a' and 'b' can't run together: both have port 1" in found[1]


def test_a_scene_is_not_blamed_for_models_that_could_not_be_read() -> None:
    (line,) = lines("version: 1\nmodels: []\nscenes: {s: {models: [a]}}\n")
    assert line.startswith("f:2:9: models: wants models by name, found a list")
    (line,) = lines("version: 1\nmodels: {a: 5}\nscenes: {s: {models: [a]}}\n")
    assert line.startswith("f:2:13: models.a: wants a mapping with the keys of a model")


def test_what_an_alias_repeats_is_one_fault() -> None:
    found = lines("""\
version: 1
models:
  a: &a {command: a, port: 1, health: {timeout: soon}}
  b: {<<: *a, port: 2}
  c: {<<: *a, port: 3}
""")
    assert len(found) == 1
    assert found[0].startswith("f:3:49: models.a.health.timeout: ")


def test_values_that_may_be_secret_are_not_shown() -> None:
    secrets = 'env: {A: "s3\\0cret"}\nhealth: {headers: {B: "s3\\ncret", C: "s3 "}}'
    found = lines(model(GOOD_MODEL + secrets))
    assert len(found) == 3
    assert "s3" not in "".join(found)


def test_control_characters_of_the_file_do_not_reach_a_terminal() -> None:
    found = lines('version: 1\n"\\e[31m\\x07": 1\nmodels: {"\\e": {}}\n')
    assert "\x1b" not in "".join(found)
    assert "'\\x1b[31m\\x07'" in found[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file holds no registry"),
        ("# nothing\n", "the file holds no registry"),
        ("[]", "wants a mapping with the keys 'version', 'models' and 'scenes', found a list"),
        ("~", "found nothing"),
        ("models: {}", "the key 'version' is missing"),
        ("version: '1'", "wants version 1"),
        ("version: 1\nmodels: {a: [}", "expected"),
    ],
)
def test_what_is_no_registry_is_refused(text: str, message: str) -> None:
    (line,) = lines(text)
    assert message in line


def write(folder: Path, data: bytes) -> str:
    path = folder / "compute.yaml"
    path.write_bytes(data)
    return str(path)


def refused(path: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read_registry(path)
    assert caught.value.exit is Exit.BAD_INPUT
    assert caught.value.hint
    return caught.value


def test_a_file_is_read(tmp_path: Path) -> None:
    assert read_registry(write(tmp_path, OF_THE_CONTRACT.encode())) == good(OF_THE_CONTRACT)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path, b"version: 1\n"))
    assert read_registry(str(tmp_path / "link")) == Registry({}, {})


def test_the_refusal_has_one_line_for_each_fault(tmp_path: Path) -> None:
    path = write(tmp_path, b"version: 2\nmodel: {}\n")
    first, *rest = refused(path).message.splitlines()
    assert first == f"cannot use '{path}': 2 faults"
    assert [line.removeprefix(path)[:5] for line in rest] == [":1:10", ":2:1:"]


def test_a_flood_of_faults_is_cut(tmp_path: Path) -> None:
    path = write(tmp_path, b"version: 1\n" + b"".join(b"k%d: 1\n" % i for i in range(999)))
    found = refused(path).message.splitlines()
    assert found[0].endswith(": 999 faults")
    assert found[-1] == f"... and {999 - MAX_SHOWN_FAULTS} more"
    assert len(found) == MAX_SHOWN_FAULTS + 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "compute.yaml")
    assert refused(path).message == f"cannot read '{path}': there is no such file"


def test_a_folder_is_no_registry(tmp_path: Path) -> None:
    assert refused(str(tmp_path)).message == f"cannot read '{tmp_path}': it is a folder"


def test_a_dangling_link_is_named_with_its_target(tmp_path: Path) -> None:
    link = tmp_path / "compute.yaml"
    link.symlink_to("away.yaml")
    assert "it is a link to 'away.yaml', which is not there" in refused(str(link)).message


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "compute.yaml"
    link.symlink_to("compute.yaml")
    assert "cannot read" in refused(str(link)).message


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "compute.yaml"
    os.mkfifo(pipe)
    assert refused(str(pipe)).message == f"cannot read '{pipe}': not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"version: 1\n")
    (tmp_path / "compute.yaml").chmod(0)
    assert refused(path).message == f"cannot read '{path}': no permission"


def test_a_file_over_a_mebibyte_is_refused(tmp_path: Path) -> None:
    assert "at most 1048576 (1 MiB)" in refused(write(tmp_path, b"#" * (2**20 + 1))).message


GOOD_BYTES = [OF_THE_CONTRACT.encode(), to_yaml(FULL).encode()]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(GOOD_BYTES)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 1, 2, 8, 40]))
        data[start : start + length] = draw(
            st.binary(max_size=4)
            | st.sampled_from([b"[", b"}", b": ", b"\n", b"&a ", b"*a", b"<<: ", b"'", b"${", b"~"])
        )
    return bytes(data)


@given(damaged() | st.binary(max_size=300))
def test_any_bytes_are_a_registry_or_have_faults(data: bytes) -> None:
    registry, faults = parse_registry(data)
    assert (registry is None) is bool(faults)
    assert all(isinstance(fault, Fault) for fault in faults)
    assert all("\n" not in render_fault("f", fault) for fault in faults)
