"""The advice of a report: the largest cost that the program can change, and how, or that there is none.

It covers steps and hooks, functions that TensorFlow traces, and TensorFlow classes that fastsup can replace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fastsup.core.sessions import SessionOrigin
from fastsup.profile.advice.passes import LIFTING_NS, Cost, advice_on_callback, costs_of_passes
from fastsup.profile.numbers import LOOP, ProfileRows, Row, duration, percent
from fastsup.profile.recording.phases import (
    BETWEEN,
    BY_TENSORFLOW,
    BY_TENSORFLOW_FUNCTION,
    FEED_CONVERSION,
    FETCH_CONVERSION,
    FETCHES,
    HOOK_DISPATCH,
    INPUT_TRACES,
    LIFTING,
    LISTENER,
    MADE_AGAIN,
    PLAN_MAKING,
    SAVE,
    STEP_FETCH,
    TRACING,
)
from fastsup.profile.recording.statistics import RUNTIME, SESSION

__all__ = ["advice_on", "costs_of_functions", "counterpart", "one_line_for"]


def _traces(report: ProfileRows) -> int:
    """Returns the number of function traces, without those of tf.data."""
    return sum(row.times.calls for row in report.rows if row.phase == TRACING and row.detail != INPUT_TRACES)


def costs_of_functions(report: ProfileRows) -> Iterable[Cost]:
    """Yields the costs of functions that the program can change."""
    # For a first trace, the detail is only the function's name.
    again = [row for row in report.rows if row.phase == TRACING and ": " in row.detail and row.detail != INPUT_TRACES]
    yield from _traced_again(report, [row for row in again if not row.detail.endswith(MADE_AGAIN)])
    yield from _made_again(report, [row for row in again if row.detail.endswith(MADE_AGAIN)])
    yield from _of_plain_functions(report)
    elsewhere = [row for row in report.rows if row.phase == RUNTIME and row.detail.startswith(BY_TENSORFLOW)]
    if elsewhere:
        costliest = max(elsewhere, key=lambda row: row.times.total_ns)
        total, calls = sum(row.times.total_ns for row in elsewhere), sum(row.times.calls for row in elsewhere)
        reason = costliest.detail.removeprefix(BY_TENSORFLOW).removeprefix(": ")
        yield Cost(
            "the calls that TensorFlow runs instead of fastsup.function",
            total,
            f"{duration(total / calls)} for each of {calls} calls" + (f": {reason}." if reason else "."),
        )


def _of_plain_functions(report: ProfileRows) -> Iterable[Cost]:
    """Yields the costs of calls to each `tf.function` that lifting it would save."""
    for part in report.sessions:
        if not part.is_function or part.asked_executors != (BY_TENSORFLOW_FUNCTION,):
            continue
        calls_ns = sum(row.times.total_ns for row in report.rows_of(part.name) if row.phase == RUNTIME)
        # On a busy machine, the measurement may exceed a whole call.
        spared = min(int(report.call_ns * part.runs), calls_ns * 9 // 10) - LIFTING_NS
        if spared > 0:
            yield Cost(
                f"the time that fastsup.function saves in {part.name}",
                spared,
                f"about {duration(report.call_ns)} of each of {part.runs} calls, measured on this machine, "
                "less the time to lift it. Use @fastsup.function instead of @tf.function, or leave the program "
                "unchanged: "
                "`python -m fastsup run --functions SCRIPT`.",
            )


def _traced_again(report: ProfileRows, rows: list[Row]) -> Iterable[Cost]:
    """Yields the cost of traces for different arguments."""
    if not rows:
        return
    worst, of_worst = _worst(rows)
    times, of_it = (sum(row.times.calls for row in some) for some in (rows, of_worst))
    reasons = list(dict.fromkeys(row.detail.partition(": ")[2] for row in of_worst))
    yield Cost(
        "tracing again",
        _with_lifting(report, rows),
        f"{times} of {_traces(report)} traces are of functions that had been traced for other arguments. {of_it} of "
        f"them are of {worst}: {'; '.join(reasons[:2])}{'; ...' if len(reasons) > 2 else ''}. Pass tensors of one "
        "shape and dtype (a dataset's drop_remainder=True leaves out the last batch of an epoch), and tensors instead "
        "of Python numbers.",
    )


def _made_again(report: ProfileRows, rows: list[Row]) -> Iterable[Cost]:
    """Yields the cost of traces of functions that were created again."""
    if not rows:
        return
    worst, of_worst = _worst(rows)
    times, of_it = (sum(row.times.calls for row in some) for some in (rows, of_worst))
    yield Cost(
        "tracing functions that are created again",
        _with_lifting(report, rows),
        f"{times} of {_traces(report)} traces, {of_it} of them of {worst}: each new model, and each compile(), "
        "accelerate() or tf.function(), creates new functions, which are traced once. Create models and functions "
        "only once if possible.",
    )


def _worst(rows: list[Row]) -> tuple[str, list[Row]]:
    """Returns the function whose traces take longest, and its rows."""
    by_function: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_function[row.detail.partition(": ")[0]].append(row)
    return max(by_function.items(), key=lambda item: sum(row.times.total_ns for row in item[1]))


def _with_lifting(report: ProfileRows, rows: list[Row]) -> int:
    """Returns the nanoseconds of traces, including their part of the lifting that follows."""
    lifting = sum(row.times.total_ns for row in report.rows if row.phase == LIFTING)
    times = sum(row.times.calls for row in rows)
    return sum(row.times.total_ns for row in rows) + lifting * times // max(_traces(report), 1)


# The classes of `tf.compat.v1.train` that `fastsup.train` replaces.
_TRAIN = frozenset({
    "CheckpointSaverHook", "GlobalStepWaiterHook", "LoggingTensorHook", "MonitoredSession", "MonitoredTrainingSession",
    "NanTensorHook", "ProfilerHook", "SingularMonitoredSession", "StepCounterHook", "StopAtStepHook",
    "SummarySaverHook", "Supervisor",
})  # fmt: skip


def counterpart(name: str) -> str:
    """Returns the fastsup class that replaces a TensorFlow class, such as "fastsup.train.StopAtStepHook", or ""."""
    return f"fastsup.train.{name}" if name in _TRAIN else ""


def one_line_for(sessions: Iterable[SessionOrigin]) -> list[str]:
    """Returns advice for a program with only TensorFlow sessions or plain sessions: the line to change."""
    sessions = list(sessions)
    if not sessions:
        return []
    first = next((opened for opened in sessions if counterpart(opened.kind.partition(".")[0])), sessions[0])
    kind = first.kind.partition(".")[0]
    where = f", in {first.place}" if first.place else ""
    if counterpart(kind):
        return [
            f"The program opens a {kind} of TensorFlow's{where}. One line changes it: `import fastsup.train as train`, "
            f"and `with train.{kind}(...)` instead of tf.compat.v1.train.{kind}. Without an edit: "
            "`python -m fastsup profile -m fastsup run SCRIPT`."
        ]
    if first.library != "fastsup":
        return [
            f"The program opens a plain {kind or 'Session'} of TensorFlow's{where}. One line changes it: "
            "`with fastsup.Session() as session:` in its place."
        ]
    return [
        f"The program opens a plain {kind or 'Session'} of fastsup's{where}, which has no hooks. A session with "
        "hooks is `with fastsup.train.SingularMonitoredSession() as session:`, created when the graph is complete."
    ]


_NOTHING_RECORDED = (
    "No step was recorded: of a fastsup session or loop, of a fastsup.function or tf.function, or of Keras's fit or "
    "predict."
)
# Minimum share of the time that a mentioned cost takes.
_WORTH_A_LOOK = 0.05
# Maximum number of mentioned costs.
_MOST_COSTS = 3
# Plans are created once per combination of fetches and feeds. If more than this are created, and more than one per this
# many steps, the program keeps creating new combinations.
_FEW_PLANS = 8
_STEPS_A_PLAN = 20
# In the thread pool, a run shorter than this mostly waits for threads. Many short runs benefit most from one call.
_LIGHT_NS = 200_000
# Recording takes as long as a step of this length.
_TOO_SHORT_NS = 1_000
# The listener that evaluates for train_and_evaluate. It isn't part of the program.
_OF_TRAIN_AND_EVALUATE = "NewCheckpointListenerForEvaluate"
# Hooks that are called in a smaller share of steps count as rarely called.
_OFTEN = 0.1
# Maximum number of names in a sentence.
_MOST_NAMES = 4
# Steps that take a smaller share of the program's time count as a small part of it.
_SMALL_PART = 0.5


def advice_on(report: ProfileRows) -> str:
    """Returns a few sentences about the largest costs that the program can change, one per line."""
    sentences = [_on_steps(report)]
    if report.steps:
        sentences += [*_plans_made_once(report), *_outside_of_steps(report)]
    sentences += _may_be_compiled(report)
    if report.other_profilers_used:
        sentences.append(
            "This profile doesn't include sessions and loops with their own profiler, or a fit with a ProfilerCallback."
        )
    return " ".join(sentences)


def _on_steps(report: ProfileRows) -> str:
    if report.steps == 0 and report.skipped_steps:
        return f"All {report.skipped_steps} steps were skipped: skip fewer of them."
    if report.steps == 0 and report.sessions:
        return "No step has finished."
    if report.steps == 0:
        return " ".join([_NOTHING_RECORDED, *one_line_for(report.unrecorded_sessions)])
    parts = sorted([*_hook_parts(report), *_session_parts(report)], key=lambda part: -part.total_ns)
    costs = [part for part in parts[:_MOST_COSTS] if report.share(part.total_ns) >= _WORTH_A_LOOK]
    if costs:
        begins = ["Look first at", *["Then at"] * (len(costs) - 1)]
        return "\n".join(
            f"{begin} {cost.name}: {percent(report.share(cost.total_ns))} of the time, {cost.text}"
            for begin, cost in zip(begins, costs, strict=True)
        )
    hooks = report.hooks
    dispatch = sum(row.times.total_ns for row in report.session if row.phase == HOOK_DISPATCH)
    of_hooks = report.share(sum(total for _, total, _ in hooks) + dispatch)
    if hooks and of_hooks >= 2 * _WORTH_A_LOOK:
        name, total, _ = hooks[0]
        return (
            f"Hooks cost {percent(of_hooks)} together, but no single hook costs much: the most expensive, {name}, "
            f"takes {percent(report.share(total))}."
        )
    return _nothing_to_gain(report, of_hooks)


def _may_be_compiled(report: ProfileRows) -> list[str]:
    """Returns advice on functions that take little time and that XLA doesn't compile."""
    light = [
        note.name
        for note in report.functions
        if note.seconds is not None and 1e9 * note.seconds < _LIGHT_NS and not note.is_compiled
    ]
    if not light:
        return []
    return [
        f"Try jit_compile=True: of steps as light as {_listed(list(dict.fromkeys(light)))}, XLA compiles a loop, "
        "which StepLoop, run_loop and fit call for many steps at a time if a trial shows that this is faster "
        "(`python -m fastsup docs compiled`)."
    ]


def _nothing_to_gain(report: ProfileRows, of_hooks: float) -> str:
    sums: dict[str, int] = defaultdict(int)
    for row in report.session:
        sums[row.phase] += row.times.total_ns
    sums["profiler"] = report.profiler_ns
    sums["session layer (unaccounted)"] = report.unaccounted_ns
    phase, most = max(sums.items(), key=lambda part: part[1])
    if phase not in {row.phase for row in report.session} and report.step_time.mean_ns < _TOO_SHORT_NS:
        return (
            f"Steps of {duration(report.step_time.mean_ns)}, with their recording, are too short for a profile, which "
            "only shows the hooks that are called. To find the cost of one, compare a run with it and a run without "
            "it."
        )
    hooks = f"hooks cost {percent(of_hooks)}" if report.hooks else "no hook was called"
    begun = f"The {phase} is {percent(report.share(most))}: {hooks}"
    if phase in (TRACING, LIFTING):
        return f"The {phase} is {percent(report.share(most))}: it happens once for each function and signature."
    fetching = list(dict.fromkeys(row.owner for row in report.rows if row.is_hook and row.basis == "counted"))
    pool = _in_the_pool(report) if phase == RUNTIME else ""
    if fetching:
        verb, pronoun = ("fetches", "it") if len(fetching) == 1 else ("fetch", "them")
        begun += (
            f", but for computing what {' and '.join(fetching)} {verb} in every step: that is in the runtime's row, "
            f"and a run without {pronoun} shows how much it is"
        )
        return f"{begun}. {pool}".rstrip()
    if pool:
        return f"{begun}. {pool}"
    return f"{begun}." if _may_be_compiled(report) else f"{begun}; nothing to gain here."


def _in_the_pool(report: ProfileRows) -> str:
    """Returns advice on short runs in a session with executor="thread_pool", or ""."""
    for session in report.sessions:
        light = [row for row in report.rows_of(session.name) if row.phase == RUNTIME and row.times.mean_ns < _LIGHT_NS]
        if light and session.asked_executors == ("thread_pool",):
            return (
                f'{session.name} runs in the executor "thread_pool", in which such a short run mostly waits for '
                'threads: try executor="auto".'
            )
    return ""


def _hook_parts(report: ProfileRows) -> list[Cost]:
    """Returns the costs of each hook: its callbacks with its fetches, its saves, and each of its listeners."""
    groups: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    passes = {part.name for part in report.sessions if part.is_pass}
    for row in report.rows:
        if row.is_hook and row.thread == LOOP:
            is_its_own = row.phase in (SAVE, LISTENER) and row.session not in passes
            kind = row.phase if is_its_own else ""
            groups[row.session, row.owner, kind, row.detail].append(row)
    # A listener may open a session to evaluate. The listener's row excludes the session's time.
    within: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for part in report.sessions:
        if part.within is not None and part.within[1] != SESSION:
            session, owner, phase, detail = part.within
            key = (session, owner, phase if phase in (SAVE, LISTENER) else "", detail)
            within[key] += part.total_ns
            groups[key] += []
    return [_hook_part(report, *key, rows, within[key]) for key, rows in groups.items()]


def _hook_part(
    report: ProfileRows, session: str, owner: str, kind: str, detail: str, rows: list[Row], within: int
) -> Cost:
    total = sum(row.times.total_ns for row in rows) + within
    calls = sum(row.times.calls for row in rows)
    mean = total / max(calls, 1)
    if kind == LISTENER:
        name = f"the listener {detail} of {owner}" if detail else f"the listeners of {owner}"
        inside = ", most of it in a session that it opens" if within > total / 2 else ""
        if detail == _OF_TRAIN_AND_EVALUATE:
            return Cost(
                "the evaluations of train_and_evaluate",
                total,
                f"{duration(mean)} a checkpoint, with the exporters: a larger EvalSpec(throttle_secs=...) or "
                "save_checkpoints_steps evaluates less often; EvalSpec(keep_graph=True) builds the graph once.",
            )
        return Cost(
            name,
            total,
            f"{duration(mean)} a call{inside}. Each save calls it, before and after: save less often, or do its work "
            "only at every Nth save.",
        )
    if kind == SAVE:
        return Cost(
            f"the saves of {owner}",
            total,
            f"{duration(mean)} each, {calls} of them: save less often, or pass async_save=True, so that training "
            "continues during the save.",
        )
    return Cost(owner, total, _callbacks_text(report, session, owner, rows, total, within))


def _callbacks_text(report: ProfileRows, session: str, owner: str, rows: list[Row], total: int, within: int) -> str:
    text = f"{duration(total / report.steps)} a step"
    if not rows:
        return f"{text}, in a session that it opens."
    worst = max(rows, key=lambda row: row.times.total_ns)
    if within > worst.times.total_ns:
        inside = report.opened_by(session, owner)
        times = sum(part.sessions for part in inside)
        return (
            f"{text}, most of it in {_listed([part.name for part in inside])}: {duration(within / times)} each of "
            f"{times}. Call it less often, or with less data: half as many would save {duration(within // 2)}."
        )
    text += f", most of it {_PHRASES.get(worst.phase, worst.phase)}."
    if any(part.is_pass for part in report.sessions if part.name == session):
        return f"{text} {advice_on_callback(owner, worst, total, worst.times.calls)}".rstrip()
    calls = sum(row.times.calls for row in rows if row.phase in ("after_run", "after_step"))
    runs = next((part.runs for part in report.sessions if part.name == session), report.steps)
    if worst.phase == FETCHES:
        text += " Does the hook need them that often?"
    elif calls >= runs and worst.phase in ("before_run", "after_run"):
        text += " It is called in every step: does it need to be?"
    ours = _counterpart_of(report, session, owner)
    return f"{text} {ours}" if ours else text


def _counterpart_of(report: ProfileRows, session: str, owner: str) -> str:
    """Returns advice on a TensorFlow hook if fastsup has a hook with the same name, or ""."""
    kind = owner.partition(" #")[0]
    for part in report.sessions:
        if part.name == session and kind in part.tensorflow_hooks and counterpart(kind):
            return f"It is TensorFlow's: {counterpart(kind)} is skipped in steps in which it has no work."
    return ""


def _called_most_often(report: ProfileRows) -> list[str]:
    """Returns the names of the hooks that are called at least half as often as the most frequent one."""
    called = [row for row in report.rows if row.is_hook and row.phase == "after_run"]
    most = max((row.times.calls for row in called), default=0)
    return list(dict.fromkeys(row.owner for row in called if 2 * row.times.calls >= most))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


# The kinds of sessions that are loops, from fastsup.core and fastsup.loop.
_STEP_LOOPS = {"StepLoop", "StepLoop.run"}
_PHRASES = {FETCHES: "what it fetches", "summary": "writing summaries", SAVE: "saving"}


def _session_parts(report: ProfileRows) -> Iterable[Cost]:
    """Yields the costs that the program can change and that belong to no hook."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in report.session:
        rows[row.phase].append(row)

    def part(phase: str, name: str, advice: str) -> Iterable[Cost]:
        total = sum(row.times.total_ns for row in rows[phase])
        if total:
            yield Cost(name, total, f"{duration(total / report.steps)} a step. {advice}")

    # None of the program's code runs between the steps of a StepLoop.
    if not report.sessions or {session.kind for session in report.sessions} - _STEP_LOOPS:
        yield from part(
            BETWEEN,
            "the program's own code between the steps",
            "Profile it with Python's profiler."
            + (
                " If nothing needs to run between the steps, use run_loop of the session."
                if any(not (part.is_function or part.is_pass) for part in report.sessions)
                else ""
            ),
        )
    yield from part(
        FEED_CONVERSION,
        "feed conversion",
        "Feed NumPy arrays of the placeholder's dtype, which need no conversion, or read the input with tf.data.",
    )
    yield from part(
        FETCH_CONVERSION, "fetch conversion", "Fetch fewer values, in a flat list, or fetch them in fewer steps."
    )
    yield from part(
        STEP_FETCH,
        "the global step",
        "The session has to fetch it for hooks that depend on it, because it can't predict a run's increment. "
        "Increment it by a constant, once per step.",
    )
    dispatched = sum(row.times.calls for row in rows[HOOK_DISPATCH])
    yield from part(
        # If there are few calls, a session's first one takes most of the time.
        HOOK_DISPATCH if dispatched >= _OFTEN * report.steps else "",
        "hook dispatch",
        f"The session calls {_listed(_called_most_often(report))} in the most steps, and creates arguments and "
        "results for it. Your own hooks and NanTensorHook are called in every step. Remove hooks that you don't "
        "need; a standard hook with an interval is called only when it is due.",
    )
    yield from costs_of_passes(report)
    yield from costs_of_functions(report)
    made = sum(row.times.calls for row in rows[PLAN_MAKING])
    if _makes_plans_all_the_time(report, made):
        yield Cost("plan making", sum(row.times.total_ns for row in rows[PLAN_MAKING]), _on_plans(report, made))


def _makes_plans_all_the_time(report: ProfileRows, made: int) -> bool:
    added = any(part.operations_added for part in report.sessions)
    return made > _FEW_PLANS and (added or made * _STEPS_A_PLAN > report.steps)


def _on_plans(report: ProfileRows, made: int) -> str:
    added = sum(part.operations_added for part in report.sessions)
    if added:
        return (
            f"{made} times in {report.steps} steps: the graph has grown by {added} operations since the session was "
            "opened. Create all operations first, and feed changing values."
        )
    return (
        f"{made} times in {report.steps} steps, for each new combination of fetches and feeds. "
        "Fetch the same elements in the same structure, and feed the same placeholders, in all steps."
    )


def _plans_made_once(report: ProfileRows) -> Iterable[str]:
    """Yields a sentence about plans whose share is large only because there were few steps."""
    rows = [row for row in report.session if row.phase == PLAN_MAKING]
    made, total = sum(row.times.calls for row in rows), sum(row.times.total_ns for row in rows)
    if report.share(total) >= _WORTH_A_LOOK and not _makes_plans_all_the_time(report, made):
        yield (
            f"Plan making is {percent(report.share(total))}: it happens once for each combination of fetches and "
            "feeds, including the hooks'. Its share shrinks in longer runs."
        )


def _outside_of_steps(report: ProfileRows) -> Iterable[str]:
    """Yields a sentence about a program that spends most of its time outside of steps."""
    whole = sum(ns for _, ns, _ in report.timeline)
    if not whole or report.wall_ns >= _SMALL_PART * whole:
        return
    phase, most = max(
        ((name, ns) for name, ns, _ in report.timeline if name not in ("train", "run", "evaluate", "predict")),
        key=lambda part: part[1],
        default=("", 0),
    )
    if most:
        yield (
            f"The steps are {percent(report.wall_ns / whole)} of the whole program: {phase} takes {duration(most)}, "
            f"{percent(most / whole)}."
        )
