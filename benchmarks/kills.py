"""python benchmarks/kills.py --data parquet:PATH [--kills 20]

Does a run survive kill -9? One small run is trained without interruption. Then, for every kill, the same run is started
anew, killed at a random moment after its first checkpoint and started again to its end, whose weights must be the same
bytes; its log tells how many steps the second start did again, which must be no more than lie between two checkpoints.
Prints a table and ends with status 1 if anything differs. About half a minute a kill.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pipeline import machine


def events(run: Path) -> list[dict[str, Any]]:
    """The log of a run; a last line that was cut off does not count."""
    lines = (run / "log.jsonl").read_text().split("\n")[:-1] if (run / "log.jsonl").exists() else []
    return [json.loads(line) for line in lines]


def start(options: argparse.Namespace, out: Path) -> subprocess.Popen[bytes]:
    flags = ["--data", options.data, "--model", options.model, "--train-limit", str(options.images)]
    flags += ["--epochs", str(options.epochs), "--checkpoint-every", str(options.interval), "--out", str(out)]
    command = [sys.executable, "-m", "anchored", "train", *flags]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet9")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between checkpoints within an epoch")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    moments, wrong = random.Random(options.seed), 0
    print(f"{machine()}; {os.environ.get('OMP_NUM_THREADS', 'default')} thread(s)\n")
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        began = time.monotonic()
        if start(options, whole).wait():
            raise SystemExit("the run without interruption failed")
        steps = [event["step"] for event in events(whole) if event["event"] == "checkpoint"]
        first = next(event["time"] for event in events(whole) if event["event"] == "checkpoint")
        length = events(whole)[-1]["time"] - first
        print(f"Whole run: {time.monotonic() - began:.0f} s, {steps[-1]} steps, {len(steps)} checkpoints.\n")
        print("| kill | seconds after the first checkpoint | killed after step | went on from | same bytes |")
        print("|---:|---:|---:|---:|---|")
        for kill in range(1, options.kills + 1):
            run, delay = Path(folder) / f"run{kill}", moments.uniform(0, length)
            process = start(options, run)
            while process.poll() is None and not any(event["event"] == "checkpoint" for event in events(run)):
                time.sleep(0.01)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            ended_before = process.wait() == 0
            before = events(run)
            reached = max(event["step"] for event in before)
            saved = max(event["step"] for event in before if event["event"] == "checkpoint")
            failed = start(options, run).wait() != 0
            resumes = [event["step"] for event in events(run) if event["event"] == "resume"]
            same = not failed and digest(run) == digest(whole)
            # A kill between the file and the line that tells of it: the newest checkpoint is younger than the log says.
            repeated = ended_before or (len(resumes) == 1 and resumes[0] >= saved)
            wrong += not (same and repeated)
            print(
                f"| {kill} | {delay:.2f} | {reached} | {resumes[0] if resumes else 'had ended'} | {same} |", flush=True
            )
    print(f"\n{options.kills - wrong} of {options.kills} ended in the same bytes from the last checkpoint on.")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
