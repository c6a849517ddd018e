"""The report and its forms: they say the same, and all of it."""

from __future__ import annotations

import copy
import csv
import io
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fastsup import HookProfiler
from fastsup.profile.limits import broken, limit_of, unknown
from fastsup.profile.page import as_html
from fastsup.profile.recording.recorder import ManualClock
from fastsup.profile.report import duration, percent, report_of
from fastsup.profile.table import as_text


def by_name(report: Any) -> dict[tuple[str, str], Any]:
    return {(row.owner, row.phase): row for row in report.rows}


def test_rows_add_up_to_the_wall_clock(recorded: HookProfiler) -> None:
    report = recorded.report()
    assert report.wall_ns == 100 * 10_000 + 4_990_000 + 99 * 1000
    parts = sum(row.times.total_ns for row in report.rows) + report.profiler_ns + report.unaccounted_ns
    assert parts == report.wall_ns
    assert report.unaccounted_ns == 100 * 250
    assert sum(row.share for row in report.rows) == pytest.approx(1 - report.share(report.unaccounted_ns))


def test_hooks_come_in_the_order_of_what_they_cost(recorded: HookProfiler) -> None:
    report = recorded.report()
    assert [name for name, _, _ in report.hooks] == [
        "NamedHook #2",
        "NamedHook",
        "AnotherHookWithANameThatIsFarTooLongForItsColumn",
    ]
    assert [row.phase for _, _, rows in report.hooks[:1] for row in rows] == ["save", "after_run"]
    save = by_name(report)["NamedHook #2", "save"]
    assert (save.times.calls, save.times.max_step, save.times.max_ns) == (100, 42, 4_993_000)
    assert [row.phase for row in report.session] == ["runtime", "between steps"]


def test_a_limit_means_all_hooks_of_a_class_or_one_by_its_number(recorded: HookProfiler) -> None:
    report = recorded.report()
    cost = {name: ns for name, ns, _ in report.hooks}
    one, two = cost["NamedHook"], cost["NamedHook #2"]
    for name, ns in (("NamedHook", one + two), ("NamedHook #1", one), ("NamedHook #2", two)):
        share = 100 * ns / report.wall_ns
        limits = [limit_of(f"{name} {share + change:.2f}%") for change in (-0.02, 0.02)]
        assert [sentence.split(" takes ")[0] for sentence in broken(report, limits)] == [name]
        assert not unknown(report, limits)
    # Phases, and rows as the table has them.
    row = next(row for row in report.session if row.phase == "between steps")
    for name in {"between steps", report.shown(row), "save"}:
        assert not unknown(report, [limit_of(f"{name} 100%")])
        assert broken(report, [limit_of(f"{name} 0%")])
    assert unknown(report, [limit_of(f"{name} 1%") for name in ("NamedHook #3", "session")]) == [
        "NamedHook #3",
        "session",
    ]


def test_says_which_hook_to_look_at_first(recorded: HookProfiler) -> None:
    advice = recorded.report().advice()
    assert advice.startswith("Look first at the saves of NamedHook #2: 86.9% of the time, 52.9µs each, 100 of them: ")
    assert "async_save=True" in advice


def test_says_when_hooks_cost_little() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    for _ in range(10):
        with profiler.step():
            with profiler.session_span("runtime"):
                clock.advance(990)
            with profiler.span(object(), "after_run"):
                clock.advance(10)
    assert profiler.report().advice() == "The runtime is 99.0%: hooks cost 1.0%; nothing to gain here."


def test_says_what_takes_the_most_of_all_that_is_not_a_hook() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    with profiler.step():
        with profiler.session_span("runtime"):
            clock.advance(400)
        clock.advance(600)
    assert profiler.report().advice() == (
        "The session layer (unaccounted) is 60.0%: no hook was called; nothing to gain here."
    )


def test_nothing_was_recorded() -> None:
    profiler = HookProfiler()
    lines = profiler.table().splitlines()
    assert lines[0] == "0 steps in 0ns"
    told = (
        "No step was recorded: of a fastsup session or loop, of a fastsup.function or tf.function, or of Keras's fit "
        "or predict."
    )
    assert " ".join(lines[-2:]) == told
    assert json.loads(_written(profiler.write_json))["steps"] == 0


def test_table(recorded: HookProfiler) -> None:
    lines = recorded.table().splitlines()
    assert max(map(len, lines)) <= 80
    text = [" ".join(line.split()) for line in lines]
    assert text[0] == "100 steps in 6.09ms; a step: mean 59.9µs, p50 10.0µs, p99 10.0µs"
    assert "save 100 5.29ms 86.9% 52.9µs 2.99µs 2.99µs 2.99µs 4.99ms 42" in text
    assert "before_run 100 50.0µs 0.8% 500ns 500ns 500ns 500ns 500ns 1" in text
    assert "runtime 100 400µs 6.6% 4.00µs 4.00µs 4.00µs 4.00µs 4.00µs 1" in text
    assert "between steps 99 99.0µs 1.6% 1.00µs 1.00µs 1.00µs 1.00µs 1.00µs 2" in text
    assert "unaccounted 25.0µs 0.4%" in text
    assert "wall 6.09ms 100%" in text
    assert "\x1b" not in recorded.table()


def test_a_long_first_line_is_two() -> None:
    clock = ManualClock()
    profiler = HookProfiler(skip_steps=123_456, clock=clock)
    for _ in range(123_457):
        with profiler.step():
            clock.advance(1_230)
    assert profiler.table().splitlines()[:2] == [
        "1 step (123456 left out before) in 1.23µs;",
        "a step: mean 1.23µs, p50 1.23µs, p99 1.23µs",
    ]


def test_names_too_long_for_a_line_keep_both_ends() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    kind = type("A" * 60 + "B" * 60, (), {})
    hooks = [kind(), kind()]
    for hook in hooks:
        profiler.register(hook)
    with profiler.step():
        for hook in hooks:
            with profiler.span(hook, "after_run"):
                clock.advance(5)
    lines = profiler.table().splitlines()
    assert max(map(len, lines)) <= 80
    assert "A" * 39 + "…" + "B" * 40 in lines
    assert "A" * 39 + "…" + "B" * 37 + " #2" in lines


class Terminal(io.StringIO):
    """A file that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal_only(recorded: HookProfiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, plain = Terminal(), io.StringIO()
    recorded.print_table(terminal)
    recorded.print_table(plain)
    assert "\x1b[" in terminal.getvalue()
    assert plain.getvalue() == recorded.table() + "\n"


def _written(write: Any) -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "out")
        assert [path.name for path in Path(folder).iterdir()] == ["out"]
        return (Path(folder) / "out").read_text(encoding="utf-8")


def test_json(recorded: HookProfiler) -> None:
    written = json.loads(_written(recorded.write_json))
    assert written["schema"] == 3
    assert (
        sum(row["total_ns"] for row in written["rows"]) + written["profiler_ns"] + written["unaccounted_ns"]
        == (written["wall_ns"])
    )
    assert written["rows"][0] == {
        "owner": "NamedHook #2",
        "phase": "save",
        "kind": "hook",
        "basis": "measured",
        "calls": 100,
        "total_ns": 99 * 3000 + 4_993_000,
        "share": pytest.approx(0.8688, abs=1e-3),
        "mean_ns": 52_900.0,
        "p50_ns": pytest.approx(3000, rel=0.01),
        "p95_ns": pytest.approx(3000, rel=0.01),
        "p99_ns": pytest.approx(3000, rel=0.01),
        "max_ns": 4_993_000,
        "max_step": 42,
        "session": "",
        "detail": "",
        "executor": "",
        "thread": "loop",
    }
    assert sum(count for _, _, count in written["step_time"]["buckets"]) == 100


def test_json_has_the_documented_fields(recorded: HookProfiler) -> None:
    page = (Path(__file__).parents[2] / "docs" / "profile-rows.md").read_text(encoding="utf-8")
    written = json.loads(_written(recorded.write_json))
    for name in {*written, *written["rows"][0], *written["step_time"]}:
        assert f"`{name}`" in page


def test_csv(recorded: HookProfiler) -> None:
    rows = list(csv.DictReader(io.StringIO(_written(recorded.write_csv))))
    assert rows[0]["owner"] == "NamedHook #2"
    assert [row["phase"] for row in rows[-3:]] == ["profiler", "unaccounted", "wall"]
    assert sum(int(row["total_ns"]) for row in rows[:-1]) == int(rows[-1]["total_ns"])


def test_trace(recorded: HookProfiler) -> None:
    written = json.loads(_written(recorded.write_trace))["traceEvents"]
    threads = [event["args"]["name"] for event in written if event["name"] == "thread_name"]
    assert threads == ["thread 1"]
    events = [event for event in written if event["ph"] == "X"]
    assert len(events) == 100 * 6
    step = next(event for event in events if event["name"] == "step 42")
    inside = [event for event in events if event["args"]["step"] == 42 and event is not step]
    assert {event["name"] for event in inside} >= {"session: runtime", "NamedHook #2: save"}
    # In microseconds, and each within the span around it.
    assert step["dur"] == pytest.approx(5000)
    for event in inside:
        assert event["ts"] >= step["ts"] - 1e-6
        assert event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 1e-6


class Page(HTMLParser):
    """Checks that a page is well-formed, and collects the addresses that it would load."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.classes: list[str] = []
        self.text = ""
        self.data = ""

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href")]
        self.classes += [value for name, value in attributes if name == "class"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data
        else:
            self.text += data


def test_page(recorded: HookProfiler) -> None:
    page = Page()
    page.feed(_written(recorded.write_html))
    assert page.open == []
    # Nothing is loaded: not by an attribute, nor by a style or a script.
    assert page.loads == []
    assert re.search(r"https?:|url\(|@import|//", _written(recorded.write_html)) is None
    assert page.classes.count("histogram") == 1
    assert "step 42: 5.00ms" in page.text
    assert "Look first at the saves of NamedHook #2" in page.text
    # In the timelines it is named, in its save: in each step that is shown.
    assert _written(recorded.write_html).count(">NamedHook #2</i>") == 8
    assert json.loads(page.data)["steps"] == 100


def test_each_phase_has_a_colour_of_its_own() -> None:
    """Those of Keras have none by name."""
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    for phase in ("train_function", "wait for input", "on_train_batch_end", "runtime"):
        with profiler.step(), profiler.session_span(phase):
            clock.advance(5)
    page = _written(profiler.write_html)
    colours = re.findall(r'class="phase"><i style="background: (#\w+)"', page)
    assert len(colours) == len(set(colours)) == 4


def test_many_phases_have_different_colours() -> None:
    """A program with many callbacks and session hooks: the colours of both kinds, and more than there are by name."""
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    named = ("runtime", "between steps", "save", "before_run", "after_run", "fetches", "summary", "end")
    others = [f"on_{name}" for name in ("epoch_end", "epoch_begin", *map(str, range(40)))]
    for phase in ("tracing", *named, *others):
        with profiler.step(), profiler.session_span(phase):
            clock.advance(5)
    page = _written(profiler.write_html)
    colours = re.findall(r'class="phase"><i style="background: ([^"]+)"', page)
    assert len(colours) == len(set(colours)) == len(named) + len(others) + 1


def test_names_on_the_page_can_not_break_it() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    hook = type("</script><script>alert('&')</script>", (), {})()
    with profiler.step(), profiler.span(hook, "after_run"):
        clock.advance(5)
    page = Page()
    page.feed(_written(profiler.write_html))
    assert page.open == []
    assert page.tags.count("script") == 1


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0ns"),
        (0.5, "0.50ns"),
        (9.99, "9.99ns"),
        (12.34, "12.3ns"),
        (999.4, "999ns"),
        (999.6, "1.00µs"),
        (1234, "1.23µs"),
        (99_960, "100µs"),
        (5e6, "5.00ms"),
        (12_345e9, "12345s"),
    ],
)
def test_durations_in_three_digits(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_percent() -> None:
    assert [percent(share) for share in (0, 0.0456, 0.9994, 0.99999)] == ["0.0%", "4.6%", "99.9%", "100%"]


def test_a_file_that_can_not_be_written_leaves_what_was_there(recorded: HookProfiler, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        recorded.write_json(tmp_path / "missing" / "out.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        recorded.write_json(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_copy_of_a_profiler_is_itself(recorded: HookProfiler) -> None:
    """A copy of a configuration has the same one."""
    assert copy.copy(recorded) is recorded
    assert copy.deepcopy({"profiler": recorded})["profiler"] is recorded
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(recorded)


def test_the_head_says_what_was_run(recorded: HookProfiler) -> None:
    recorded.is_of("train.py", ["--steps", "a b"])
    lines = recorded.table().splitlines()
    assert re.fullmatch(r"train\.py --steps 'a b', \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", lines[1])
    assert re.match(r"fastsup \S+, TensorFlow \S+, Python \S+, NumPy \S+$", lines[2])
    assert re.search(r"\d cores?", lines[3])
    written = json.loads(_written(recorded.write_json))["head"]
    assert (written["script"], written["arguments"]) == ("train.py", ["--steps", "a b"])
    assert set(written["versions"]) == {"fastsup", "TensorFlow", "Python", "NumPy"}
    page = Page()
    page.feed(_written(recorded.write_html))
    assert "train.py --steps 'a b'" in page.text


def test_the_histogram_has_an_axis_with_durations(recorded: HookProfiler) -> None:
    """Steps of 10 microseconds, and one of 5 milliseconds: at the ends of the axis, whose labels are round."""
    lines = recorded.table().splitlines()
    begin = lines.index("how long steps take (height: how many, in powers of ten)")
    columns, axis, labels = lines[begin + 1 : begin + 4]
    assert (columns[0], columns[-1], len(columns)) == ("█", "▂", 80)
    assert set(axis) == {"─", "┴"}
    assert labels.split() == ["10µs", "30µs", "100µs", "300µs", "1ms", "3ms"] or "100µs" in labels.split()
    for label in re.finditer(r"\S+", labels):
        assert "┴" in axis[label.start() : label.end()]
    page = Page()
    page.feed(_written(recorded.write_html))
    assert page.classes.count("across") >= 3
    assert page.classes.count("up") >= 2
    for label in ("100µs", "1.00ms", "duration of a step", "steps"):
        assert f"{label}\n" in page.text or f"{label}" in page.text


def test_the_program_is_on_the_page_and_in_the_table(recorded: HookProfiler) -> None:
    report = report_of(recorded, timeline=[("import", 3 * 10**9, 2), ("train", 10**9, 1)])
    text = [" ".join(line.split()) for line in as_text(report).splitlines()]
    assert "whole program 4.00s 100%" in text
    assert "import 2 3.00s 75.0%" in text
    page = Page()
    page.feed(as_html(report, recorded))
    assert page.open == []
    assert "The whole program: 4.00s" in page.text
    assert page.tags.count("table") == 3
