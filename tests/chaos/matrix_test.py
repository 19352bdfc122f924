"""Tests the evaluation of matrix runs: the losses that a strike excuses, the row in which an event counts, and the missed bars."""
from chaos_faults import Hands
from chaos_matrix import Row, attribute, excused, verdict
from matrix_hands import FAULTS, MatrixHands

KILL, TERM = 9, 15


def lost(answered, begin, at, gateway="gateway0"):
    return {"kind": "lost", "gateway": gateway, "begin": begin, "at": at, "answered": answered, "why": "it ended"}


def stream(begin, pause, pause_end, at, gateway="gateway0"):
    return {"kind": "stream", "gateway": gateway, "begin": begin, "pause": pause, "pause_end": pause_end, "at": at}


def test_a_kill_excuses_what_it_broke():
    strikes = [["gateway0", KILL, 10.0, 12.0]]
    assert excused(lost(True, 9, 10.1), strikes) == "broken"
    assert excused(lost(True, 10.5, 11), strikes) == "failed", "it began behind the kill"
    assert excused(lost(True, 9, 9.9), strikes) == "failed", "it ended before the kill"
    assert excused(lost(True, 9, 10.1, "gateway1"), strikes) == "failed"
    assert excused(lost(False, 11, 11.1), strikes) == "refused"
    assert excused(lost(False, 12.1, 12.2), strikes) == "failed", "it serves again"


def test_a_told_gateway_breaks_no_answer():
    strikes = [["gateway0", TERM, 10.0, float("inf")]]
    assert excused(lost(True, 9, 10.1), strikes) == "failed"
    assert excused(lost(False, 10.5, 10.6), strikes) == "refused"


def test_an_event_counts_in_its_row():
    rows = [Row("none", 0, 0.0), Row("sigterm_gateway", 0, 10.0), Row("disk", 0, 20.0)]
    events = [stream(8, 0.4, 9, 12), stream(9, 1.5, 11, 12), lost(True, 19, 21), {"kind": "late", "at": 12, "seconds": 0.3},
              {"kind": "wrong", "at": 13, "text": "wrong text"}, {"kind": "rested", "at": 30}]
    attribute(events, rows, [["gateway0", TERM, 10.5, 15.0]])
    assert [r.counts["streams"] for r in rows] == [1, 1, 0] and [r.pauses for r in rows] == [[0.4], [1.5], []]
    assert rows[1].counts["in flight"] == 2 and rows[1].late == 0.3 and rows[1].counts["wrong"] == 1
    assert rows[2].counts["failed"] == 1 and len(rows[2].failures) == 1


def row(name, load, pause, **counts):
    r = Row(name, load, 0.0)
    r.counts.update({"streams": 1, **counts})
    r.pauses = [pause]
    return r


def test_bars():
    assert verdict(row("disk", 20, 15.0), 0.1, 20, 0.05) == (15.0, "")
    assert "a pause above 15.0 s" in verdict(row("disk", 20, 15.1), 0.1, 20, 0.05)[1]
    assert verdict(row("hang_worker", 0, 18.9), None, 0, 1.0)[1] == "", "the fault itself lasts 4 s"
    assert verdict(row("kill_worker", 6, 4.0), 1.0, 6, 0.5)[1] == "a pause above 3.0 s"
    assert verdict(row("kill_worker", 20, 14.0), 1.0, 20, 0.5)[1] == ""
    assert verdict(row("disk", 0, 1.0, wrong=1, failed=2), None, 0, 1.0)[1] == "2 failed, 1 wrong"
    assert verdict(row("disk", 0, 1.0, streams=0), None, 0, 1.0)[1] == "no stream"
    assert verdict(row("sigterm_gateway", 0, 1.0), None, 0, 1.0)[1] == "the gateway had no stream"
    r = row("clock", 0, 1.0, streams=0)
    r.not_run = "no clock"
    assert verdict(r, None, 0, 1.0)[1] == ""


def test_every_fault_has_a_hand():
    assert issubclass(MatrixHands, Hands)
    for _, faults in FAULTS.values():
        assert all(hasattr(MatrixHands, "do_" + f["kind"].split("_")[0]) for f in faults)
        assert [f["at"] for f in faults] == sorted(f["at"] for f in faults)
