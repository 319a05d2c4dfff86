"""A job that can be stopped and goes on, without PyTorch's long start: a step is a fixed amount of CPU time.

Like the hook of profiled jobs it records a step as eight bytes.
"""

import argparse
import os
import signal
import time
from pathlib import Path

STEP_CPU_S = 0.002

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--every", type=int)
    parser.add_argument("--tells", type=Path)
    parser.add_argument("--fails", action="store_true")
    options = parser.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    if options.tells:
        options.tells.write_text(Path("/proc/self/status").read_text())
    if options.fails:
        raise SystemExit("no data to train on")
    first = os.environ["RANK"] == "0"
    record = os.open(os.environ["TWINBED_STEPS"] + f"/{os.environ['RANK']}.steps", os.O_WRONLY | os.O_CREAT)
    done = int(options.checkpoint.read_text()) if options.checkpoint.exists() else 0
    while done < options.steps and not asked:
        end_s = time.process_time() + STEP_CPU_S
        while time.process_time() < end_s:
            pass
        done += 1
        os.write(record, time.monotonic_ns().to_bytes(8, "little"))
        if first and done % options.every == 0:
            options.checkpoint.write_text(str(done))
    if first:
        options.checkpoint.write_text(str(done))
