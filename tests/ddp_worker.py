"""One of two processes of test_loop.py: trains its half of every batch under DistributedDataParallel.

python ddp_worker.py RANK FOLDER SOURCE
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from anchored import Anchored, Anchoring, ReferenceSet, anchor, anchored_loss

STEPS, LOCAL, WORLD = 8, 4, 2


def network() -> Anchored:
    """A network without batch norm, the same in every process, in float64."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(6 * 36, 5)).double()
    return anchor(net, example=torch.zeros(2, 3, 6, 6, dtype=torch.float64) + torch.rand(2, 3, 6, 6).double())


def batch(step: int) -> tuple[Tensor, Tensor]:
    """The joint batch of a step."""
    stream = torch.Generator().manual_seed(100 + step)
    n = LOCAL * WORLD
    images = torch.randn(n, 3, 6, 6, generator=stream, dtype=torch.float64)
    return images, torch.randint(5, (n,), generator=stream)


def plan(source: str) -> Anchoring:
    """Half of the steps masked; references from a set of 30 or from the local batch."""
    stream = torch.Generator().manual_seed(7)
    references = ReferenceSet.from_images(torch.randn(30, 3, 6, 6, generator=stream, dtype=torch.float64))
    return Anchoring(alpha=0.5, seed=3, references=references if source == "set" else None, source=source)


def optimiser(net: nn.Module) -> torch.optim.Optimizer:
    """With momentum and decay, which a half of the stem without a gradient would escape."""
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)


def main(rank: int, folder: Path, source: str) -> None:
    """Train, and leave the masking decisions and the parameters in the folder."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    net = nn.parallel.DistributedDataParallel(network())
    anchoring, optimise, masked = plan(source), optimiser(net), []
    for step in range(STEPS):
        x, y = (part[rank * LOCAL : (rank + 1) * LOCAL] for part in batch(step))
        masked.append(anchoring.masked(step))
        r = anchoring.draw(x, step, rank=rank, world=WORLD)
        anchored_loss(net, x, y, r, masked=masked[-1]).backward()
        optimise.step()
        optimise.zero_grad()
    torch.save({"masked": masked, "net": net.module.state_dict()}, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
