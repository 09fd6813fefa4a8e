"""A folder that holds what was synced, and forgets the rest when the power fails.

The content of a file and its entry in the folder are durable apart from each other, each by its
own fsync.  Entries change in order, as in a journalled file system: a power failure keeps some
first part of what was not synced.  Source: fsync(2), NOTES; rename(2).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(eq=False)
class File:
    """What is read now, and what a power failure leaves for certain."""

    content: bytes
    durable: bytes | None = None


_Entries = dict[str, File]


@dataclass
class Disk:
    """One flat folder.  Nothing here fails: that is for who calls it."""

    entries: _Entries = field(default_factory=dict)
    _synced: _Entries = field(default_factory=dict)
    _since: list[_Entries] = field(default_factory=list)

    def put(self, name: str, content: bytes) -> None:
        """Write durably at once: how a story begins."""
        self.entries[name] = File(content, content)
        self.sync_folder()

    def read(self, name: str) -> bytes | None:
        found = self.entries.get(name)
        return None if found is None else found.content

    def create(self, name: str, content: bytes) -> None:
        if name in self.entries:
            raise FileExistsError(17, "File exists", name)
        self.entries[name] = File(content)
        self._changed()

    def append(self, name: str, content: bytes) -> None:
        if name not in self.entries:
            self.create(name, b"")
        self.entries[name].content += content

    def sync(self, name: str) -> None:
        found = self.entries.get(name)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", name)
        found.durable = found.content

    def rename(self, source: str, target: str) -> None:
        if source not in self.entries:
            raise FileNotFoundError(2, "No such file or directory", source)
        self.entries[target] = self.entries.pop(source)
        self._changed()

    def remove(self, name: str) -> None:
        if self.entries.pop(name, None) is not None:
            self._changed()

    def sync_folder(self) -> None:
        self._synced, self._since = dict(self.entries), []

    def durable(self, name: str) -> bytes | None:
        """The content that is left whatever happens; None where that is not sure to be any."""
        found = self.entries.get(name)
        certain = all(each.get(name) is found for each in (self._synced, *self._since))
        return found.durable if found is not None and certain else None

    def lose_power(self, chance: random.Random) -> None:
        """Keep what was synced, and of the rest what chance leaves."""
        self.entries = dict(chance.choice((self._synced, *self._since)))
        for name, each in self.entries.items():
            if each.durable != each.content:
                size = len(each.content)
                left = (each.durable or b"", each.content, bytes(size), each.content[: size // 2])
                self.entries[name] = File(chance.choice(left))
        for each in self.entries.values():
            each.durable = each.content
        self.sync_folder()

    def _changed(self) -> None:
        self._since.append(dict(self.entries))
