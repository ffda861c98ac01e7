"""The story, in about a minute.  `--keep` leaves the portal up and prints its address."""

from __future__ import annotations

import argparse
import sys
import time

from tenure.domain.amounts import parse_bytes

from .checks import Cast, promises
from .models import ASSISTANT, EMBEDDER, TEXTS, Models
from .stage import Stage

SHARES, MEMORY = 8, "16Gi"
STUDY = ["-m", "tenure_studies.digits", "--epochs", "14"]
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
    for _ in range(1200):
        try:
            hall = socket.create_connection(place, timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    assert hall.recv(8) == b"all here"
print(f"rank {rank}: met {size} of {size}", flush=True)
time.sleep(5)
"""
# For a shell: what there is to do, and then until a file is there.
NOT_BEFORE = '"$@" && until [ -e "$0" ]; do sleep 0.1; done'


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the portal up and print its address")
    parser.add_argument("--stand-ins", action="store_true", help="no real models, even where they are installed")
    given = parser.parse_args()
    stage = Stage(keep=given.keep, card=f"{SHARES}x{MEMORY}")
    models = Models(stage, stand_ins=given.stand_ins)
    print(
        f"a platform in {stage.home}, with one declared card: {SHARES} shares, {MEMORY} of memory, nothing measured\n"
        + _models_told(models)
        + "\n"
    )
    try:
        cast = play(stage, models)
    except BaseException as error:
        print(f"\nthe story broke off: {error}", file=sys.stderr)
        log = stage.settings.daemon_dir / "daemon.log"
        if log.exists():
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]), file=sys.stderr)
        stage.leave()
        return 1
    finally:
        models.leave()
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


def _models_told(models: Models) -> str:
    if models.real:
        return "two real models, each on one core: all-MiniLM-L6-v2 makes embeddings, SmolLM2-135M-Instruct answers questions"
    why = f"not installed: {', '.join(models.missing)}" if models.missing else "asked for by --stand-ins"
    return f"no real models ({why}): two stand-ins answer by rote; all else is as it would be with real ones"


def play(stage: Stage, models: Models) -> Cast:
    python, say = sys.executable, stage.teller.say
    say("first, the study alone, undisturbed, for comparison", strong=True)
    reference = stage.home / "reference"
    alone = stage.beside([python, *STUDY], reference)
    stage.up(declare=True)

    say("two models are declared: the embedder is resident, the assistant sleeps until somebody asks", strong=True)
    models.declare()
    embedder = models.phases(EMBEDDER)["pid"]
    if models.real:
        near, far = models.nearness()
        say(f"the embedder: {TEXTS[0]!r} is {near:.2f} near to {TEXTS[1]!r}, and {far:.2f} to {TEXTS[2]!r}")
    say("three people ask the sleeping assistant at once", strong=True)
    first = [one.result() for one in models.ask(people=3)]
    say(f"the assistant: {first[0].text!r}, to all three")
    say(f"that wake took {models.wake_told()}")

    say("a batch study takes five of eight shares", strong=True)
    flags = ("--project", "digits", "--priority", "batch", "--shares", "5", "--gpu-memory", "8Gi", "--time", "10m")
    study = stage.submit("study", *flags, command=[python, *STUDY, "--pace", f"{0.05 * stage.slowness:.3f}"])
    stage.wait_line(stage.home / "runs" / f"{study}.1" / "record.jsonl", '"checkpoint"')

    say("a gang of four needs four shares at once; one is free", strong=True)
    script = stage.home / "rendezvous.py"
    script.write_text(RENDEZVOUS)
    gang_flags = ("--gang", "4", "--shares", "1", "--gpu-memory", "512Mi", "--priority", "batch")
    gang = stage.submit("gang", *gang_flags, command=[python, str(script)])
    stage.wait_job(gang, "JobPending")

    say("a training job arrives: more important, and in need of most of the memory", strong=True)
    training_flags = ("--priority", "training", "--shares", "3", "--gpu-memory", "12Gi")
    asked = stage.home / "asked"  # it is not over before somebody has asked for what it has
    trains = [python, "-m", "tenure_studies.digits", "--epochs", "8", "--seed", "7", "--pace", "0.06"]
    training = stage.submit("training", *training_flags, command=["sh", "-c", NOT_BEFORE, str(asked), *trains])
    woken = str(stage.told("ModelWoken", model=ASSISTANT)[0]["job_id"])
    stage.wait_job(study, "JobRequeued")
    stage.wait_job(woken, "JobRequeued")
    stage.wait_job(training, "JobStarted")
    stage.wait_job(gang, "JobStarted")

    say("kill -9 of the daemon, while training and gang run", strong=True)
    stage.kill_daemon()
    time.sleep(1.0)  # not a wait for anything: a second without a platform is part of the story
    say("a plain `tenure up -d`", strong=True)
    stage.up()

    say("somebody asks the assistant, whose memory the training has", strong=True)
    before = stage.newest()
    (held,) = models.ask()
    stage.wait("a held question", lambda e: e["kind"] == "ModelHeld" and e["id"] > before)
    say(f"why {ASSISTANT}: {models.why_not_up()}")
    asked.touch()
    if not models.answers() or models.phases(EMBEDDER)["pid"] != embedder:
        raise RuntimeError("the embedder is not what it was")
    say("the embedder answers meanwhile: the same process as before")

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
    late = held.result(timeout=150)
    say(f"the assistant is back, and the held question answered: {late.text!r}", strong=True)
    stage.wait_job(study, "JobEnded")
    stage.wait_job(gang, "JobEnded")
    if alone.wait(timeout=180) != 0:
        raise RuntimeError("the undisturbed study failed")
    runs = sorted((reference / "runs").iterdir())
    return Cast(
        study=study, gang=gang, training=training, crash=crash, cancelled=doomed, reference=runs[-1],
        assistant=woken, first=first, held=late, embedder=(embedder, models.phases(EMBEDDER)["pid"]),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
