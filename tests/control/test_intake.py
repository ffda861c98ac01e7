"""Submissions that come together: one commit for all of them, and for each his own word."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenure.control import verbs
from tenure.control.intake import Fate, Groups, Intake, Submission, write
from tenure.domain.errors import Conflict, InvalidRequest, Unavailable

from .conftest import ME, House


def asked(house: House, *, key: str | None = None, **fields: Any) -> Submission:
    body = {"argv": ["true"], "workdir": str(house.home.parent), "hold": True} | fields
    return verbs.prepared(house.platform, body, caller=ME, idempotency_key=key)


def ids(fate: Fate) -> list[str]:
    assert not isinstance(fate, Exception), fate
    return [row.id for rows in fate for row in rows]


def commits(house: House) -> int:
    return house.platform.ledger.commits[True].count


def test_a_group_is_one_commit_and_each_has_the_jobs_that_he_asked_for(house: House):
    before = commits(house)
    group = [asked(house, name=f"n{n}", environment={"A": "b"}, key=f"k{n}") for n in range(5)]
    group.insert(2, asked(house, name="many", array="3-5"))
    fates = write(house.platform, group)
    assert commits(house) == before + 1
    assert [ids(o) for o in fates] == [["1"], ["2"], ["3_3", "3_4", "3_5"], ["4"], ["5"], ["6"]]
    for submission, fate in zip(group, fates, strict=True):
        answer = verbs.answer(submission, fate)
        shown = house.show(answer["id"])
        assert shown["name"] == answer["name"] == submission.specs[0].name
        assert shown["submitted_at"] == answer["submitted_at"]
    stamps = [row.submitted_at for fate in fates if not isinstance(fate, Exception) for (row, *_) in fate]
    assert stamps == [submission.at for submission in group]
    first = house.platform.ledger.job("1")
    assert first.env_digest is not None
    assert house.platform.ledger.environment(first.env_digest) == {"A": "b"}
    house.wait_reason("6", "Suspended")  # the loop has heard of the last as of the first


def test_who_is_refused_is_refused_alone_and_leaves_no_gap(house: House):
    write(house.platform, [asked(house, key="used")])
    before = commits(house)
    group = [asked(house), asked(house, key="used", name="other"), asked(house, key="fresh"), asked(house, key="used")]
    first, conflict, third, again = write(house.platform, group)
    assert commits(house) == before + 1
    assert isinstance(conflict, Conflict)
    assert (ids(first), ids(third), ids(again)) == (["2"], ["3"], ["1"])


def test_one_that_the_ledger_cannot_take_does_not_fail_its_neighbours(house: House):
    """Its queue went with a reload of the policy, after it had been read: nobody finds out before the writing."""
    lost = asked(house)
    lost = replace(lost, specs=[replace(lost.specs[0], queue="gone")])
    first, refused, last = write(house.platform, [asked(house), lost, asked(house)])
    assert isinstance(refused, InvalidRequest)
    assert refused.code == "UnknownQueue"
    assert (ids(first), ids(last)) == (["1"], ["2"])
    assert [row.id for row in house.platform.ledger.live_jobs()] == ["1", "2"]


def test_the_same_key_twice_in_a_group_is_one_job(house: House):
    group = [asked(house, key="once"), asked(house), asked(house, key="once"), asked(house, key="once", name="other")]
    first, other, same, conflict = write(house.platform, group)
    assert (ids(first), ids(same), ids(other)) == (["1"], ["1"], ["2"])
    assert isinstance(conflict, Conflict)


def test_a_group_cannot_pass_a_cap_together(house: House):
    caps = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: cap, namespace: default}, spec: {hard: {count/jobs.batch: 3}}}"
    Path(house.home / "policy" / "caps.yaml").write_text(caps)
    verbs.reload_policy(house.platform, caller=ME)
    fates = write(house.platform, [asked(house) for _ in range(5)])
    assert [ids(o) for o in fates[:3]] == [["1"], ["2"], ["3"]]
    assert [type(o) for o in fates[3:]] == [Conflict, Conflict]


def test_a_full_disk_refuses_all_and_keeps_none(house: House):
    group = [asked(house, env={"FILL": "x" * 100_000, "N": str(n)}) for n in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))  # as a full disk, for this process alone
    try:
        fates = write(house.platform, group)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [type(o) for o in fates] == [Unavailable] * 3
    assert list(house.platform.ledger.live_jobs()) == []
    assert [ids(o) for o in write(house.platform, group)] == [["1"], ["2"], ["3"]]


def test_those_who_come_while_somebody_writes_are_written_together(house: House):
    """By the one who writes: those who come leave theirs and go on."""
    intake = Intake(house.platform)
    told: dict[int, Groups] = {}
    before = commits(house)

    def done(number: int) -> Any:
        def hear(fate: Fate) -> None:
            assert number not in told
            assert not isinstance(fate, Exception)
            told[number] = fate
            if number == 0:
                for later in range(1, 11):
                    intake.put(asked(house), done(later))
                assert len(told) == 1

        return hear

    intake.put(asked(house), done(0))
    assert commits(house) == before + 2
    assert {number: ids(groups) for number, groups in told.items()} == {n: [str(n + 1)] for n in range(11)}
    intake.put(asked(house), done(11))  # nobody writes now: one who comes later does it himself
    assert ids(told[11]) == ["12"]
