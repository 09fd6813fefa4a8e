"""Rows of text as an aligned table of plain ASCII rules."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "


def render_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """The lines of a table: a header, then one line a row.

    Where `width` columns do not suffice, the columns named in `spare` are left out, the first
    named first; what is still too long is cut.  None: as wide as it needs.
    """
    shown = list(range(len(header)))
    for name in spare:
        if width is None or _total(header, rows, shown) <= width:
            break
        shown = [i for i in shown if header[i] != name]
    widths = {i: _widest(header, rows, i) for i in shown}
    lines = [GAP.join(row[i].ljust(widths[i]) for i in shown).rstrip() for row in (header, *rows)]
    return lines if width is None else [line[:width] for line in lines]


def _widest(header: Sequence[str], rows: Sequence[Sequence[str]], column: int) -> int:
    return max(len(row[column]) for row in (header, *rows))


def _total(header: Sequence[str], rows: Sequence[Sequence[str]], shown: list[int]) -> int:
    return sum(_widest(header, rows, i) for i in shown) + len(GAP) * (len(shown) - 1)
