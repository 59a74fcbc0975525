"""`anchored corrupt`: its flags and what they start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from anchored.corruptions.generate import Request, generate
from anchored.corruptions.units import parse_severities
from anchored.system.errors import InputError

NAME, HELP = "corrupt", "corrupted copies of a data set"


def parser() -> ArgumentParser:
    """Its flags."""
    p = ArgumentParser(
        description="Make the -C and C-bar test sets of your own data: every corruption at every severity, as arrays "
        "(like CIFAR-10-C) or class folders (like ImageNet-C). The same command again goes on where it was interrupted."
    )
    add = p.add_argument
    add(
        "data",
        help="digits, cifar10, cifar100, parquet:, folder: or npz:PATH, csv:FILE, hf:ID_OR_PATH; for --preview "
        "an image too",
    )
    add("--suite", nargs="+", help="c (19; the default), c-mce (15), c-bar (10), or names of corruptions")
    add("--severities", nargs="+", type=str, default=["1-5"], help="like 1-5, or 1 3 5")
    add("--out", type=str, help="folder to write")
    add("--split", default="test", help="which part of the data: test or train")
    add("--layout", help="arrays (NAME.npy and labels.npy) or folder (NAME/SEVERITY/CLASS/FILE); as the data is")
    add("--codec", help="of the layout folder: jpeg (quality 85, as ImageNet-C; the default) or png (lossless)")
    add("--seed", type=int, default=0, help="of the random corruptions")
    add("--table", help="strengths: cifar, tiny, imagenet or inception (by image size)")
    add("--fast", action="store_true", help="float32 and cheaper paths, within 1 level on a few percent of values")
    add("--frost-dir", help="folder of the official frost textures (those of an installed imagecorruptions, else ours)")
    add("--peer-rng", action="store_true", help="numpy's legacy random numbers in the order of the official codes")
    add("--root", help="where the archives of cifar10 and cifar100 are, or are downloaded to")
    add("--image-size", type=int, help="side in pixels (as stored)")
    add("--crop", type=float, default=1.0, help="centre part of the resized image; 0.875 with 224 as for ImageNet-C")
    add("--limit", type=int, help="at most this many images, the classes in their proportions")
    add("--workers", type=int, help="processes (one a core)")
    add("--preview", type=str, metavar="FILE.png", help="write one picture of all corruptions of the first image")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored corrupt`. Raises InputError."""
    from anchored.corruptions.preview import preview

    if flags.out is None and flags.preview is None:
        raise InputError("say where to write: --out FOLDER for the data set, --preview FILE.png for one picture.")
    request = Request(
        data=flags.data,
        suite=tuple(flags.suite or ["c"]),
        severities=parse_severities(flags.severities),
        part=flags.split,
        layout=flags.layout,
        codec=flags.codec,
        seed=flags.seed,
        table=flags.table,
        exact=not flags.fast,
        peer_rng=flags.peer_rng,
        frost_dir=flags.frost_dir,
        root=flags.root,
        image_size=flags.image_size,
        crop=flags.crop,
        limit=flags.limit,
    )
    if flags.preview is not None:
        both = replace(request, suite=("c", "c-bar")) if flags.suite is None else request
        print(preview(both, Path(flags.preview)))
    if flags.out is not None:
        print(generate(request, Path(flags.out), workers=flags.workers))
