from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lumbridge_compute.errors import Exit, Refused
from lumbridge_compute.host import files
from lumbridge_compute.host.files import (
    Fault,
    Unreadable,
    make_private_folder,
    open_private_folder,
    read_bounded,
)


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    assert read_bounded(str(tmp_path / "state.yaml"), 100) is None
    assert read_bounded(str(tmp_path / "no" / "state.yaml"), 100) is None


def test_a_file_up_to_the_limit_is_read_whole_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("file")
    assert read_bounded(str(tmp_path / "file"), 100) == b"x" * 100
    assert read_bounded(str(tmp_path / "link"), 100) == b"x" * 100
    (tmp_path / "empty").touch()
    assert read_bounded(str(tmp_path / "empty"), 100) == b""


@pytest.mark.parametrize(
    ("kind", "fault", "sentence"),
    [
        ("folder", Fault.FOLDER, "it is a folder"),
        ("dangling", Fault.DANGLING, "it is a symbolic link to nothing"),
        ("loop", Fault.LOOP, "it is a symbolic link that leads back to itself"),
        ("large", Fault.TOO_LARGE, "it has more than 100 bytes"),
        ("fifo", Fault.SPECIAL, "it is not a regular file"),
        ("socket", Fault.SPECIAL, "it is not a regular file"),
        ("parent", Fault.BROKEN, "Not a directory"),
    ],
)
def test_each_way_to_be_unreadable_has_its_sentence(
    tmp_path: Path, kind: str, fault: Fault, sentence: str
) -> None:
    path = tmp_path / "state.yaml"
    server = socket.socket(socket.AF_UNIX)
    match kind:
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to("nothing")
        case "loop":
            path.symlink_to("state.yaml")
        case "large":
            path.write_bytes(b"x" * 101)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            folder = os.open(tmp_path, os.O_RDONLY)
            server.bind(f"/proc/self/fd/{folder}/state.yaml")
            os.close(folder)
        case "parent":
            path.touch()
            path = path / "below"
    with pytest.raises(Unreadable) as caught:
        read_bounded(str(path), 100)
    server.close()
    assert caught.value.fault is fault
    assert caught.value.message == f"cannot read '{path}': {sentence}"
    assert caught.value.hint
    assert caught.value.exit is Exit.BAD_INPUT


def test_a_file_that_does_not_end_is_too_large() -> None:
    with pytest.raises(Unreadable) as caught:
        read_bounded("/dev/zero", 100)
    assert caught.value.fault is Fault.SPECIAL


def test_the_private_folder_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_private_folder(str(tmp_path))
    finally:
        os.umask(old)
    folder = tmp_path / ".kuda"
    assert folder.stat().st_mode & 0o7777 == 0o700
    (folder / "state.yaml").touch()
    make_private_folder(str(tmp_path))
    assert os.listdir(folder) == ["state.yaml"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("link", "it is a symbolic link, wanted a folder"),
        ("dangling", "it is a symbolic link, wanted a folder"),
        ("file", "it is not a folder"),
        ("group", "others may write to it, its mode is 0770, wanted 0700"),
        ("others", "others may write to it, its mode is 0702, wanted 0700"),
    ],
)
def test_a_private_folder_that_is_not_private_is_refused(
    tmp_path: Path, kind: str, sentence: str
) -> None:
    path = tmp_path / ".kuda"
    match kind:
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            path.symlink_to("elsewhere")
        case "dangling":
            path.symlink_to("elsewhere")
        case "file":
            path.touch()
        case "group":
            path.mkdir()
            path.chmod(0o770)
        case "others":
            path.mkdir()
            path.chmod(0o702)
    with pytest.raises(Refused) as caught:
        make_private_folder(str(tmp_path))
    assert caught.value.message == f"cannot use '{path}': {sentence}"
    assert caught.value.hint
    assert not (tmp_path / "elsewhere" / "lock").exists()


def test_a_folder_that_others_may_read_is_accepted(tmp_path: Path) -> None:
    (tmp_path / ".kuda").mkdir()
    (tmp_path / ".kuda").chmod(0o755)
    make_private_folder(str(tmp_path))


def test_a_root_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file or directory"):
        make_private_folder(str(tmp_path / "no"))


def test_the_pieces_replace_a_file_under_a_root_of_any_length(tmp_path: Path) -> None:
    root = tmp_path
    while len(str(root)) < 3000:
        root = root / ("x" * 200)
    root.mkdir(parents=True)
    make_private_folder(str(root))
    with open_private_folder(str(root)) as folder:
        files.create(folder, "old", b"old")
        files.rename(folder, "old", "state.yaml")
        files.create(folder, "new", b"new")
        files.fsync(folder, "new")
        assert read_bounded("state.yaml", 10, folder=folder) == b"old"
        files.rename(folder, "new", "state.yaml")
        os.fsync(folder)
        assert read_bounded("state.yaml", 10, folder=folder) == b"new"
        assert os.listdir(folder) == ["state.yaml"]
        assert os.stat("state.yaml", dir_fd=folder).st_mode & 0o7777 == 0o600
        files.remove(folder, "state.yaml")
        files.remove(folder, "state.yaml")
        assert os.listdir(folder) == []


def test_create_touches_nothing_that_is_there(tmp_path: Path) -> None:
    make_private_folder(str(tmp_path))
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".kuda" / "link").symlink_to("../precious")
    (tmp_path / ".kuda" / "dangling").symlink_to("../new")
    (tmp_path / ".kuda" / "file").write_text("precious")
    with open_private_folder(str(tmp_path)) as folder:
        for name in ("link", "dangling", "file"):
            with pytest.raises(FileExistsError):
                files.create(folder, name, b"x")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / ".kuda" / "file").read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_a_link_in_place_of_the_folder_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".kuda").symlink_to("elsewhere")
    with pytest.raises(NotADirectoryError), open_private_folder(str(tmp_path)):
        pass
