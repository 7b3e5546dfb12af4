"""A folder of images: one row per image, grey or colour, all of one size.

All headers are read first, so an image of another size is reported before time is spent on
decoding the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.data.dataset import DataOptions, Labels, Notes, RawData
from trainer.data.sources import Rows, block_rows
from trainer.data.tables import format_count, quote_names
from trainer.errors import DataError, one_line

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r"})
# Pillow's image modes
_GREY = frozenset({"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I"})
_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True)
class _Listing:
    files: tuple[Path, ...]
    labels: Labels | None
    notes: Notes


@dataclass(frozen=True)
class _Header:
    size: tuple[int, int]  # (W, H), as in Pillow
    mode: str
    frames: int


def read_images(folder: Path, options: DataOptions) -> RawData:
    """Describe the images of a folder, or of its subfolders, whose numbers are the labels.

    Raises DataError if there are none, or if one is unreadable or of another size.
    """
    listing = _list_images(folder)
    files = listing.files[: options.rows]
    headers = [_read_header(path) for path in files]
    _check_sizes(files, headers)
    is_colour = any(h.mode not in _GREY for h in headers)
    width, height = headers[0].size
    image = (height, width, 3) if is_colour else (height, width)
    dims = int(np.prod(image))
    return RawData(files, dims, np.dtype(np.uint8), lambda: _stream(files, is_colour, dims),
                   image=image, labels=listing.labels,
                   notes=listing.notes + _make_notes(headers, is_colour))  # fmt: skip


def _list_images(folder: Path) -> _Listing:
    files, notes = _list_folder(folder)
    subfolders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if files:
        if subfolders:
            names = quote_names([p.name for p in subfolders])
            notes += (f"The subfolders of {folder} were left out: {names}.",)
        return _Listing(files, None, notes)
    classes = [_list_folder(p) for p in subfolders]
    files = tuple(path for members, _ in classes for path in members)
    if not files:
        raise DataError(f"The folder {folder} contains no images ({', '.join(sorted(SUFFIXES))}).")
    labels = np.array([k for k, (members, _) in enumerate(classes) for _ in members], np.int64)
    return _Listing(files, labels, notes + tuple(n for _, more in classes for n in more))


def _list_folder(folder: Path) -> tuple[tuple[Path, ...], Notes]:
    files = sorted(p for p in folder.iterdir() if p.is_file())
    ignored = [p for p in files if p.name.startswith(".") or p.name.lower() in _SYSTEM_FILES]
    visible = [p for p in files if p not in set(ignored)]
    other = [p.name for p in visible if p.suffix.lower() not in SUFFIXES]
    notes = []
    if ignored:
        count = format_count(len(ignored), "hidden or system file")
        notes.append(f"{count} in {folder} left out.")
    if other:
        notes.append(f"Files in {folder} that are not images were left out: {quote_names(other)}.")
    return tuple(p for p in visible if p.suffix.lower() in SUFFIXES), tuple(notes)


def _read_header(path: Path) -> _Header:
    try:
        with Image.open(path) as picture:
            mode = "RGBA" if "transparency" in picture.info else picture.mode
            header = _Header(picture.size, mode, getattr(picture, "n_frames", 1))
    except _UNREADABLE as error:
        raise DataError(f"{path} is not a readable image ({one_line(error)}).") from error
    if header.mode == "F":
        raise DataError(f"{path} has floating-point pixels. Save such images as one .npy file.")
    return header


def _check_sizes(files: tuple[Path, ...], headers: list[_Header]) -> None:
    for path, header in zip(files, headers, strict=True):
        if header.size != headers[0].size:
            raise DataError(
                f"All images must have one size, but {files[0]} is {_format_size(headers[0])} "
                f"and {path} is {_format_size(header)} pixels."
            )


def _format_size(header: _Header) -> str:
    return f"{header.size[0]}×{header.size[1]}"


def _make_notes(headers: list[_Header], is_colour: bool) -> Notes:
    notes = []
    if any(h.mode in _ALPHA for h in headers):
        notes.append("The alpha channel (transparency) was dropped.")
    if is_colour and any(h.mode in _GREY for h in headers):
        notes.append("Grey and colour images are mixed; all were converted to colour.")
    if any(h.mode.startswith("I") for h in headers):
        notes.append("Images of 16 bits were reduced to 8.")
    if any(h.frames > 1 for h in headers):
        notes.append("Only the first frame of images with several frames was used.")
    return tuple(notes)


def _stream(files: tuple[Path, ...], is_colour: bool, dims: int) -> Iterator[Rows]:
    step = block_rows(dims)
    for start in range(0, len(files), step):
        yield np.stack([_read_pixels(path, is_colour) for path in files[start : start + step]])


def _read_pixels(path: Path, is_colour: bool) -> Rows:
    """Return one image as a row of bytes (d,)."""
    try:
        with Image.open(path) as picture:
            eight_bit = _to_eight_bits(picture)
            return np.asarray(eight_bit.convert("RGB" if is_colour else "L")).reshape(-1)  # (d,)
    except _UNREADABLE as error:
        raise DataError(f"{path} is not a readable image ({one_line(error)}).") from error


def _to_eight_bits(picture: Image.Image) -> Image.Image:
    """Scale 16-bit greys to 0..255; Pillow's own conversion would clip them."""
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))
