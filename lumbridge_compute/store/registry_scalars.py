"""Names and texts of the registry: each says which characters it may hold."""

from __future__ import annotations

from lumbridge_compute.core.launch import TOKEN_VARIABLE
from lumbridge_compute.core.placeholders import NAMES
from lumbridge_compute.store.registry_shapes import Text, same
from lumbridge_compute.store.yaml_values import Kind

MAX_ARGUMENT = 131071
"""In characters.  Source: execve(2), MAX_ARG_STRLEN, less the last NUL."""

_TEXT_OR_NUMBER = frozenset({Kind.TEXT, Kind.INT, Kind.FLOAT})
_CONTROLS = r"\u0000-\u001f\u007f-\u009f"

VERSION = Text(
    "version 1",
    "^1$",
    int,
    int,
    frozenset({Kind.INT}),
    ("integer",),
    {"const": 1},
    hint="this program reads version 1",
)
NAME = Text(
    "a name",
    "^[a-z0-9][a-z0-9._-]{0,63}$",
    same,
    same,
    hint="1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
)
MARKER = Text(
    "a marker",
    f"^[^ {_CONTROLS}](?:[^{_CONTROLS}]{{0,1022}}[^ {_CONTROLS}])?$",
    same,
    same,
    hint="1 to 1024 characters in one line, no space at either end",
)
DESCRIPTION = Text(
    "a text without control characters",
    r"^[^\u0000-\u0008\u000b-\u001f\u007f-\u009f]*$",
    same,
    same,
    limit=4096,
)
POINTER = Text(
    "a JSON pointer",
    r"^(?:/(?:[^~/]|~[01])*)*$",
    same,
    same,
    limit=4096,
    hint="write it as /data/0/id (RFC 6901: '~' is ~0 and '/' is ~1 within a name)",
)
_SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGABRT")
SIGNAL = Text(
    "a signal that asks a process to end",
    f"^(?:{'|'.join(_SIGNALS)})$",
    same,
    same,
    options=_SIGNALS,
    hint=f"one of {', '.join(_SIGNALS)}; SIGKILL follows by itself after `grace`",
)

ARGUMENT = Text(
    "a text or a number",
    r"^[^\u0000]*$",
    same,
    same,
    _TEXT_OR_NUMBER,
    ("string", "number"),
    limit=MAX_ARGUMENT,
    filled=True,
)
FOLDER = Text("a folder", r"^[^\u0000]+$", same, same, limit=4095, filled=True)
VARIABLE = Text(
    "the name of a variable",
    f"^(?!{TOKEN_VARIABLE}$)[A-Za-z_][A-Za-z0-9_]*$",
    same,
    same,
    limit=256,
    hint=f"letters, digits and '_', no digit first; {TOKEN_VARIABLE} is the program's own",
)
VARIABLE_VALUE = Text(
    "a text or a number",
    r"^[^\u0000]*$",
    same,
    same,
    _TEXT_OR_NUMBER,
    ("string", "number"),
    limit=MAX_ARGUMENT,
    secret=True,
    filled=True,
)


def _any_case(*names: str) -> str:
    """A pattern for `names` in capitals, small letters or both."""
    return "|".join(
        "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in names
    )


# Those that are about the connection or the body's length are the client's.
_OWN_HEADERS = _any_case("content-length", "transfer-encoding", "connection", "upgrade")

HEADER = Text(
    "the name of a header",
    f"^(?!(?:{_OWN_HEADERS})$)[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
    same,
    same,
    limit=256,
    hint="letters, digits and '-'; the headers of the connection and of the length are sent anyway",
)
HEADER_VALUE = Text(
    "printable ASCII in one line, no space at either end",
    r"^(?:[\u0021-\u007e](?:[\u0009\u0020-\u007e]*[\u0021-\u007e])?)?$",
    same,
    same,
    _TEXT_OR_NUMBER,
    ("string", "number"),
    limit=8192,
    secret=True,
    filled=True,
)

_IN_PATH = r"[A-Za-z0-9._~!&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}"
_NAMED = rf"\$\{{(?:{'|'.join(NAMES)}|env:[A-Za-z_][A-Za-z0-9_]*)\}}"

PATH = Text(
    "the path of a URL, beginning with '/'",
    rf"^/(?:{_IN_PATH}|\$)*$",
    same,
    same,
    limit=4096,
    hint="percent-encode what is not allowed there, as in /v1/my%20model",
)
PROBE_PATH = Text(
    PATH.wants,
    rf"^/(?:{_IN_PATH}|\$(?!\$?\{{)|{_NAMED})*$",
    same,
    same,
    limit=4096,
    hint=PATH.hint,
    filled=True,
)

COMMAND_LINE = Text(
    "a command",
    r"^[^\u0000]*[^\u0000-\u0020][^\u0000]*$",
    same,
    same,
    limit=MAX_ARGUMENT,
    filled=True,
)
