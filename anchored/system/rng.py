"""Random streams named by a key, so that every draw can be repeated without replaying those before it."""

from __future__ import annotations

import hashlib

import torch


def stream_seed(*key: int | str) -> int:
    """A 63-bit seed for the stream `key`, stable over machines and versions (BLAKE2b of its text)."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A CPU generator for the stream `key`, e.g. generator(seed, "mask", step)."""
    return torch.Generator().manual_seed(stream_seed(*key))
