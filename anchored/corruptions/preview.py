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

LARGEST = 64  # side of a picture on the sheet
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
        row = [image]
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
            row.append(done)
        rows.append(row)
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
    return found


def sheet(rows: list[list[NDArray[np.uint8]]], names: tuple[str, ...], titles: list[str]) -> Image.Image:
    """Rows of pictures (uint8 [H, W, 3], all of one size) with a name above each, in two columns where there are many.

    Pictures with a side above `LARGEST` are shrunk, both sides alike.
    """
    height, width = rows[0][0].shape[:2]
    shrunk = min(1, LARGEST / max(height, width))
    high, wide = max(1, round(height * shrunk)), max(1, round(width * shrunk))
    # A title takes the room of a square picture.
    step = min(LARGEST, max(height, width)) + GAP
    blocks = 2 if len(rows) > 12 else 1
    deep = -(-len(rows) // blocks)
    block_width = len(titles) * step + 4 * GAP
    page = Image.new("RGB", (blocks * block_width, TOP + deep * (high + LABEL + GAP)), PAPER)
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 11)
    for block in range(blocks):
        for column, title in enumerate(titles):
            draw.text((block * block_width + 2 * GAP + column * step, 4), title, INK, font)
    for number, (name, pictures_in_row) in enumerate(zip(names, rows, strict=True)):
        block, row = divmod(number, deep)
        top = TOP + row * (high + LABEL + GAP)
        draw.text((block * block_width + 2 * GAP, top), name, INK, font)
        for column, picture in enumerate(pictures_in_row):
            shown = Image.fromarray(picture)
            if shown.size != (wide, high):
                shown = shown.resize((wide, high), Image.Resampling.BOX)
            page.paste(shown, (block * block_width + 2 * GAP + column * step, top + LABEL))
    return page
