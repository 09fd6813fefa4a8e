"""Files that nobody wrote on purpose, and files that somebody did: for every reader of YAML."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from lumbridge_compute.store.yaml_nodes import MAX_BYTES

TOKENS = [
    *(b"\n", b"  ", b"\t", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!int ", b"? ", b"| ", b"> "),
    *(b"{", b"}", b"[", b"]", b'"', b"'", b"#", b"%", b"---\n", b"...\n", b"\x00", b"\xff", b"-1"),
    *(b"null", b"true", b"0", b"1e999", b"0x" + b"f" * 36, b"9" * 5000, b"\xc2\x85"),
    *(b"\xef\xbb\xbf", b'"\\ud800"', b".inf", b".nan", b"2026-01-01", b"1:30"),
]
"""What a YAML reader may stumble over."""

any_bytes = st.binary(max_size=400)
any_tokens = st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """`valid` with a few places of it overwritten, and lines swapped, lost or doubled."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(data)))
        end = begin + draw(st.integers(0, 30))
        data[begin:end] = draw(st.binary(max_size=8) | st.sampled_from(TOKENS))
    lines = bytes(data).splitlines(keepends=True)
    for _ in range(draw(st.integers(0, 3)) if lines else 0):
        one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        what = draw(st.sampled_from(["swap", "lose", "double"]))
        if what == "swap":
            lines[one], lines[other] = lines[other], lines[one]
        elif what == "double":
            lines.insert(other, lines[one])
        elif len(lines) > 1:
            del lines[one]
    return b"".join(lines)


def largest(begin: bytes) -> Iterator[bytes]:
    """Files of the largest size that is read, after `begin`, each slow or large in another way."""
    room = MAX_BYTES - len(begin) - 100
    deep = b"".join(b"&a%d [*a%d, *a%d]," % (n + 1, n, n) for n in range(30))
    for rest in (
        b"x: {" + b",".join(b"m%d: %d" % (n, n + 1) for n in range(24_000)) + b"}",
        b"x: {" + b",".join(b"m%d: " % n for n in range(room // 12)) + b"}",
        b"x: [" + b"1," * 49_000 + b"]",
        b"x: '" + b"y" * room + b"'",
        b'x: "' + b"\\0" * (room // 2) + b'"',
        b"x: " + b"[" * room,
        b"? " * (room // 2),
        b"- " * (room // 2),
        b"x: |\n" + b" y\n" * (room // 3),
        b"#" * room,
        b"\x00" * room,
        b"\n" * room,
        b"&a " * (room // 3),
        b"a: &a\n" * (room // 6),
        b"a: b\n" * (room // 5),
        b"x: " + b"9" * room,
        b"x: 0x" + b"f" * room,
        b"x: [&a0 z, " + deep + b"]",
        b"x: &a {"
        + b",".join(b"k%d: 1" % n for n in range(2_000))
        + b"}\n"
        + b"".join(b"y%d: {<<: *a}\n" % n for n in range(room // 40)),
    ):
        yield begin + rest
