"""A folder of pictures: one row each, grey or colour, all of one size.

Headers are looked at first, so that a picture of another size is named before hours are
spent decoding the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainer.data.dataset import Found
from trainer.data.options import DataOptions
from trainer.data.source import Rows, block_rows
from trainer.data.tables import plural, quoted
from trainer.errors import DataError, one_line

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_JUNK = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r"})
_GREY = frozenset({"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I"})
_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True)
class _Listing:
    files: tuple[Path, ...]
    labels: NDArray[np.int64] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Header:
    size: tuple[int, int]  # (W, H), as Pillow has it
    mode: str
    frames: int


def read_images(folder: Path, options: DataOptions) -> Found:
    listing = _list(folder)
    files = listing.files[: options.rows]
    headers = [_header(path) for path in files]
    _same_size(files, headers)
    colour = any(h.mode not in _GREY for h in headers)
    width, height = headers[0].size
    image = (height, width, 3) if colour else (height, width)
    dims = int(np.prod(image))
    return Found(files, dims, np.dtype(np.uint8), lambda: _rows(files, colour, dims),
                 image=image, labels=listing.labels,
                 notes=listing.notes + _header_notes(headers, colour))  # fmt: skip


def _list(folder: Path) -> _Listing:
    """The pictures of the folder itself, or else of its subfolders as classes."""
    files, notes = _pictures(folder)
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if files:
        if classes:
            names = quoted([c.name for c in classes])
            notes += (f"Subfolders of {folder} were left out: {names}.",)
        return _Listing(files, None, notes)
    found = [(k, *_pictures(c)) for k, c in enumerate(classes)]
    files = tuple(path for _, some, _ in found for path in some)
    if not files:
        raise DataError(f"The folder {folder} holds no pictures ({', '.join(sorted(SUFFIXES))}).")
    labels = np.array([k for k, some, _ in found for _ in some], np.int64)
    return _Listing(files, labels, notes + tuple(n for _, _, more in found for n in more))


def _pictures(folder: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    plain = sorted(p for p in folder.iterdir() if p.is_file())
    junk = [p for p in plain if p.name.startswith(".") or p.name.lower() in _JUNK]
    rest = [p for p in plain if p not in set(junk)]
    other = [p.name for p in rest if p.suffix.lower() not in SUFFIXES]
    notes = []
    if junk:
        notes.append(f"{plural(len(junk), 'hidden or system file')} in {folder} left out.")
    if other:
        notes.append(f"Files in {folder} that are no pictures were left out: {quoted(other)}.")
    return tuple(p for p in rest if p.suffix.lower() in SUFFIXES), tuple(notes)


def _header(path: Path) -> _Header:
    try:
        with Image.open(path) as picture:
            mode = "RGBA" if "transparency" in picture.info else picture.mode
            header = _Header(picture.size, mode, getattr(picture, "n_frames", 1))
    except _UNREADABLE as error:
        raise DataError(f"{path} is not a readable picture ({one_line(error)}).") from error
    if header.mode == "F":
        raise DataError(f"{path} has floating-point pixels; save such pictures as one .npy file.")
    return header


def _same_size(files: tuple[Path, ...], headers: list[_Header]) -> None:
    for path, header in zip(files, headers, strict=True):
        if header.size != headers[0].size:
            raise DataError(
                f"Pictures must be of one size: {files[0]} is {_size(headers[0])} "
                f"and {path} is {_size(header)} pixels."
            )


def _size(header: _Header) -> str:
    return f"{header.size[0]}×{header.size[1]}"


def _header_notes(headers: list[_Header], colour: bool) -> tuple[str, ...]:
    notes = []
    if any(h.mode in _ALPHA for h in headers):
        notes.append("Transparency (the alpha channel) was dropped.")
    if colour and any(h.mode in _GREY for h in headers):
        notes.append("Grey and colour pictures are mixed; all were made colour.")
    if any(h.mode.startswith("I") for h in headers):
        notes.append("Pictures of 16 bits were reduced to 8.")
    if any(h.frames > 1 for h in headers):
        notes.append("Of pictures with several frames only the first was taken.")
    return tuple(notes)


def _rows(files: tuple[Path, ...], colour: bool, dims: int) -> Iterator[Rows]:
    step = block_rows(dims)
    for start in range(0, len(files), step):
        yield np.stack([_pixels(path, colour) for path in files[start : start + step]])


def _pixels(path: Path, colour: bool) -> Rows:
    """One picture as a row of bytes."""
    try:
        with Image.open(path) as picture:
            eight = _eight_bits(picture)
            return np.asarray(eight.convert("RGB" if colour else "L")).reshape(-1)  # (d,)
    except _UNREADABLE as error:
        raise DataError(f"{path} is not a readable picture ({one_line(error)}).") from error


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Pillow cuts 16-bit greys off at 255; scale them instead."""
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))
