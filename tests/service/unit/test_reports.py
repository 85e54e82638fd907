"""What a worker reports of its leases: each record once, whatever comes while a report is on its
way.
"""

from __future__ import annotations

from tarkit.service.reports import Reports

ACCEPTED, STALE = 0, 2


def test_what_is_reported_while_a_report_is_on_its_way_is_sent_after_it() -> None:
    reports = Reports()
    reports.lease(7, 10, [(0, 3), (5, 10)])
    assert reports.add(7, [(0, 2)], "")
    assert reports.take() == [{"token": 7, "ranges": [{"first": 0, "end": 2}]}]
    assert reports.add(7, [(2, 3), (5, 10)], "")
    assert (list(reports.tokens), reports.unfinished, reports.waiting, reports.unanswered) == ([7], 0, True, 1)
    reports.answered([ACCEPTED])
    assert list(reports.tokens) == [7]
    assert reports.take() == reports.take() == [{"token": 7}]
    reports.answered([STALE])
    assert (list(reports.tokens), reports.unanswered) == ([], 0)
    assert reports.counts == {"accepted": 1, "late": 0, "stale": 0, "unknown": 0, "repeated": 1}
    assert not reports.add(7, None, "")


def test_a_part_that_is_done_counts_before_the_rest_fails() -> None:
    reports = Reports()
    reports.lease(7, 10, [(0, 10)])
    assert reports.add(7, [(0, 4)], "") and reports.add(7, None, "no label") and not reports.add(7, None, "")
    assert reports.take() == [{"token": 7, "ranges": [{"first": 0, "end": 4}]}, {"token": 7, "error": "no label"}]
