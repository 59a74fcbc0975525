"""Random fields for a batch of images, one independent stream an image.

Every image draws from its own stream, keyed by (seed, corruption, severity, position in the data set), and every
field of an image from its own sub-stream, so that no result depends on batches, chunks, order or workers.
The streams are made on the CPU whatever the device, so that all devices corrupt alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    """The SplitMix64 finaliser: a bijection of 64-bit words in which every input bit reaches every output bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Streams:
    """The random fields of `n` images: `uniform`, `normal` and `integers`, each of shape [n, *shape].

    indices: positions of the images in their data set, int64 [n]. The k-th call draws from sub-stream k.
    """

    peer = False

    def __init__(self, seed: int, name: str, severity: int, indices: np.ndarray, device: torch.device) -> None:
        digest = hashlib.blake2b(f"{seed}|{name}|{severity}".encode(), digest_size=24).digest()
        self._key = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._indices = np.asarray(indices, dtype=np.uint64)
        self._calls = 0
        self._bits = np.random.SFC64(0)
        self.n = len(self._indices)
        self.device = device

    def _words(self, count: int) -> np.ndarray:
        """`count` random 32-bit words an image, as int32 [n, count]."""
        half = (count + 1) // 2
        out = np.empty((self.n, half), dtype=np.uint64)
        # Three hashed words are the whole state of SFC64; its fourth is a counter.
        call = _mix(np.full(1, self._calls, dtype=np.uint64) + _GOLDEN)
        states = np.ones((self.n, 4), dtype=np.uint64)
        for word in range(3):
            states[:, word] = _mix(_mix(self._indices * _GOLDEN + self._key[word]) ^ call)
        self._calls += 1
        for row, state in zip(out, states, strict=True):
            self._bits.state = {"bit_generator": "SFC64", "state": {"state": state}, "has_uint32": 0, "uinteger": 0}
            row[:] = self._bits.random_raw(half)
        return out.view(np.int32)[:, :count]

    def _unit(self, count: int) -> Tensor:
        """Uniform multiples of 2^-24 in [0, 1), float32 [n, count], on the CPU."""
        return (torch.from_numpy(self._words(count)) >> 8).to(torch.float32).mul_(2.0**-24).add_(0.5)

    def uniform(self, *shape: int) -> Tensor:
        """U[0, 1), float32 [n, *shape]."""
        return self._unit(math.prod(shape)).view(self.n, *shape).to(self.device)

    def normal(self, *shape: int) -> Tensor:
        """N(0, 1), float32 [n, *shape], by the Box-Muller transform (|value| <= 5.77)."""
        count = math.prod(shape)
        half = (count + 1) // 2
        u = self._unit(2 * half)
        # 1 - u lies in (0, 1]; log is vectorised where log1p is not.
        radius = (1 - u[:, :half]).log_().mul_(-2).sqrt_()
        angle = u[:, half:].mul_(2 * math.pi)
        out = torch.empty(self.n, 2 * half)
        torch.mul(angle.cos(), radius, out=out[:, :half])
        torch.mul(angle.sin_(), radius, out=out[:, half:])
        return out[:, :count].reshape(self.n, *shape).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Uniform integers in [low, high), int64 [n, *shape]; the range must be far below 2^24."""
        return (self.uniform(*shape) * (high - low)).long().clamp_(max=high - low - 1).add_(low)

    def child(self) -> Streams:
        """The streams of a part that the references seed anew: here the same ones."""
        return self


class PeerStreams:
    """The same fields from numpy's legacy `RandomState`, one an image, as the reference codes draw them.

    `states` are there for draws that have no counterpart in `Streams` (Poisson, seeds, permutations).
    """

    peer = True

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.states = [np.random.RandomState(int(seed)) for seed in seeds]
        self.n = len(self.states)
        self.device = device

    def stack(self, fields: list[np.ndarray]) -> Tensor:
        """One tensor [n, ...] of a field an image."""
        return torch.from_numpy(np.stack(fields)).to(self.device)

    def uniform(self, *shape: int) -> Tensor:
        """U[0, 1), float64 [n, *shape]."""
        return self.stack([state.random_sample(shape) for state in self.states])

    def normal(self, *shape: int) -> Tensor:
        """N(0, 1), float64 [n, *shape]."""
        return self.stack([state.standard_normal(shape) for state in self.states])

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Uniform integers in [low, high), int64 [n, *shape]."""
        return self.stack([np.asarray(state.randint(low, high, shape or None)) for state in self.states]).long()

    def child(self) -> PeerStreams:
        """New streams, seeded by a 32-bit number from each of these."""
        return PeerStreams([state.randint(low=0, high=2**32) for state in self.states], self.device)


Draws = Streams | PeerStreams
