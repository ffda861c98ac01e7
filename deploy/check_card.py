"""The checks of check-card.sh, and the jobs that they submit.

check_card.py HOME TENURE        check with a platform of its own in HOME
check_card.py job see            print which card torch sees
check_card.py job hold BYTES     hold card memory until told to stop, and a little longer
check_card.py job first          print what the card holds, before anything else
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

GIB = 1 << 30
MIB = 1 << 20
SLACK = GIB  # what may come and go on a card with nobody's doing
CLOSING_S = float(
    os.environ.get("CHECK_CARD_CLOSING_S", "2")
)  # a preempted job saves its work first, holding its memory
PATIENCE = float(os.environ.get("CHECK_CARD_PATIENCE", "1"))  # times every wait


# --- the jobs


def see() -> None:
    import torch  # type: ignore[import-not-found, unused-ignore]

    card = torch.cuda.get_device_properties(0)
    print(json.dumps({"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "count": torch.cuda.device_count(), "uuid": f"GPU-{card.uuid}"}))  # fmt: skip


def hold(size: int) -> None:
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    import torch  # type: ignore[import-not-found, unused-ignore]

    held = torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1)
    torch.cuda.synchronize()
    print(json.dumps({"holding": held.numel(), "pid": os.getpid()}), flush=True)
    while not stop:
        time.sleep(0.05)
    time.sleep(CLOSING_S)


def first() -> None:
    uuid = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
    print(json.dumps(look(uuid)), flush=True)


# --- NVML, asked past tenure


def look(uuid: str) -> dict[str, Any]:
    """What the card says of itself: bytes free and used, and who is on it."""
    import pynvml as nvml

    nvml.nvmlInit()
    try:
        card = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        memory = nvml.nvmlDeviceGetMemoryInfo(card)
        pids = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses_v3(card)]
        return {"card": uuid, "total": memory.total, "free": memory.free, "pids": pids}
    finally:
        nvml.nvmlShutdown()


def uuids() -> list[str]:
    import pynvml as nvml

    nvml.nvmlInit()
    try:
        return [
            str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i))) for i in range(nvml.nvmlDeviceGetCount())
        ]
    finally:
        nvml.nvmlShutdown()


# --- the checks


class Failed(Exception):
    """A check did not hold."""


class Hopeless(Failed):
    """It did not hold, and waiting will not help."""


class OutOfTime(BaseException):
    """No check catches this: it ends them all."""


class Check:
    def __init__(self, home: Path, tenure: str) -> None:
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TENURE_")} | {"TENURE_HOME": str(home)}
        self.home, self.tenure = home, tenure
        self.failed, self.since = 0, time.monotonic()
        self.job = [sys.executable, str(Path(__file__).resolve()), "job"]

    def call(self, *words: str, timeout: float = 60) -> str:
        """Standard output of `tenure WORDS`.  Raises Failed with what it said."""
        try:
            done = subprocess.run([self.tenure, *words], env=self.env, capture_output=True, text=True, timeout=timeout, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"tenure {words[0]} did not return within {timeout:.0f} s") from None
        if done.returncode != 0:
            raise Failed(f"tenure {' '.join(words[:2])}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")  # fmt: skip
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.call(*words, "-o", "json"))

    def say(self, what: str, problem: str = "", detail: str = "") -> None:
        self.failed += bool(problem)
        took, self.since = time.monotonic() - self.since, time.monotonic()
        text = f"FAILED  {what}: {problem}" if problem else f"ok      {what}" + (f" ({detail})" if detail else "")
        print(f"{text} [{took:.1f} s]", flush=True)

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[list[str]]:
        """One line of the report.  What is put into the list is said beside an `ok`."""
        detail: list[str] = []
        try:
            yield detail
        except Exception as error:
            text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.say(what, text.replace("\n", " | ") or "?")
        else:
            self.say(what, detail="; ".join(detail))

    def until(self, what: str, ready: Callable[[], Any], timeout: float = 60) -> Any:
        """Look again and again.  Raises Failed after `timeout` seconds."""
        timeout *= PATIENCE
        deadline, last = time.monotonic() + timeout, ""
        while time.monotonic() < deadline:
            try:
                found = ready()
                if found:
                    return found
            except Hopeless:
                raise
            except (Failed, ValueError) as error:
                last = f" ({error})"
            time.sleep(0.2)
        raise Failed(f"{what}: not within {timeout:.0f} s{last}")

    def first_line(self, job: str) -> dict[str, Any] | None:
        over = self.read("show", job)["state"] == "ended"  # asked first: what it said was said by then
        text = self.call("logs", job)
        line = next((line for line in text.splitlines() if line.startswith("{")), None)
        if line is None and over:
            raise Hopeless(f"job {job} ended without a word: {text.strip()[-300:]}")
        return json.loads(line) if line else None

    # --- in order

    def run(self) -> None:
        with self.of("the platform starts"):
            self.call("up", "-d", timeout=60)
        if self.failed:
            return
        cards = self.found()
        if cards:
            self.seen(cards)
            self.preempted(cards)

    def found(self) -> list[str]:
        there: list[str] = []
        with self.of("cards are found by NVML") as detail:
            there = uuids()
            known = {card["id"]: card for card in self.read("cards")}
            if sorted(known) != sorted(there):
                raise Failed(f"NVML lists {there}, tenure {sorted(known)}")
            if not there:
                raise Failed("NVML lists no card")
            if not all(card["source"] == "measured" for card in known.values()):
                raise Failed("a found card is not called measured")
            detail.extend(f"{card['name']} {uuid}" for uuid, card in known.items())
        return there

    def seen(self, cards: list[str]) -> None:
        with self.of("a job sees its card by UUID") as detail:
            line = self.call("run", "--shares", "1", "--gpu-memory", "2Gi", "--", *self.job, "see", timeout=90)
            told = json.loads(line)
            if told["visible"] not in cards or told["uuid"] != told["visible"] or told["count"] != 1:
                raise Failed(f"the job was given {told['visible']} and torch sees {told['count']} x {told['uuid']}")
            detail.append(told["uuid"])

    def preempted(self, cards: list[str]) -> None:
        before = {card: look(card) for card in cards}
        largest = max(state["total"] for state in before.values())
        asked = largest * 95 // 100 // MIB * MIB  # no card holds two, and n cards have no quota for n + 1
        size = min(20 * GIB, largest // 4)
        flags = ["--shares", "1", "--gpu-memory", f"{asked // MIB}Mi"]
        holder, held, told = "", {}, {}
        if len(roomy := [card for card in cards if before[card]["total"] > asked]) > 1:
            with self.of(f"{len(roomy) - 1} of {len(roomy)} cards are taken, so that two jobs meet on the last"):
                for _ in roomy[1:]:
                    filler = self.call("submit", "--priority", "training", *flags, "--", "sleep", "600").strip()
                    self.until(f"job {filler} runs", partial(self.runs, filler))
        what = "a job's memory is attributed to it, declared and measured"
        with self.of(what) as detail:
            holder = self.call("submit", "--priority", "batch", *flags, "--", *self.job, "hold", str(size)).strip()
            held = self.until(f"job {holder} holds memory", lambda: self.first_line(holder), 90)
            on = self.until(f"job {holder} shows measured memory", lambda: self.holding(holder, size), 20)
            if on["memory_declared"] != asked:
                raise Failed(f"{asked} bytes were declared, and {on['memory_declared']} are shown")
            detail.append(f"declared {asked / GIB:.1f} GiB, measured {on['memory_measured'] / GIB:.1f} GiB, torch holds {size / GIB:.1f} GiB")  # fmt: skip
        with self.of("a preempted process gives its memory back before the next one starts") as detail:
            if not held:
                raise Failed("there is no holder to preempt")
            taker = self.call("submit", "--priority", "training", *flags, "--", *self.job, "first").strip()
            told = self.until(f"job {taker} runs", lambda: self.first_line(taker))
            missing = before[told["card"]]["free"] - told["free"]
            if held["pid"] in told["pids"] or missing > SLACK:
                raise Failed(f"as job {taker} began, {missing / GIB:.1f} GiB were missing and {told['pids']} were on the card")  # fmt: skip
            detail.append(f"{told['free'] / GIB:.1f} of {told['total'] / GIB:.1f} GiB free at the preemptor's first line")  # fmt: skip
        with self.of("the record says who was preempted, by whom, and how it ended"):
            attempt = self.read("show", holder)["attempts"][0]
            if attempt["outcome"] != "interrupted" or attempt["evicted"]["by"] != taker:
                raise Failed(f"outcome {attempt['outcome']}, evicted {attempt['evicted']}")
        with self.of("a cancelled job's memory comes back"):
            card = told["card"]
            self.call("cancel", holder)
            self.until(f"job {holder} ends", lambda: self.read("show", holder)["state"] == "ended")
            self.until("the card is as it was", lambda: before[card]["free"] - look(card)["free"] <= SLACK, 20)

    def runs(self, job: str) -> bool:
        return bool(self.read("show", job)["state"] == "running")

    def holding(self, job: str, size: int) -> dict[str, Any] | None:
        """The job among the holders of a card, once at least `size` bytes were measured."""
        for card in self.read("top", "--once"):
            for holder in card["holders"]:
                if holder["id"] == job and (holder["memory_measured"] or 0) >= size:
                    found: dict[str, Any] = holder
                    return found
        return None

    def clean(self) -> None:
        with self.of("nothing is left running"):
            problem = ""
            try:
                self.call("down", timeout=45)
            except Failed as error:
                problem = str(error)
            with contextlib.suppress(Failed):  # a daemon that has let go takes a moment to be gone
                self.until("all is gone", lambda: not dict(self.ours()), 5)
            left = dict(self.ours())
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if left or problem:
                raise Failed(problem or f"still there, and killed: {'; '.join(left.values())}")

    def ours(self) -> Iterator[tuple[int, str]]:
        """Every process that has our home in its environment, with its command line."""
        mark = f"TENURE_HOME={self.home}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        words = (folder / "cmdline").read_bytes().split(b"\0")
                        yield int(folder.name), f"{folder.name} {b' '.join(words).decode(errors='replace')[:200]}"


def stop(number: int, _: object) -> None:
    raise OutOfTime(f"out of time (signal {number})")


def main(words: list[str]) -> int:
    if words[0] == "job":
        {"see": see, "first": first, "hold": hold}[words[1]](*map(int, words[2:]))  # type: ignore[operator]
        return 0
    check = Check(Path(words[0]), words[1])
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    began = time.monotonic()
    try:
        check.run()
    except OutOfTime as error:
        check.say("the checks end in time", str(error))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        check.clean()
    print(f"{'FAILED' if check.failed else 'ok'}: {check.failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
