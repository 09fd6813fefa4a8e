"""Which markers does a body name?"""

from __future__ import annotations

from collections.abc import Iterable

from lumbridge_compute.core.pointer import parse_pointer, resolve
from lumbridge_compute.core.registry import HealthCheck, Match

TEXT_LIMIT = 1024
"""A text body longer than this, in characters, is no name."""

SHOWN_CHARACTERS = 64
SHOWN_MARKERS = 5


_MARKUP = ("<!doctype", "<html", "<?xml")


class BodyError(Exception):
    """A body that names no marker; its text is a fragment that says what the body is instead, and
    quotes none of it."""


def parse_markers(check: HealthCheck, body: bytes) -> tuple[str, ...]:
    """The markers that `body` names, in its order, read as `check.match` says.

    Empty only for a list of models without an entry.  A JSON document in which one key occurs
    twice has no one meaning and is refused, as is a name with a NUL or half a surrogate pair.
    Raises BodyError.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BodyError("bytes that are not UTF-8") from None
    if check.match is Match.TEXT:
        return (_name(_parse_text(text)),)
    document = _parse_json(text)
    if check.match is Match.JSON:
        return (_name(_at_pointer(document, check.pointer or "")),)
    return _model_ids(document)


def printable(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """`text` fit for one line of a terminal: bounded, and nothing in it that is not visible."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:limit])
    return shown if len(text) <= limit else f"{shown}..."


def render_markers(markers: Iterable[str]) -> str:
    """The first few `markers` in quotes, and how many more there are."""
    names = list(markers)
    shown = ", ".join(f"'{printable(name)}'" for name in names[:SHOWN_MARKERS])
    more = len(names) - SHOWN_MARKERS
    return f"{shown} and {more} more" if more > 0 else shown


def _parse_text(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise BodyError("an empty body")
    if stripped[:9].lower().startswith(_MARKUP):
        raise BodyError("an HTML or XML page")
    if len(stripped) > TEXT_LIMIT or len(stripped.splitlines()) > 1:
        raise BodyError(f"{len(stripped)} characters of text that are no name")
    return stripped


def _parse_json(text: str) -> object:
    import json  # only a probe needs it, and its import costs 8 ms

    if not text.strip():
        raise BodyError("an empty body instead of JSON")
    if text.lstrip().startswith("<"):
        raise BodyError("an HTML or XML page instead of JSON")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BodyError(f"something that is not JSON ({place})") from None
    except RecursionError:
        raise BodyError("JSON that is nested too deeply") from None
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise BodyError("JSON with a number that is too long") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BodyError("JSON in which one key occurs twice")
    return members


def _refuse_constant(_name: str) -> object:
    raise BodyError("JSON with NaN or Infinity, which JSON does not have")


def _at_pointer(document: object, pointer: str) -> str:
    try:
        value = resolve(document, parse_pointer(pointer))
    except LookupError:
        raise BodyError(f"JSON without a value at '{printable(pointer)}'") from None
    except ValueError as error:
        raise BodyError(f"JSON, but health.pointer is wrong: {error}") from None
    if not isinstance(value, str):
        raise BodyError(f"JSON with {_kind(value)} at '{printable(pointer)}', wanted text")
    return value


def _model_ids(document: object) -> tuple[str, ...]:
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        raise BodyError("JSON without a list 'data' of models")
    entries = document["data"]
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    names = tuple(_name(value) for value in ids if isinstance(value, str))
    if entries and not names:
        raise BodyError("JSON whose 'data' has no entry with a text 'id'")
    return names


def _name(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BodyError("a name with half a surrogate pair") from None
    if "\0" in text:
        raise BodyError("a name with a NUL")
    return text


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
