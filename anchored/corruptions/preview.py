"""One picture of corruptions by severity: a contact sheet."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import anchored.data as sources
from anchored.corruptions import tables
from anchored.corruptions.api import MIN_SIDE, corrupt
from anchored.corruptions.generate import Request
from anchored.corruptions.units import peer_seed
from anchored.data import Options
from anchored.data.decode import Failure, pictures
from anchored.data.folder import SUFFIXES
from anchored.system.errors import InputError
from anchored.system.files import write_atomic

CELL = 64  # largest side of a picture on the sheet
GAP, LABEL, TOP = 3, 17, 20
INK, PAPER = (40, 40, 40), (255, 255, 255)


def preview(request: Request, path: Path) -> Path:
    """Write the contact sheet of the first image of `request.data` (or of that image file) as PNG to `path`.

    One row a corruption, one column a severity, the untouched image first; corruptions are computed at the full size
    of the image and shrunk to be shown. Raises InputError for bad input and an unwritable path.
    """
    if path.suffix.lower() != ".png":
        raise InputError(f"--preview is a PNG file, NAME.png; got {path}.")
    image = _image(request)
    height, width = image.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise InputError(f"images must have sides of at least {MIN_SIDE} px, not {width}x{height}; pass --image-size.")
    table, _ = tables.choose(request.table, height, width)
    names = request.names(table)
    rows = []
    for name in names:
        cells = [image]
        for severity in request.severities:
            seeds = [peer_seed(request.seed, severity, 0)] if request.peer_rng else None
            (done,) = corrupt(
                image[None],
                name,
                severity,
                seed=request.seed,
                table=request.table,
                exact=request.exact,
                frost_dir=request.frost_dir,
                peer_seeds=seeds,
            )
            cells.append(done)
        rows.append(cells)
    page = sheet(rows, names, ["clean", *(f"severity {severity}" for severity in request.severities)])
    try:
        write_atomic(path, lambda temporary: page.save(temporary, "PNG", optimize=True))
    except OSError as error:
        raise InputError(f"cannot write --preview {path}: {error.strerror or error}.") from error
    return path


def _image(request: Request) -> NDArray[np.uint8]:
    """The first image of the data, or of the image file that `data` names, uint8 [H, W, 3]."""
    options = Options(size=request.image_size, root=request.root, crop=request.crop)
    file = Path(request.data)
    if file.suffix.lower() in SUFFIXES and file.is_file():
        found, called = next(iter(pictures([file], options)))[0], str(file)
    else:
        listing = sources.listing(request.data, part=request.part, root=request.root)
        found, called = next(iter(pictures(listing.pictures(np.zeros(1, np.int64)), options)))[0], listing.called(0)
    if isinstance(found, Failure):
        raise InputError(f"{called} is not a readable image ({found.reason}).")
    if found.shape[0] != found.shape[1]:
        size = f"{found.shape[1]}x{found.shape[0]}"
        raise InputError(f"{called} is not square ({size} pixels), as some corruptions need; pass --image-size.")
    return found


def sheet(rows: list[list[NDArray[np.uint8]]], names: tuple[str, ...], titles: list[str]) -> Image.Image:
    """Rows of pictures (uint8 [H, W, 3]) with a name above each row, in two columns where there are many."""
    side = min(CELL, max(rows[0][0].shape[:2]))
    blocks = 2 if len(rows) > 12 else 1
    deep = -(-len(rows) // blocks)
    wide = len(titles) * (side + GAP) + 4 * GAP
    page = Image.new("RGB", (blocks * wide, TOP + deep * (side + LABEL + GAP)), PAPER)
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 11)
    for block in range(blocks):
        for column, title in enumerate(titles):
            draw.text((block * wide + 2 * GAP + column * (side + GAP), 4), title, INK, font)
    for number, (name, cells) in enumerate(zip(names, rows, strict=True)):
        block, row = divmod(number, deep)
        top = TOP + row * (side + LABEL + GAP)
        draw.text((block * wide + 2 * GAP, top), name, INK, font)
        for column, cell in enumerate(cells):
            shown = Image.fromarray(cell)
            if shown.size != (side, side):
                shown = shown.resize((side, side), Image.Resampling.BOX)
            page.paste(shown, (block * wide + 2 * GAP + column * (side + GAP), top + LABEL))
    return page
