"""How a declared model becomes an argument list: placeholders and environment.

Whatever is expanded here may hold secrets: it is never shown, logged or stored.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from lumbridge_compute.core.placeholders import BadPlaceholder, expand
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.values import dataclass, field

TOKEN_VARIABLE = "LUMBRIDGE_COMPUTE_TOKEN"  # noqa: S105 - the name of a variable

# What a service manager tells one process alone.  A model that inherited it would answer in the
# agent's place, take its sockets, go by the memory pressure of the agent's cgroup, or sign its log
# with the agent's invocation.  Source: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3);
# systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager".
_NOT_INHERITED = frozenset(
    {"NOTIFY_SOCKET", "JOURNAL_STREAM", "INVOCATION_ID", "SYSTEMD_EXEC_PID", "FDSTORE"}
    | {"MANAGERPID", "MANAGERPIDFDID", TOKEN_VARIABLE}
)
_PREFIXES_NOT_INHERITED = ("LISTEN_", "WATCHDOG_", "MEMORY_PRESSURE_")


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one model, expanded: may hold secrets, so never shown or stored.

    `cwd` is absolute; `env` is the whole environment of the process; `scope` is the systemd scope
    to run in, None to run plainly in a session of its own.
    """

    model: str
    argv: tuple[str, ...] = field(repr=False)
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    token: str | None = None
    scope: str | None = None


class UnsetVariable(Exception):
    """Environment variables that placeholders of a model need are not set, or don't fit.

    Its text is a sentence that names the model, each placeholder and where it stands; no value of
    a variable is in it.  `variables` are the names of those not set.
    """

    def __init__(self, model: str, reasons: tuple[str, ...], variables: tuple[str, ...]) -> None:
        causes = "; ".join(reasons)
        super().__init__(f"cannot fill in the placeholders of {model!r}: {causes}")
        self.model = model
        self.variables = variables


def launch_of(
    model: Model,
    root: str,
    environ: Mapping[str, str],
    *,
    token: str | None = None,
    scope: str | None = None,
) -> Launch:
    """What starts `model`: `environ` is the environment that it inherits, less what it must not.

    `root` is the absolute path of the node's root.  `token` goes into the environment as
    TOKEN_VARIABLE.

    Raises UnsetVariable, which names all that are missing.
    """
    filler = _Filler(model, root, environ)
    argv = filler.fill_all("command", model.command)
    cwd = filler.fill("cwd", model.cwd)
    env = {name: value for name, value in environ.items() if _inherited(name)}
    env.update((name, filler.fill(f"env.{name}", value)) for name, value in model.env)
    filler.check()
    if token is not None:
        env[TOKEN_VARIABLE] = token
    folder = root if cwd == "." else posixpath.join(root, cwd)
    return Launch(model.name, argv, folder, env, token, scope)


def expanded_headers(
    model: Model, root: str, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The headers of every request to `model`, each fit to be sent.  Raises UnsetVariable."""
    filler = _Filler(model, root, environ)
    headers = tuple(
        (name, filler.fill_header(f"health.headers.{name}", value))
        for name, value in model.health.headers
    )
    filler.check()
    return headers


def expanded_probe_path(model: Model, root: str, environ: Mapping[str, str]) -> str | None:
    """Where the deep probe goes; None where there is none.  Raises UnsetVariable.

    What is put in is percent-encoded, so that no value can change the form of the request.
    """
    probe = model.health.probe
    if probe is None or "${" not in probe.path:
        return None if probe is None else probe.path
    from urllib.parse import quote  # 3 ms that few models need

    def encode(value: str) -> str:
        # A variable may hold bytes that are no UTF-8: they come as surrogates and leave as bytes.
        return quote(value, errors="surrogateescape")

    filler = _Filler(model, root, environ, encode)
    path = filler.fill("health.probe.path", probe.path)
    filler.check()
    return path


def expanded_body(model: Model, root: str, environ: Mapping[str, str]) -> bytes | None:
    """The JSON text that the deep probe sends; None for a GET.  Raises UnsetVariable.

    What is put in is a text within a JSON text: no value can change the form of the document.
    """
    probe = model.health.probe
    if probe is None or probe.body is None:
        return None
    if "${" not in probe.body:
        return probe.body.encode()
    import json  # 2 ms that few models need

    filler = _Filler(model, root, environ)
    body = filler.fill_json("health.probe.body", json.loads(probe.body))
    filler.check()
    return json.dumps(body, separators=(",", ":")).encode()


def expanded_stop_command(model: Model, root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is run before the stop signal; empty where there is none.  Raises UnsetVariable."""
    filler = _Filler(model, root, environ)
    argv = filler.fill_all("stop_command", model.stop.command)
    filler.check()
    return argv


def check_placeholders(model: Model, root: str, environ: Mapping[str, str]) -> None:
    """Fill in what only a running model needs.  Raises UnsetVariable."""
    expanded_headers(model, root, environ)
    expanded_probe_path(model, root, environ)
    expanded_body(model, root, environ)
    expanded_stop_command(model, root, environ)


def _inherited(name: str) -> bool:
    return name not in _NOT_INHERITED and not name.startswith(_PREFIXES_NOT_INHERITED)


class _Filler:
    """Expands texts of one model and collects why some could not be."""

    def __init__(
        self,
        model: Model,
        root: str,
        environ: Mapping[str, str],
        encode: Callable[[str], str] | None = None,
    ) -> None:
        self._model = model
        self._names = {
            "port": str(model.port),
            "marker": model.marker,
            "name": model.name,
            "root": root,
        }
        self._environ = environ
        self._encode = encode
        self._reasons: dict[str, str | None] = {}

    def check(self) -> None:
        """Raise UnsetVariable unless all that was asked could be done."""
        if self._reasons:
            variables = dict.fromkeys(name for name in self._reasons.values() if name)
            raise UnsetVariable(self._model.name, tuple(self._reasons), tuple(variables))

    def fill(self, where: str, text: str) -> str:
        try:
            return expand(text, self._names, self._environ, self._encode)
        except BadPlaceholder as error:
            self._reasons[f"{error} (in {where!r})"] = error.variable
            return ""

    def fill_all(self, where: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.fill(f"{where}[{index}]", text) for index, text in enumerate(texts))

    def fill_header(self, where: str, text: str) -> str:
        value = self.fill(where, text)
        # A line break would begin another header.  Source: RFC 9110 section 5.5.
        if not re.fullmatch(r"([\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?)?", value):
            reason = "with its variables filled in, is no value that a header can have"
            self._reasons[f"{where!r}, {reason}"] = None
        return value

    def fill_json(self, where: str, value: object) -> object:
        if isinstance(value, str):
            return self.fill(where, value)
        if isinstance(value, list):
            return [self.fill_json(f"{where}[{i}]", item) for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {
                self.fill(where, key): self.fill_json(f"{where}.{key}", item)
                for key, item in value.items()
            }
        return value
