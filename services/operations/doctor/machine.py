"""The doctor's checks of the machine: libraries, data folder, disk, backups, clock, sources, model files."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from config.settings import ConversationSettings, ModelSettings, StoreSettings
from config.tables import LLMSettings, SourceSettings
from core.errors import StartRefusedError
from core.operations.reports import Finding, fail, ok, warn
from core.owners import NOBODY_READS, nobody_reads
from core.text import counted
from services.knowledge.parsing.confinement import missing_walls
from services.operations.reembedding.folders import StoreFolders
from services.store.durable import allocated_bytes

PROJECT_FILE = Path(__file__).parents[3] / "pyproject.toml"
INSTALL = "run `pip install -e .` in the project folder"
MB = 1 << 20
RESERVE_MB = 64  # the embedded store never fills the last of the disk
DAY_S = 86_400
OLD_BACKUP_DAYS = 7
YEARS = range(2025, 2101)  # a clock outside these years has not been set
SKEW_S = 300
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)(?:\s*;(.*))?$")
_UNFINISHED = (".partial", ".tmp", ".part")


def pinned_libraries() -> list[str]:
    """Return the direct dependencies as `name==version`, from pyproject.toml or else the package metadata."""
    if PROJECT_FILE.is_file():
        project = tomllib.loads(PROJECT_FILE.read_text(encoding="utf-8"))
        return [str(each) for each in project.get("project", {}).get("dependencies", [])]
    try:
        required = importlib.metadata.requires("wenmai") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [each for each in required if "extra ==" not in each]


def check_libraries(pinned: Sequence[str]) -> Finding:
    """Compare installed with tested versions, importing nothing: a heavy or broken library costs nothing."""
    missing, others = [], []
    for requirement in pinned:
        if (match := _PINNED.match(requirement)) is None:
            continue
        name, tested, condition = match.groups()
        installed = _installed(name)
        if installed is None and not condition:
            missing.append(name)
        elif installed is not None and installed != tested:
            others.append(f"{name} {installed} (tested with {tested})")
    if missing:
        return fail("libraries", f"not installed: {', '.join(missing)}; {INSTALL}")
    if others:
        return warn("libraries", f"other versions than tested: {', '.join(others)}; {INSTALL}")
    return ok("libraries", f"{len(pinned)} direct libraries have the versions they were tested with")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_data_dir(store: StoreSettings) -> Finding:
    folder = store.data_dir
    if not os.path.exists(folder):  # Path.exists() raises without permission
        if why := _unusable(parent := _existing_parent(folder)):
            return fail(
                "data folder",
                f"{folder} cannot be created in {parent} ({why}): set DATA_DIR, or fix its permissions",
            )
        return ok("data folder", f"{folder} does not exist yet: the first start creates it")
    if why := _unusable(folder):
        return fail("data folder", f"{folder} cannot be used ({why}): give the server's user access to it")
    rights = stat.S_IMODE(folder.stat().st_mode)
    if rights & 0o077:
        return warn(
            "data folder", f"other users of this machine can enter {folder} (mode {rights:o}): chmod 700 it"
        )
    return ok("data folder", f"{folder} is writable and private")


def _existing_parent(folder: Path) -> Path:
    """Return the folder itself, or its nearest ancestor that exists."""
    each = [folder.absolute(), *folder.absolute().parents]
    return next(path for path in each if os.path.exists(path))


def _unusable(folder: Path) -> str:
    """Return why nothing can be created in it, or "". Really tries: root's rights say nothing about /proc."""
    if not folder.is_dir():
        return "it is not a folder"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "no rights"
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".wenmai-doctor-"):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def check_disk(store: StoreSettings) -> Finding:
    """Check free space: readiness degrades below LOW_DISK_MB, and the last 64 MB are never written."""
    folder, used = _existing_parent(store.data_dir), ""
    free_mb = shutil.disk_usage(folder).free // MB
    if folder == store.data_dir.absolute():
        used = f", the data folder uses {allocated_bytes(store.data_dir) // MB} MB"
    if free_mb < RESERVE_MB:
        return fail(
            "disk", f"full: {free_mb} MB are free{used}; free some space, nothing more is stored until then"
        )
    if free_mb < store.low_disk_mb:
        return warn("disk", f"low: {free_mb} MB are free, less than LOW_DISK_MB = {store.low_disk_mb}{used}")
    return ok("disk", f"{free_mb} MB are free{used}")


def check_old_stores(store_folder: Path) -> Finding | None:
    """Report stores replaced by re-embedding; None if there are none."""
    replaced = StoreFolders(store_folder).replaced()
    if not replaced:
        return None
    size = sum(allocated_bytes(folder) for folder in replaced) // MB
    return warn(
        "old stores",
        f"{len(replaced)} from before re-embedding ({size} MB) still contain what was deleted since: "
        f"delete {store_folder}.before-* once you no longer need to go back",
    )


def check_confinement() -> Finding:
    """Check the sandbox of the process that parses documents."""
    missing = missing_walls()
    if not missing:
        return ok("file readers", "confined by Landlock and seccomp")
    return warn(
        "file readers",
        f"this system has no {' nor '.join(missing)}: a malicious file that takes over its reader is less "
        "confined. Linux 5.13 or later has Landlock, which an old container runtime forbids; seccomp needs "
        "the package libseccomp2",
    )


def check_backups(store: StoreSettings, now_s: float) -> Finding:
    if why := _unusable(parent := _existing_parent(store.backups)):
        named = "" if parent == store.backups.absolute() else f" in {parent}"
        return fail("backups", f"BACKUP_DIR {store.backups} cannot be used{named} ({why}): set another")
    if not store.backups.is_dir():
        newest = None
    else:
        files = [each for each in store.backups.iterdir() if each.is_file() and not each.name.startswith(".")]
        times = [each.stat().st_mtime for each in files if each.suffix not in _UNFINISHED]
        newest = max(times, default=None)
    if newest is None:
        return warn("backups", f"there is no backup in {store.backups}: run `wenmai backup`")
    days = int(max(0.0, now_s - newest) // DAY_S)
    age = "of today" if days == 0 else f"{counted(days, 'day')} old"
    if days > OLD_BACKUP_DAYS:
        return warn("backups", f"the newest is {age}: run `wenmai backup`, and schedule it for every night")
    return ok("backups", f"the newest is {age}")


def check_clock(now_s: float, newest_turn_us: int | None) -> Finding:
    now = datetime.fromtimestamp(now_s, UTC)
    shown = now.strftime("%Y-%m-%d %H:%M UTC")
    if now.year not in YEARS:
        return fail("clock", f"it shows {shown}: set it, or stored data will expire at the wrong time")
    if newest_turn_us is not None and newest_turn_us / 1e6 > now_s + SKEW_S:
        ahead = int((newest_turn_us / 1e6 - now_s) / 60)
        return warn(
            "clock", f"it shows {shown}, and the newest turn is {ahead} minutes later: check the clock"
        )
    return ok("clock", f"it shows {shown}")


def check_schedule(
    conversation: ConversationSettings,
    refuse: Callable[[ConversationSettings, str], None],
    sync_cron: str = "",
) -> Finding:
    """Check the clean-up schedule; `refuse` raises StartRefusedError as a server start would."""
    try:
        refuse(conversation, sync_cron)
    except StartRefusedError as error:
        return fail("clean-up", str(error))
    place = conversation.timezone or "the machine's zone"
    limit = f"turns older than {counted(conversation.conversation_expire_days, 'day')}"
    return ok("clean-up", f"as set here, {limit} go at {conversation.cleanup_cron!r} in {place}")


# The followed folders, as the next sync will find them.


def check_sources(sources: Mapping[str, SourceSettings], keys: Sequence[str]) -> Iterator[Finding]:
    """Yield one finding for each source; `keys` are the configured API keys."""
    for name, source in sources.items():
        yield _check(f"source {name}", source, keys)


def _check(name: str, source: SourceSettings, keys: Sequence[str]) -> Finding:
    folder = source.folder
    if not folder.is_dir():
        return fail(name, f"{folder} is not a folder: mount it, or correct [sources] in the configuration")
    if not os.access(folder, os.R_OK | os.X_OK):
        return fail(name, f"{folder} cannot be read: let the server's user read it")
    if not os.listdir(folder):
        return warn(name, f"{folder} is empty: is the disk mounted?")
    if nobody_reads(source.owner, keys):
        return warn(name, f"owner: {NOBODY_READS}")
    return ok(name, f"{folder} is followed")


# Local models: their folders and files exist. Checks that query a model are in `models`.


HUB_CACHE = Path("~/.cache/huggingface/hub")


def check_files(models: ModelSettings, llms: Mapping[str, LLMSettings]) -> list[Finding]:
    """Check the files of local models; `llms` maps model ids to their settings."""
    local = [
        _folder("embedding", models.embedding, "sentence-transformers"),
        _folder("reranker", models.reranker, "cross-encoder"),
    ]
    local += [_file(model_id, entry) for model_id, entry in llms.items()]
    return [finding for finding in local if finding is not None]


def _folder(name: str, spec: str, expected: str) -> Finding | None:
    kind, _, target = spec.partition(":")
    if kind != expected:
        return None
    if Path(target).expanduser().is_dir() or _in_hub_cache(target):
        return ok(name, f"{target} is on this machine")
    return fail(name, f"{target} is neither a folder nor in the local hub cache: download it first")


def _in_hub_cache(model: str) -> bool:
    home = os.environ.get("HF_HOME")
    override = os.environ.get("HF_HUB_CACHE")
    cache = Path(override) if override else Path(home) / "hub" if home else HUB_CACHE.expanduser()
    names = {model, f"sentence-transformers/{model}"}
    return any((cache / f"models--{each.replace('/', '--')}").is_dir() for each in names)


def _file(model_id: str, entry: LLMSettings) -> Finding | None:
    if entry.provider != "gguf":
        return None
    if Path(entry.model).expanduser().is_file():
        return ok(f"model {model_id}", f"{Path(entry.model).name} is on this machine")
    return fail(f"model {model_id}", f"{entry.model} is not a file: download the model, or set its path")
