"""sbatch's options: how each is spelled, whether it takes a value, and what becomes of it here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .spelling import nearest

__all__ = ["OPTIONS", "TENURE_OPTIONS", "Option", "find_long", "find_short"]


@dataclass(frozen=True, slots=True)
class Option:
    """`value`: `yes`, `no` or `maybe`.  `note` set: known and without effect here."""

    name: str
    short: str = ""
    value: str = "yes"
    note: str = ""


_NOTHING = "has no effect here"
_ONE_NODE = "has no effect here: there is one node"
_MAIL = "has no effect here: no mail is sent; `tenure wait` and the event stream tell when a job has ended"

_READ = (
    Option("job-name", "J"), Option("time", "t"), Option("nodes", "N"), Option("ntasks", "n"), Option("cpus-per-task", "c"),
    Option("mem"), Option("mem-per-cpu"), Option("mem-per-gpu"), Option("gres"), Option("gpus", "G"), Option("gpus-per-task"),
    Option("gpus-per-node"), Option("cpus-per-gpu"), Option("ntasks-per-node"), Option("partition", "p"), Option("qos", "q"),
    Option("array", "a"), Option("dependency", "d"), Option("output", "o"), Option("error", "e"), Option("open-mode"),
    Option("requeue", value="no"), Option("no-requeue", value="no"), Option("export"), Option("chdir", "D"), Option("signal"),
    Option("begin", "b"), Option("comment"), Option("account", "A"), Option("hold", "H", "no"),
)  # fmt: skip

_KNOWN = (
    *(Option(n, v, "yes", _MAIL) for n, v in (("mail-type", ""), ("mail-user", ""))),
    *(
        Option(n, s, "yes", _ONE_NODE)
        for n, s in (
            ("nodelist", "w"), ("nodefile", "F"), ("exclude", "x"), ("constraint", "C"), ("batch", ""), ("prefer", ""), ("cluster-constraint", ""),
            ("clusters", "M"), ("switches", ""), ("distribution", "m"), ("mincpus", ""), ("sockets-per-node", ""),
            ("cores-per-socket", ""), ("threads-per-core", ""), ("extra-node-info", "B"), ("ntasks-per-socket", ""),
            ("ntasks-per-core", ""), ("ntasks-per-gpu", ""), ("gpus-per-socket", ""), ("hint", ""), ("core-spec", "S"),
            ("thread-spec", ""),
        )
    ),
    *(
        Option(n, s, "yes", _NOTHING)
        for n, s in (
            ("time-min", ""), ("deadline", ""), ("licenses", "L"), ("wckey", ""), ("reservation", ""), ("priority", ""), ("tmp", ""),
            ("input", "i"), ("acctg-freq", ""), ("bb", ""), ("bbf", ""), ("container", ""), ("cpu-freq", ""), ("delay-boot", ""),
            ("export-file", ""), ("gid", ""), ("uid", ""), ("gpu-bind", ""), ("gpu-freq", ""), ("gres-flags", ""), ("kill-on-invalid-dep", ""),
            ("mcs-label", ""), ("mem-bind", ""), ("network", ""), ("power", ""), ("profile", ""), ("wait-all-nodes", ""), ("tres-per-task", ""),
        )
    ),
    *(
        Option(n, s, "no", _NOTHING)
        for n, s in (
            ("contiguous", ""), ("ignore-pbs", ""), ("overcommit", "O"), ("oversubscribe", "s"), ("parsable", ""), ("quiet", "Q"),
            ("reboot", ""), ("spread-job", ""), ("test-only", ""), ("use-min-nodes", ""), ("verbose", "v"), ("wait", "W"),
        )
    ),
    *(Option(n, s, "maybe", _NOTHING) for n, s in (("exclusive", ""), ("get-user-env", ""), ("nice", ""), ("no-kill", "k"), ("propagate", ""))),
)  # fmt: skip

OPTIONS: Mapping[str, Option] = {option.name: option for option in (*_READ, *_KNOWN)}
_SHORT: Mapping[str, Option] = {option.short: option for option in OPTIONS.values() if option.short}

TENURE_OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        Option("gpu-memory"), Option("shares"), Option("whole", value="no"), Option("project"), Option("queue"), Option("priority"),
        Option("grace"),
    )
}  # fmt: skip


def find_long(name: str, options: Mapping[str, Option] = OPTIONS) -> tuple[Option | None, str]:
    """The option by its name or by a beginning that only it has, as getopt does; else None and a hint."""
    if name in options:
        return options[name], ""
    begins = [o for o in options if o.startswith(name)]
    if len(begins) == 1 and len(name) > 1:
        return options[begins[0]], ""
    near = nearest(name, options)
    return None, near if near.startswith("; did") else ""


def find_short(letter: str) -> Option | None:
    return _SHORT.get(letter)
