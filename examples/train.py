"""A stand-in for your training: counts steps, keeps its place in the checkpoint directory, leaves when asked to."""

import os
import signal
import sys
import time
from pathlib import Path

stop = False


def leave(*_: object) -> None:
    global stop  # noqa: PLW0603
    stop = True


signal.signal(signal.SIGTERM, leave)
place = Path(os.environ.get("TENURE_CHECKPOINT_DIR", ".")) / "step"
step = int(place.read_text()) if place.exists() else 0
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
print(f"from step {step} of {steps} on card {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}", flush=True)
while step < steps and not stop:
    time.sleep(0.2)
    step += 1
    place.write_text(str(step))
print(f"left at step {step}", flush=True)
sys.exit(0 if step >= steps else 143)
