"""Images of questions, stored as files beside the store.

`images/<turn_id>/<number>.png`, numbered from 1. A folder contains a marker file `begun` until its turn is
stored: it identifies what a crash left between the two, which `sweep` deletes.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from core.errors import ImageRefusedError, StoreUnavailableError, UnknownTurnError
from core.images import ENDINGS, MAX_IMAGES, SIGNATURES, Image, ImageData, ImageFault, SentImage, decode
from services.conversation.turns import TurnStore
from services.store.durable import make_folder, sync_folder, unwritable, write_durably

FOLDER = "images"  # below DATA_DIR
BEGUN = "begun"
ExistingTurns = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns the ids among these whose turns are stored."""
Redraw = Callable[[str, bytes, str], Awaitable[ImageData]]
"""Media type, bytes and owner → the re-encoded image. Raises ImageRefusedError, UnavailableError."""


class QuestionImages:
    """Accepts the images of a question: new ones are re-encoded, stored ones are read again."""

    def __init__(self, files: ImageFiles, redraw: Redraw, turns: TurnStore) -> None:
        self.files = files
        self._redraw = redraw
        self._turns = turns

    async def accept(self, sent: Sequence[SentImage], owner: str) -> tuple[ImageData, ...]:
        """Validate and re-encode without storing. Raises ImageRefusedError, UnavailableError."""
        if len(sent) > MAX_IMAGES:
            raise ImageRefusedError(ImageFault.TOO_MANY)
        images: list[ImageData] = []
        for number, each in enumerate(sent, 1):
            try:
                images.append(await self._accept(each, owner))
            except ImageRefusedError as error:
                raise ImageRefusedError(error.fault, number=number) from None
        return tuple(images)

    async def _accept(self, sent: SentImage, owner: str) -> ImageData:
        if sent.turn_id:
            try:
                return await self.stored(sent.turn_id, sent.number, owner)
            except UnknownTurnError:
                raise ImageRefusedError(ImageFault.UNKNOWN) from None
        media_type, content = await asyncio.to_thread(decode, sent)
        return await self._redraw(media_type, content, owner)

    async def stored(self, turn_id: str, number: int, owner: str) -> ImageData:
        """Return one image of a turn, numbered from 1. Raises UnknownTurnError."""
        turn = await self._turns.get(turn_id)
        kept = turn.images if turn is not None and turn.owner == owner else ()
        images = await self.files.read(turn_id, kept, number)
        if number < 1 or not images:
            raise UnknownTurnError("turn_id: there is no such turn, or it has no such image.")
        return images[0]


class ImageFiles:
    def __init__(self, folder: Path) -> None:
        """`folder` is created with the first image."""
        self._folder = folder

    async def keep(self, turn_id: str, images: Sequence[ImageData]) -> None:
        """Write a turn's images durably; call `settle` once the turn is stored.

        Raises DiskFullError, StoreUnavailableError; then none of them is left on disk.
        """
        await asyncio.to_thread(self._keep, turn_id, images)

    async def settle(self, turn_id: str) -> None:
        """Note that the turn they belong to is stored."""
        await asyncio.to_thread(self._settle, turn_id)

    async def read(self, turn_id: str, images: Sequence[Image], number: int = 0) -> list[ImageData]:
        """Return all images of a turn in order, or the `number`th; images without a file are skipped."""
        numbered = [(at, image) for at, image in enumerate(images, 1) if number in (0, at)]
        return await asyncio.to_thread(lambda: list(self._read(turn_id, numbered)))

    async def erase(self, turn_ids: Collection[str]) -> int:
        """Delete the images of these turns. Returns how many turns had any."""
        return await asyncio.to_thread(self._erase, turn_ids)

    async def find(self, turn_ids: Collection[str]) -> tuple[int, int]:
        """Return how many turns have images, overall and among `turn_ids`."""
        return await asyncio.to_thread(lambda: (len(self._all()), len(self._existing(turn_ids))))

    async def sweep(self, existing: ExistingTurns, before_s: float) -> int:
        """Delete folders begun by `before_s` (UNIX time) without a turn; settle others. Returns how many."""
        begun = await asyncio.to_thread(self._begun, before_s)
        stored = await existing(begun) if begun else ()
        for turn_id in set(begun) & set(stored):
            await asyncio.to_thread(self._settle, turn_id)
        return await self.erase(set(begun) - set(stored))

    def kept(self) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
        """Yield each turn's media types and bytes, for a backup. Blocking; skips turns deleted meanwhile."""
        kinds = {f".{ending}": kind for kind, ending in ENDINGS.items()}
        for turn_id in sorted(self._all()):
            try:
                files = sorted(self._of(turn_id).glob("[0-9].*"))
                yield (
                    turn_id,
                    [(kinds[each.suffix], each.read_bytes()) for each in files if each.suffix in kinds],
                )
            except (FileNotFoundError, ValueError):  # ValueError: not one of our folders
                continue

    def put_back(self, turn_id: str, images: Sequence[tuple[str, bytes]]) -> None:
        """Restore images from a backup, which is not trusted. Blocking. Raises OSError."""
        folder = self._of(turn_id)
        make_folder(folder)
        for number, (kind, content) in enumerate(images[:MAX_IMAGES], 1):
            if kind in ENDINGS and content.startswith(SIGNATURES[kind]):
                write_durably(folder / f"{number}.{ENDINGS[kind]}", content)

    def _of(self, turn_id: str) -> Path:
        return self._folder / str(UUID(turn_id))  # whatever the request says, never another path

    def _settle(self, turn_id: str) -> None:
        (self._of(turn_id) / BEGUN).unlink(missing_ok=True)

    def _keep(self, turn_id: str, images: Sequence[ImageData]) -> None:
        folder = self._of(turn_id)
        try:
            make_folder(folder)
            (folder / BEGUN).touch(mode=0o600)
            for number, each in enumerate(images, 1):
                write_durably(folder / f"{number}.{ENDINGS[each.image.media_type]}", each.content)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise unwritable("image", error) from error

    def _read(self, turn_id: str, images: Iterable[tuple[int, Image]]) -> Iterable[ImageData]:
        for number, image in images:
            path = self._of(turn_id) / f"{number}.{ENDINGS.get(image.media_type, '')}"
            if path.is_file():
                yield ImageData(image, path.read_bytes())

    def _erase(self, turn_ids: Collection[str]) -> int:
        existing = self._existing(turn_ids)
        for folder in existing:
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise StoreUnavailableError(f"An image cannot be deleted: {error.strerror}.") from error
        if existing:
            sync_folder(self._folder)
        return len(existing)

    def _existing(self, turn_ids: Collection[str]) -> list[Path]:
        """Turns imported from earlier versions may have ids that are not UUIDs; these have no images."""
        names = self._all()
        return [self._folder / each for each in turn_ids if each in names]

    def _all(self) -> set[str]:
        return {each.name for each in self._folder.iterdir()} if self._folder.is_dir() else set()

    def _begun(self, before_s: float) -> list[str]:
        marks = self._folder.glob(f"*/{BEGUN}")
        return [mark.parent.name for mark in marks if mark.stat().st_mtime <= before_s]
