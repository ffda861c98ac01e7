"""The story, in about a minute.  `--keep` leaves the portal up and prints its address."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from tenure.domain.amounts import parse_bytes

from .checks import Cast, promises
from .stage import Stage

SHARES, MEMORY = 8, "16Gi"
STUDY = ["-m", "tenure_studies.digits", "--epochs", "16"]
RENDEZVOUS = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    door = socket.create_server(place)
    guests = [door.accept()[0] for _ in range(size - 1)]
    for guest in guests:
        guest.sendall(b"all here")
else:
    for _ in range(200):
        try:
            hall = socket.create_connection(place, timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    assert hall.recv(8) == b"all here"
print(f"rank {rank}: met {size} of {size}", flush=True)
time.sleep(5)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the portal up and print its address")
    given = parser.parse_args()
    stage = Stage(keep=given.keep, card=f"{SHARES}x{MEMORY}")
    print(
        f"a platform in {stage.home}, with one declared card: {SHARES} shares, {MEMORY} of memory, nothing measured\n"
    )
    try:
        cast = play(stage)
    except BaseException as error:
        print(f"\nthe story broke off: {error}", file=sys.stderr)
        log = stage.settings.daemon_dir / "daemon.log"
        if log.exists():
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]), file=sys.stderr)
        stage.leave()
        return 1
    print("\n" + stage.tenure("runs", "ls") + "\n")
    remains = [] if stage.keep else stage.leave()
    broken = 0
    for promise in promises(stage.home, cast, shares=SHARES, memory=parse_bytes(MEMORY), remains=remains):
        broken += not promise.kept
        print(f"{'kept  ' if promise.kept else 'BROKEN'}  {promise.text}  ({promise.seen})")
    if stage.keep:
        print(f"\nthe portal is up:\n{stage.tenure('token', 'url', check=False)}")
        print(f"stop it with: TENURE_HOME={stage.home} .venv/bin/tenure down")
    elif not broken:
        stage.sweep()
    print(f"\n{'every promise was kept' if not broken else f'{broken} promises were broken; see {stage.home}'}")
    return 1 if broken else 0


def play(stage: Stage) -> Cast:
    python, say = sys.executable, stage.teller.say
    say("first, the study alone, undisturbed, for comparison", strong=True)
    reference = stage.home / "reference"
    alone = subprocess.Popen(
        [python, *STUDY], env={**stage.env, "TENURE_HOME": str(reference)}, stdout=subprocess.DEVNULL
    )
    stage.up(declare=True)

    say("a batch study takes six of eight shares", strong=True)
    flags = ("--project", "digits", "--priority", "batch", "--shares", "6", "--gpu-memory", "10Gi", "--time", "10m")
    study = stage.submit("study", *flags, command=[python, *STUDY, "--pace", "0.05"])
    stage.wait_line(stage.home / "runs" / f"{study}.1" / "record.jsonl", '"checkpoint"')

    say("a gang of four needs four shares at once; two are free", strong=True)
    script = stage.home / "rendezvous.py"
    script.write_text(RENDEZVOUS)
    gang_flags = ("--gang", "4", "--shares", "1", "--gpu-memory", "1Gi", "--priority", "batch")
    gang = stage.submit("gang", *gang_flags, command=[python, str(script)])
    stage.wait_job(gang, "JobPending")

    say("a training job arrives, and it is more important", strong=True)
    training_flags = ("--priority", "training", "--shares", "4", "--gpu-memory", "8Gi")
    training = stage.submit(
        "training",
        *training_flags,
        command=[python, "-m", "tenure_studies.digits", "--epochs", "6", "--seed", "7", "--pace", "0.06"],
    )
    stage.wait_job(study, "JobRequeued")
    stage.wait_job(training, "JobStarted")
    stage.wait_job(gang, "JobStarted")

    say("kill -9 of the daemon, while training and gang run", strong=True)
    stage.kill_daemon()
    time.sleep(1.0)  # not a wait for anything: a second without a platform is part of the story
    say("a plain `tenure up -d`", strong=True)
    stage.up()

    say("two small jobs: one will be cancelled, one crashes", strong=True)
    doomed = stage.submit("cancelled", command=["sleep", "600"])
    crash = stage.submit("crash", command=[python, "-c", "print(1 / 0)"])
    stage.wait_job(doomed, "JobStarted")
    stage.tenure("cancel", doomed, "--reason", "the demo wants it so")
    stage.wait_job(crash, "JobEnded")
    stage.wait_job(doomed, "JobEnded")

    stage.wait_job(training, "JobEnded")
    stage.wait_job(study, "JobStarted", attempt=2)
    say("the study has the card again, and goes on where it was", strong=True)
    stage.wait_job(study, "JobEnded")
    stage.wait_job(gang, "JobEnded")
    if alone.wait(timeout=120) != 0:
        raise RuntimeError("the undisturbed study failed")
    runs = sorted((reference / "runs").iterdir())
    return Cast(study=study, gang=gang, training=training, crash=crash, cancelled=doomed, reference=runs[-1])


if __name__ == "__main__":
    sys.exit(main())
