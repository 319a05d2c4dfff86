"""A job that can be stopped and goes on, without PyTorch's long start: a step is a fixed amount of CPU time.

Like the hook of profiled jobs it records a step as eight bytes, and waits for its gate after the first one.
Like those of a real job, its processes all begin at the same checkpoint: the first one takes no step before
the others have read it.
"""

import argparse
import os
import signal
import time
from pathlib import Path

STEP_CPU_S = 0.002


def save(checkpoint: Path, done: int) -> None:
    """Write it whole or not at all."""
    whole = checkpoint.with_name(f"{checkpoint.name}.new")
    whole.write_text(str(done))
    whole.replace(checkpoint)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--every", type=int)
    parser.add_argument("--cores", type=float, help="use of a core that is not exceeded, by sleeping")
    parser.add_argument("--tells", type=Path)
    parser.add_argument(
        "--counts", type=Path, help="file that has a byte more for each step of the first process"
    )
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("--aborts", action="store_true", help="abort after the last step")
    options = parser.parse_args()
    asked = []
    gate = Path(os.environ["TWINBED_GATE"]) if "TWINBED_GATE" in os.environ else None
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    if options.tells:
        options.tells.write_text(Path("/proc/self/status").read_text())
    if options.fails:
        raise SystemExit("no data to train on")
    first = os.environ["RANK"] == "0"
    records = [
        Path(os.environ["TWINBED_STEPS"], f"{rank}.steps") for rank in range(int(os.environ["WORLD_SIZE"]))
    ]
    done = int(options.checkpoint.read_text()) if options.checkpoint.exists() else 0
    record = os.open(records[int(os.environ["RANK"])], os.O_WRONLY | os.O_CREAT)
    while first and not asked and not all(path.exists() for path in records):
        time.sleep(0.001)
    while done < options.steps and not asked:
        end_s = time.process_time() + STEP_CPU_S
        while time.process_time() < end_s:
            pass
        if options.cores:
            time.sleep(STEP_CPU_S / options.cores - STEP_CPU_S)
        done += 1
        if first and options.counts:
            with options.counts.open("ab") as counts:
                counts.write(b".")
        os.write(record, time.monotonic_ns().to_bytes(8, "little"))
        if first and done % options.every == 0:
            save(options.checkpoint, done)
        while gate and not asked and not gate.exists():
            time.sleep(0.001)
        gate = None
    if first:
        save(options.checkpoint, done)
    if options.aborts:
        os.abort()
