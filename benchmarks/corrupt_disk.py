"""A whole corrupted test set written to disk by `anchored corrupt`: wall time, CPU time, peak memory.

    python benchmarks/corrupt_disk.py --data parquet:../shared/data/cifar10 --out FOLDER

Runs the command in fast and in exact mode (950,000 images of CIFAR-10-C each, 2.9 GB) and removes what it wrote.
Memory is that of all processes together, pages they share counted once (Linux: proportional set size), sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """A process and all that come from it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [below for child in task.read_text().split() for below in tree(int(child))]
    return found


def sample(pid: int, cpu: dict[int, float]) -> float:
    """Bytes of memory of a process tree now; updates the CPU seconds of its members."""
    total = 0.0
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
            cpu[member] = (int(fields[11]) + int(fields[12])) / TICKS
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (OSError, IndexError):  # it has ended
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="parquet:../shared/data/cifar10")
    parser.add_argument("--suite", nargs="+", default=["c"])
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "anchored-corrupt-disk")
    parser.add_argument("--modes", nargs="+", default=["fast", "exact"])
    parser.add_argument("more", nargs="*", help="more flags of anchored corrupt, after --")
    args = parser.parse_args()
    if args.out.exists():
        raise SystemExit(f"--out {args.out}: is there already; it is to be made and removed here.")
    for mode in args.modes:
        command = [sys.executable, "-m", "anchored", "corrupt", args.data, "--suite", *args.suite]
        command += ["--out", str(args.out), *(["--fast"] if mode == "fast" else []), *args.more]
        load = os.getloadavg()[0]
        start, peak, cpu = time.monotonic(), 0.0, {}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            peak = max(peak, sample(process.pid, cpu))
            time.sleep(0.2)
        wall = time.monotonic() - start
        if process.returncode:
            raise SystemExit(process.returncode)
        manifest = json.loads((args.out / "manifest.json").read_text())
        images = manifest["images"]["count"] * len(manifest["corruptions"]) * len(manifest["severities"])
        size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
        shutil.rmtree(args.out)
        print(
            f"{mode}: {images:,} images, {size / 1e9:.2f} GB in {wall:.1f} s ({images / wall:,.0f} images/s); "
            f"CPU {sum(cpu.values()):.1f} s of {os.cpu_count()} cores; peak memory {peak / 2**20:.0f} MiB; "
            f"load of the machine before {load:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
