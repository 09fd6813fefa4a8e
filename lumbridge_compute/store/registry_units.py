"""Sizes and times of the registry, and the pattern of a bounded number."""

from __future__ import annotations

from lumbridge_compute.store.registry_shapes import Text
from lumbridge_compute.store.yaml_values import Kind

MAX_TIME_S = 7 * 24 * 3600
MAX_SIZE_BYTES = 1024**5

_TEXT_OR_NUMBER = frozenset({Kind.TEXT, Kind.INT, Kind.FLOAT})


def up_to(limit: int, *, least: int = 0) -> str:
    """A pattern for the decimal integers from `least` (0 or 1) to `limit`, no zero in front."""
    digits = str(limit)
    parts = ["0"] if least == 0 else []
    if len(digits) > 1:
        parts.append(f"[1-9][0-9]{{0,{len(digits) - 2}}}")
    for index, digit in enumerate(digits):
        lowest = 1 if index == 0 else 0
        if int(digit) > lowest:
            rest = len(digits) - index - 1
            parts.append(f"{digits[:index]}[{lowest}-{int(digit) - 1}][0-9]{{{rest}}}")
    parts.append(digits)
    return f"(?:{'|'.join(parts)})"


def _amount(limit: int, decimals: int) -> str:
    """A pattern for the decimal numbers from 0 to `limit`."""
    if not decimals:
        return up_to(limit)
    below = up_to(limit - 1)
    return rf"(?:{below}(?:\.[0-9]{{1,{decimals}}})?|{limit}(?:\.0{{1,{decimals}}})?)"


# Times: microseconds, so that no unit loses anything.

_TIME_US = {"ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}
_TIME = "|".join(
    f"{_amount(MAX_TIME_S * 10**6 // scale, 3 if unit == 'ms' else 6)}"
    + (f"(?: ?{unit})?" if unit == "s" else f" ?{unit}")
    for unit, scale in _TIME_US.items()
)


def parse_seconds(text: str) -> float:
    """Seconds from "500ms", "30s", "15m", "1h" or "30"; `text` has been matched before."""
    amount, unit = _split(text)
    return _scaled(amount, _TIME_US[unit or "s"]) / 10**6


def render_seconds(seconds: float) -> str:
    """The shortest text that `parse_seconds` makes exactly `seconds` of."""
    microseconds = round(seconds * 10**6)
    for unit in ("h", "m", "s", "ms"):
        if microseconds % _TIME_US[unit] == 0:
            return f"{microseconds // _TIME_US[unit]}{unit}"
    return f"{microseconds / 10**6:.6f}s"


def _time(wants: str, *, zero: bool) -> Text[float]:
    least = {"minimum": 0} if zero else {"exclusiveMinimum": 0}
    positive = "" if zero else r"(?!0(?:\.0+)? ?(?:ms|s|m|h)?$)"
    return Text(
        f"{wants} from 0 to 168h" if zero else f"{wants} over 0 and up to 168h",
        f"^{positive}(?:{_TIME})$",
        parse_seconds,
        render_seconds,
        _TEXT_OR_NUMBER,
        ("number", "string"),
        {**least, "maximum": MAX_TIME_S},
        common="[1-9][0-9]{0,3}[sm]",
        hint="write it as 500ms, 30s, 15m or 1h; a bare number is seconds",
    )


TIMEOUT = _time("a time", zero=False)
PAUSE = _time("a time", zero=True)


# Sizes.

_SIZE_BYTES = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_SIZE = "|".join(
    f"{_amount(MAX_SIZE_BYTES // scale, 0 if unit == 'B' else 6)}"
    + (f"(?: ?{unit})?" if unit == "GiB" else f" ?{unit}")
    for unit, scale in _SIZE_BYTES.items()
)


def parse_bytes(text: str) -> int:
    """Bytes from "512MiB", "3GiB", "1.5GB" or "3" (GiB).  Raises ValueError."""
    if not SIZE.fits(text):
        raise ValueError(f"wants {SIZE.wants}, found {text[:64]!r}")
    amount, unit = _split(text)
    return _scaled(amount, _SIZE_BYTES[unit or "GiB"])


def render_size(size: int) -> str:
    """The shortest text that `parse_bytes` makes exactly `size` of."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_BYTES[unit] == 0:
            return f"{size // _SIZE_BYTES[unit]}{unit}"
    return f"{size}B"


SIZE = Text(
    "a size up to 1024TiB",
    f"^(?:{_SIZE})$",
    parse_bytes,
    render_size,
    _TEXT_OR_NUMBER,
    ("number", "string"),
    {"minimum": 0, "maximum": MAX_SIZE_BYTES // 1024**3},
    common="[1-9][0-9]{0,3}(?:[MG]i?B)?",
    hint="write it as 512MiB, 3GiB or 1.5GB; a bare number is GiB",
)


def _split(text: str) -> tuple[str, str]:
    amount = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return amount.rstrip(" "), text[len(amount) :]


def _scaled(amount: str, scale: int) -> int:
    """`amount` times `scale`, in whole numbers, so that nothing is lost on the way."""
    whole, _, decimals = amount.partition(".")
    return int(whole + decimals) * scale // int("1" + "0" * len(decimals))
