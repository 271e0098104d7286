from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from core.errors import StartRefusedError
from services.store.durable import (
    ID_FILE,
    LOCK_FILE,
    announce,
    non_durable_file_system,
    refuse_unusable,
    store_id,
)

MEMORY = Path("/dev/shm")


@pytest.mark.parametrize("below", ["", "data", "data/more"])
def test_an_invalid_data_folder_is_refused_before_anything_is_created(below: str, tmp_path: Path) -> None:
    """Discriminates: a traceback at the first file created below it."""
    (tmp_path / "file").touch()
    with pytest.raises(StartRefusedError, match=r"^DATA_DIR = .* cannot be used .*: it is not a folder\)"):
        refuse_unusable(tmp_path / "file" / below)
    refuse_unusable(tmp_path / "new" / below)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartRefusedError, match="this user may not write to it"):
        refuse_unusable(tmp_path / "data")


@pytest.mark.skipif(not MEMORY.is_mount(), reason="there is no file system in memory here")
def test_a_file_system_in_memory_is_recognised(tmp_path: Path) -> None:
    """Discriminates: the file system of `/` for everything below it."""
    assert non_durable_file_system(MEMORY / "data") == "tmpfs"
    assert non_durable_file_system(Path("/proc").parent) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists its mounts in a file")
def test_a_network_disk_whose_name_has_a_blank_is_recognised(tmp_path: Path) -> None:
    """Discriminates: a mount point compared as the kernel writes it, with `\\040` for a blank."""
    (disk := tmp_path / "shared disk").mkdir()
    mounts = tmp_path / "mounts"
    shown = str(disk).replace(" ", r"\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nnas:/x {shown} nfs4 rw 0 0\n")
    assert non_durable_file_system(disk / "data", mounts) == "nfs4"
    assert non_durable_file_system(tmp_path, mounts) == ""


@pytest.mark.parametrize("damaged", [b"", b"\xff\x00garbage", b"no id"])
def test_a_store_with_a_damaged_id_gets_a_new_one(damaged: bytes, tmp_path: Path) -> None:
    """Discriminates: a start that crashes because of it."""
    (tmp_path / LOCK_FILE).touch()
    (tmp_path / ID_FILE).write_bytes(damaged)
    assert store_id(tmp_path) == ""
    announce(tmp_path, "http://127.0.0.1:8000")
    assert len(store_id(tmp_path)) == 36
