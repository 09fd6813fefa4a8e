"""YAML text -> one node, within bounds, with every fault of form as a value.

The node is composed from the parser's events and not by `yaml.compose`, because that one
recurses in C (deep nesting overflows its stack), keeps the last of two equal keys silently, and
can't say how large a document becomes when its aliases are followed.

Source: https://yaml.org/spec/1.2.2/, https://yaml.org/type/merge.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import yaml

from lumbridge_compute.store.yaml_values import (
    Entry,
    Fault,
    Kind,
    MappingNode,
    Node,
    Scalar,
    Sequence,
    join_path,
    plain_kind,
)

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 50_000
MAX_DIRECTIVES = 16

_CORE = "tag:yaml.org,2002:"
_TAGGED = {"int": Kind.INT, "float": Kind.FLOAT, "bool": Kind.BOOL, "null": Kind.NULL}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PARSER = getattr(yaml, "CLoader", yaml.Loader)


def compose(data: bytes) -> tuple[Node | None, tuple[Fault, ...]]:
    """The root node of the one document in `data`, and all faults of form.

    The node is None when the document is empty, or when it could not be read to its end; in the
    second case there is a fault.  A doubled key is a fault that leaves a node, with the first
    value.  Aliases are followed, so one node may stand in several places.
    """
    text = _decode(data)
    if isinstance(text, Fault):
        return None, (text,)
    composer = _Composer(text)
    try:
        root = composer.root()
    except _StopError as stop:
        return None, (*composer.faults, stop.fault)
    return root, tuple(composer.faults)


def _decode(data: bytes) -> str | Fault:
    if len(data) > MAX_BYTES:
        return Fault(0, 0, "", f"{len(data)} bytes long, at most {MAX_BYTES} (1 MiB) are read")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Fault(1, 1, "", "the text is UTF-16", "save the file as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        byte = f"0x{data[error.start]:02x}"
        return Fault(*_place_after(before), "", f"the byte {byte} is not UTF-8", "save as UTF-8")
    bad = _UNPRINTABLE.search(text)
    if bad:
        character = f"U+{ord(bad.group()):04X}"
        place = _place_after(text[: bad.start()])
        return Fault(*place, "", f"the control character {character} can't stand in YAML")
    # The parser compares each directive with all before it.
    if text.count("\n%") > MAX_DIRECTIVES:
        return Fault(1, 1, "", f"more than {MAX_DIRECTIVES} lines that begin with '%'")
    return text


def _place_after(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Size(NamedTuple):
    """How much a node holds when its aliases are followed."""

    nodes: int
    characters: int


class _StopError(Exception):
    """Composing can't go on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Open:
    """A collection whose end has not come yet; in a mapping, keys and values alternate."""

    __slots__ = ("anchor", "column", "line", "mapping", "nodes", "size")

    def __init__(self, place: tuple[int, int], anchor: str | None, *, mapping: bool) -> None:
        self.line, self.column = place
        self.anchor = anchor
        self.mapping = mapping
        self.nodes: list[Node] = []
        self.size = _Size(1, 0)


class _Composer:
    """Builds the node of one text.  Recursion is replaced by a stack of open collections."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self._text = text
        self._stack: list[_Open] = []
        # What each anchor names, with its size; None while its collection is open.
        self._anchors: dict[str, tuple[Node, _Size] | None] = {}
        self._root: Node | None = None
        self._documents = 0

    def root(self) -> Node | None:
        for event in self._events():
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._document(event)
        return self._root

    def _events(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self._text, Loader=_PARSER)
        except yaml.YAMLError as error:
            raise _StopError(_syntax_fault(error, self._text)) from None
        except (ValueError, OverflowError) as error:
            # The parser in Python converts escapes and version numbers without a check.
            raise _StopError(Fault(0, 0, "", f"not YAML: {_cut(str(error), 200)}")) from None

    def _document(self, event: yaml.Event) -> None:
        self._documents += 1
        if self._documents > 1:
            self._stop(event, "a second document begins here", "keep one document in the file")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        kind = plain_kind(event.value) if event.style in (None, "") else Kind.TEXT
        if event.tag in ("!", _CORE + "str"):
            kind = Kind.TEXT
        elif event.tag is not None and _TAGGED.get(event.tag.removeprefix(_CORE)) is not kind:
            self._stop(event, f"the tag {event.tag!r} does not fit here", "leave the tag out")
        if not event.value.isascii() and _SURROGATE.search(event.value):
            # The parser in Python lets an escape of half a pair through; no UTF-8 can hold it.
            self._stop(event, "half of a surrogate pair is no character")
        size = _Size(1, len(event.value))
        self._add(Scalar(*_place(event), event.value, kind), size, event.anchor)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _CORE + ("map" if mapping else "seq")):
            self._stop(event, f"the tag {event.tag!r} does not fit here", "leave the tag out")
        if len(self._stack) >= MAX_DEPTH:
            self._stop(event, f"nested more than {MAX_DEPTH} deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(_place(event), event.anchor, mapping=mapping))

    def _close(self) -> None:
        done = self._stack[-1]
        node: Node
        if done.mapping:
            node = MappingNode(done.line, done.column, self._entries(done))
        else:
            node = Sequence(done.line, done.column, tuple(done.nodes))
        self._stack.pop()
        self._add(node, done.size, done.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor or ""
        if name not in self._anchors:
            self._stop(event, f"no anchor '&{_cut(name)}' comes before the alias '*{_cut(name)}'")
        target = self._anchors[name]
        if target is None:
            self._stop(event, f"the alias '*{_cut(name)}' stands inside what it names")
        self._add(*target, place=_place(event))

    def _add(
        self,
        node: Node,
        size: _Size,
        anchor: str | None = None,
        place: tuple[int, int] | None = None,
    ) -> None:
        """Put a finished node where it belongs; `place` is that of the alias that stands for it."""
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            self._root = node
            return
        parent = self._stack[-1]
        nodes = parent.size.nodes + size.nodes
        characters = parent.size.characters + size.characters
        if nodes > MAX_NODES or characters > MAX_BYTES:
            what = f"{MAX_NODES} values or {MAX_BYTES} characters"
            line, column = place or (node.line, node.column)
            message = f"more than {what} when aliases are followed"
            raise _StopError(Fault(line, column, self._path(), message))
        parent.nodes.append(node)
        parent.size = _Size(nodes, characters)

    def _entries(self, done: _Open) -> dict[str, Entry]:
        own: dict[str, Entry] = {}
        for key, value in zip(done.nodes[::2], done.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self._fault(key, self._path(upto=-1), "a key can't be a list or a mapping")
            elif key.text in own:
                first = own[key.text].key
                message = f"doubled key {key.text[:64]!r}, first on line {first.line}"
                path = join_path(self._path(upto=-1), key.text)
                self._fault(key, path, message, "keep one of the two")
            else:
                own[key.text] = Entry(key, value)
        merge = own.get("<<")
        if merge is None or merge.key.kind is not Kind.MERGE:
            return own
        del own["<<"]
        return {**self._merged(merge.value), **own}

    def _merged(self, value: Node) -> dict[str, Entry]:
        """The entries that a merge key brings: of several mappings, the first has precedence."""
        sources = value.items if isinstance(value, Sequence) else (value,)
        merged: dict[str, Entry] = {}
        for source in sources:
            if isinstance(source, MappingNode):
                merged = {**source.entries, **merged}
            else:
                path = join_path(self._path(upto=-1), "<<")
                self._fault(source, path, "'<<' takes a mapping or a list of mappings")
        return merged

    def _path(self, upto: int | None = None) -> str:
        """Where we are: the key or index that each open collection has come to."""
        path = ""
        for level in self._stack[:upto]:
            if not level.mapping:
                path = join_path(path, len(level.nodes))
            elif len(level.nodes) % 2:
                key = level.nodes[-1]
                path = join_path(path, key.text if isinstance(key, Scalar) else "?")
        return path

    def _fault(self, node: Node, path: str, message: str, hint: str | None = None) -> None:
        self.faults.append(Fault(node.line, node.column, path, message, hint))

    def _stop(self, event: yaml.Event, message: str, hint: str | None = None) -> NoReturn:
        raise _StopError(Fault(*_place(event), self._path(), message, hint))


def _place(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _cut(text: str, most: int = 64) -> str:
    """What a file holds may be as long as the file, and a message may not."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _syntax_fault(error: yaml.YAMLError, text: str) -> Fault:
    """What the parser says, with a hint for the mistakes that are made most."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    context = getattr(error, "context", None)
    message = _cut(f"{context}, {problem}" if context else str(problem), 200)
    if mark is None:
        return Fault(0, 0, "", message)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    return Fault(mark.line + 1, mark.column + 1, "", message, _syntax_hint(line, problem))


def _syntax_hint(line: str, problem: str) -> str | None:
    if "\t" in line and "cannot start any token" in problem:
        return "indent with spaces, not with tabs"
    if "${" in line:
        return 'put a text with ${...} in quotes inside [ ] and { }: "${port}"'
    return None
