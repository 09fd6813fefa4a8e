"""Documents for the tests of the registry: one that holds every key, and a writer of YAML."""

from __future__ import annotations

import copy
import math
from typing import Any

FULL: dict[str, Any] = {
    "version": 1,
    "node": {
        "memory_floor": "3GiB",
        "gateways": [
            {
                "listen": "127.0.0.1:8011",
                "upstream": "127.0.0.1:8001",
                "allow": ["127.0.0.0/8", "10.0.0.0/8"],
                "hold": "10m",
                "drain": "30s",
            }
        ],
    },
    "models": {
        "qwen": {
            "command": ["vllm", "serve", "--port", "${port}", "--name", "${marker}"],
            "host": "127.0.0.1",
            "port": 8001,
            "marker": "qwen3-30b",
            "cwd": ".",
            "env": {"HF_HOME": "/data/hf", "THREADS": 8},
            "memory": "60GiB",
            "health": {
                "path": "/v1/models",
                "match": "models",
                "ready": "/health",
                "headers": {"Authorization": "Bearer ${env:VLLM_API_KEY}"},
                "timeout": "15m",
                "request_timeout": "5s",
                "probe": {
                    "path": "/v1/completions",
                    "body": {"model": "${marker}", "max_tokens": 1, "stop": ["a", None]},
                },
            },
            "stop": {"signal": "SIGTERM", "grace": "30s"},
            "port_owner": "process",
            "stop_command": ["docker", "stop", "qwen"],
        },
        "whisper": {
            "command": "whisper --port 8002",
            "port": 8002,
            "health": {"match": "json", "pointer": "/model"},
        },
    },
    "scenes": {
        "voice": {
            "models": ["qwen", "whisper"],
            "sacrifice": ["whisper"],
            "description": "A voice assistant",
        }
    },
}

Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> list[Path]:
    """The path of every value within `value`, the empty one included."""
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += paths(item, (*path, index))
    return found


def at(document: Any, path: Path) -> Any:
    """What stands at `path`."""
    for key in path:
        document = document[key]
    return document


def changed(document: Any, path: Path, value: Any) -> Any:
    """A copy of `document` with `value` at `path`."""
    if not path:
        return copy.deepcopy(value)
    result = copy.deepcopy(document)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = copy.deepcopy(value)
    return result


def without(document: Any, path: Path) -> Any:
    """A copy of `document` without what stands at `path`."""
    result = copy.deepcopy(document)
    place = result
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return result


def to_yaml(value: Any) -> str:
    """`value` as YAML in flow style, each text in quotes, nothing left to an emitter's taste."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_yaml(k)}: {to_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(to_yaml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ("-.inf" if value < 0 else ".inf")
    return {None: "null", True: "true", False: "false"}[value] if _is_word(value) else repr(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _escaped(character: str) -> str:
    plain = " " <= character <= "~" and character not in '"\\'
    return character if plain else f"\\U{ord(character):08x}"
