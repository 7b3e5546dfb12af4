"""Progress says rate, loss and time left: in lines, or as a bar on a terminal."""

import io
import re
import time

import pytest

from trainer import progress
from trainer.progress import Progress, format_duration, track

LINE = re.compile(r"fit x: (\d+) %, [\d,]+ rows/s, loss 0\.25, \d+:\d\d left\n")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_last_line_has_percentage_rate_loss_and_time_left():
    stream = io.StringIO()
    bar = Progress("fit x", 30, stream=stream)
    for _ in range(3):
        bar.advance(10, 0.25)
    bar.close()
    assert LINE.fullmatch(stream.getvalue()).group(1) == "100"


def test_lines_come_every_few_seconds(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    stream = io.StringIO()
    bar = Progress("fit x", 1000, stream=stream)
    for _ in range(3):
        time.sleep(0.015)
        bar.advance(10, 0.25)
    assert [int(p) for p in LINE.findall(stream.getvalue())] == [1, 2, 3]


def test_earlier_work_of_a_resumed_run_does_not_count_towards_the_rate():
    stream = io.StringIO()
    bar = Progress("fit x", 1_000_000, 999_990, stream=stream)
    time.sleep(0.01)
    bar.advance(10, 0.25)
    bar.close()
    assert bar.rate() < 1100 and "100 %" in stream.getvalue()


def test_a_terminal_gets_a_bar_and_no_lines():
    stream = Terminal()
    bar = Progress("fit x", 20, stream=stream)
    for _ in range(2):
        time.sleep(0.21)
        bar.advance(10, 0.25)
    bar.close()
    assert "\rfit x:" in stream.getvalue() and "loss 0.25" in stream.getvalue()
    assert not LINE.search(stream.getvalue())


def test_progress_is_printed_to_the_current_standard_error(capsys):
    bar = Progress("fit x", 1)
    bar.advance(1, 0.25)
    bar.close()
    assert LINE.fullmatch(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (65.4, "1:05"), (3599.6, "1:00:00"), (86400, "24:00:00")]
)
def test_clock(seconds, shown):
    assert format_duration(seconds) == shown


def test_track_prints_the_time_a_step_took():
    stream = io.StringIO()
    with track(stream, "chains", 20) as advance:
        advance(20)
    with track(stream, "k-means"):
        pass
    assert stream.getvalue() == "chains: 0:00\nk-means: 0:00\n"


def test_track_shows_a_bar_on_a_terminal_and_nothing_without_a_stream(capsys):
    terminal = Terminal()
    with track(terminal, "chains", 20) as advance:
        advance(20)
    assert "20/20" in terminal.getvalue().replace(".0", "")
    with track(None, "chains", 20) as advance:
        advance(20)
    assert capsys.readouterr() == ("", "")
