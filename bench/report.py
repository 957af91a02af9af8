"""Results as a table for people, JSON for programs and a picture for the docs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import session
from bench.case import Regime
from bench.drawn import GROUP as DRAWN
from bench.runner import CaseResult, Outcome
from bench.saved import EarlierRun, joined
from bench.session import NO_EXTRAS, Extras

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "tpchgen-cli")
_ROOT = Path(__file__).parent.parent


def ratio(result: CaseResult) -> float | None:
    """Built-in's median ÷ ours; above 1 ours is faster."""
    return ratio_of(result, "built-in")


def ratio_of(result: CaseResult, name: str) -> float | None:
    """A contestant's median ÷ ours."""
    return _quotient(result.outcomes.get(name), result.outcomes.get("ours"))


def ratio_to_floor(result: CaseResult) -> float | None:
    """Ours' median ÷ the floor's; 1 is as fast as the bytes can be moved."""
    return _quotient(result.outcomes.get("ours"), result.outcomes.get("floor"))


def _quotient(above: Outcome | None, below: Outcome | None) -> float | None:
    if above is None or below is None or above.median is None or below.median is None:
        return None
    return above.median / below.median


def geometric_mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return math.exp(statistics.fmean(math.log(value) for value in there)) if there else None


def circumstances(command: str, scale: float, rounds: int, extras: Extras = NO_EXTRAS) -> dict[str, Any]:
    """What one must know to run it again.

    :param extras: what the session has besides.
    """
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": _commit(),
        "scale": scale,
        "rounds": rounds,
        "machine": _machine(),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), "java": _java(), **_versions(), **extras.versions},
        "session": {
            "spark.master": f"local[{session.CORES}]",
            "spark.driver.memory": session.DRIVER_MEMORY,
            **session.SETTINGS,
            **extras.settings,
            **({"spark.driver.extraJavaOptions": extras.java_options} if extras.java_options else {}),
        },
    }


def to_dict(results: Sequence[CaseResult], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, as JSON types."""
    return {
        "about": about,
        "cases": [
            {
                "name": result.case.name,
                "group": result.case.group,
                "regime": str(result.case.regime),
                "statement": result.statement,
                "source_rows": result.source_rows,
                "ratio": ratio(result),
                "ratio_to_floor": ratio_to_floor(result),
                "contestants": {
                    name: {
                        "median": outcome.median,
                        "spread": outcome.spread,
                        "seconds": outcome.seconds,
                        "refused": outcome.refused,
                        "error": outcome.error,
                        "other_rows": outcome.other_rows,
                        "facts": outcome.facts.values,
                        "durations_ms": outcome.durations_ms,
                        "how": outcome.facts.how,
                    }
                    for name, outcome in result.outcomes.items()
                },
            }
            for result in results
        ],
        "geometric_mean": geometric_mean(map(ratio, results)),
        "failures": [sentence for result in results for sentence in result.failures],
    }


_FIRST, _LAST = ("ours", "built-in", "delta-rs"), "floor"


def _names(result: CaseResult) -> list[str]:
    """Contestants that take part, in the order of the table's columns."""
    return [name for name in (*_FIRST, *_others(result), _LAST) if name in result.outcomes]


def _others(result: CaseResult) -> list[str]:
    """Contestants that take part only when asked for."""
    return [name for name in result.outcomes if name not in (*_FIRST, _LAST)]


def header(result: CaseResult) -> tuple[str, ...]:
    """The table's, for cases with the same contestants as this one."""
    times = [f"{name} s" for name in _names(result)]
    quotients = ["built-in ÷ ours", *(f"{name} ÷ ours" for name in _others(result))]
    return ("case", *times, *quotients, "files")


def table_row(result: CaseResult, *, spreads: bool = True) -> tuple[str, ...]:
    """One case as texts under the table's header.

    :param spreads: whether times have a `±`, half the distance from the fastest to the slowest round.
    """
    ours = result.outcomes.get("ours", Outcome()).facts.values
    counts = ("touched_files", "candidate_files", "files_before_skipping")
    files = "/".join(str(ours[name]) for name in counts if name in ours)
    times = [_time(result.outcomes[name], spreads) for name in _names(result)]
    quotients = [ratio(result), *(ratio_of(result, name) for name in _others(result))]
    return (result.case.name, *times, *map(_factor, quotients), files)


def _time(outcome: Outcome, spreads: bool) -> str:
    if outcome.refused:
        return "–"
    if outcome.other_rows:
        return "OTHER ROWS"
    if outcome.error:
        return "failed"
    if outcome.median is None or outcome.spread is None:
        return "–"
    return f"{outcome.median:.2f}" + (f" ±{outcome.spread * 50:.0f} %" if spreads else "")


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


#: The steps of ours that :attr:`~airflow_delta_merge.contract.result.MergeResult.durations_ms` has.
_PHASES = ("resolve", "source", "scan", "rewrite", "commit")


def phases(result: CaseResult) -> tuple[str, ...]:
    """One case as texts: the median milliseconds of each phase of ours, and those of the floor, which has none."""
    runs = result.outcomes.get("ours", Outcome()).durations_ms
    of_phases = (statistics.median(run.get(phase, 0) for run in runs) if runs else None for phase in _PHASES)
    cells = [*of_phases]
    if _LAST in result.outcomes:
        floor = result.outcomes[_LAST].median
        cells.append(None if floor is None else floor * 1000)
    return (result.case.name, *("–" if cell is None else f"{cell:.0f}" for cell in cells))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


_WIDTH_OF_NAME, _WIDTH_OF_CELL = 50, 13


def terminal_line(titles: Sequence[str], cells: Sequence[str]) -> str:
    """A line of the table, the first column to the left, the others to the right, below the titles."""
    (name, *others), widths = cells, (max(_WIDTH_OF_CELL, len(title)) for title in titles[1:])
    return "  ".join([name.ljust(_WIDTH_OF_NAME), *map(str.rjust, others, widths)])


def summary(results: Sequence[CaseResult]) -> list[str]:
    """Geometric means by regime and over all, what the floor leaves to gain, and the slowest case."""
    lines = []
    for regime in Regime:
        of_regime = [result for result in results if result.case.regime is regime]
        lines += _mean_line(regime, of_regime)
    lines += _mean_line("all cases", results)
    for name in _others(results[0]) if results else []:
        mean = geometric_mean(ratio_of(result, name) for result in results)
        lines += [] if mean is None else [f"geometric mean of {name} ÷ ours: {mean:.2f}"]
    lines += _floor_line(results)
    ratios = [(value, result.case.name) for result in results if (value := ratio(result)) is not None]
    if ratios:
        lines.append(f"lowest built-in ÷ ours: {min(ratios)[0]:.2f} ({min(ratios)[1]})")
    return lines


def _floor_line(results: Sequence[CaseResult]) -> list[str]:
    """How much is left to gain: nothing that merges is faster than moving the bytes."""
    of_builtin = [_quotient(result.outcomes.get("built-in"), result.outcomes.get("floor")) for result in results]
    most, ours = geometric_mean(of_builtin), geometric_mean(map(ratio_to_floor, results))
    if most is None or ours is None:
        return []
    gain = f"geometric mean of built-in ÷ floor, which is the most there is to gain: {most:.2f}"
    return [f"{gain}; of ours ÷ floor: {ours:.2f}"]


def _mean_line(name: str, results: Sequence[CaseResult]) -> list[str]:
    mean = geometric_mean(map(ratio, results))
    return [] if mean is None else [f"geometric mean of built-in ÷ ours, {name}: {mean:.2f} ({len(results)} cases)"]


def markdown(
    results: Sequence[CaseResult], about: dict[str, Any], made_earlier: Sequence[str] = (), *, for_docs: bool = False
) -> str:
    """The report for people to keep.

    :param made_earlier: sentences about those results that are not of this run.
    :param for_docs: whether to leave the spreads, the phases and the session to the run's own report.
    """
    lines = _table(header(results[0]), (table_row(result, spreads=not for_docs) for result in results))
    lines += ["", *(f"- {line}" for line in summary(results))]
    failures = [sentence for result in results for sentence in result.failures]
    lines += [f"- FAILURE: {sentence}" for sentence in failures]
    notes = _notes(results)
    lines += ["", *notes] if notes else []
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    session_settings = ", ".join(f"`{name}={value}`" for name, value in about["session"].items())
    return "\n".join(
        [
            *lines,
            "",
            *([_left_out(results)] if for_docs else _phases_table(results)),
            "",
            f"Made on {about['when']} by `{about['command']}` at commit {about['commit']}, scale {about['scale']:g}, "
            f"{about['rounds']} rounds after a warm-up.",
            "",
            *(f"{sentence}\n" for sentence in made_earlier),
            f"Machine: {about['machine']}; load average at the start {about['load_average_at_start']}. "
            f"Versions: {versions}." + ("" if for_docs else f" Session: {session_settings}."),
            "",
        ]
    )


def _phases_table(results: Sequence[CaseResult]) -> list[str]:
    with_floor = _LAST in results[0].outcomes
    beside = ", beside the floor, which has no phases" if with_floor else ""
    return [
        f"Where ours spends its time, milliseconds of each phase (medians){beside}:",
        "",
        *_table(("case", *_PHASES, *([_LAST] if with_floor else [])), map(phases, results)),
    ]


def _left_out(results: Sequence[CaseResult]) -> str:
    """What to say in place of the spreads and the phases."""
    spreads = [each.spread * 50 for result in results for each in result.outcomes.values() if each.spread is not None]
    return (
        f"Half the distance from the fastest to the slowest round is at most {max(spreads, default=0):.0f} % of the "
        "median. The run's `report.md` has it for each time, and the milliseconds of each phase; `--profile` adds "
        "Spark's stages."
    )


def _notes(results: Sequence[CaseResult]) -> list[str]:
    """Why others than ours and the built-in are missing, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name in ("delta-rs", *_others(result)):
            outcome = result.outcomes.get(name, Outcome())
            if reason := outcome.refused or outcome.error:
                reasons.setdefault((name, reason), []).append(result.case.name)
    return [f"- no {name}, {reason}: {', '.join(cases)}" for (name, reason), cases in reasons.items()]


_TICKS = (0.1, 0.2, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)


def picture(results: Sequence[CaseResult], path: Path) -> bool:
    """Draw built-in ÷ ours, a bar a case; False when there is nothing to draw, or nothing to draw with."""
    drawn = [(value, result) for result in results if (value := ratio(result)) is not None]
    if not drawn or importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    matplotlib.rcParams["svg.hashsalt"] = "bench"  # the same results give the same file
    colours = dict(zip(Regime, ("#2a78b5", "#8b6bb1", "#d98032"), strict=True))
    drawn.sort(key=lambda pair: (list(Regime).index(pair[1].case.regime), pair[0]))
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.24 * len(drawn)), layout="constrained")
    for place, (value, result) in enumerate(drawn):
        axes.barh(place, value - 1, left=1, color=colours[result.case.regime], height=0.7)
        axes.annotate(
            f"{value:.2f}×", (value, place), xytext=(4 if value >= 1 else -4, 0), textcoords="offset points",
            va="center", ha="left" if value >= 1 else "right", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(drawn)), [result.case.name for _, result in drawn], fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.01)
    low, high = axes.get_xlim()
    axes.set_xticks([each for each in _TICKS if low <= each <= high], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.tick_params(axis="x", labelsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("built-in MERGE's time ÷ this engine's (right of 1×: faster)")
    present = [regime for regime in Regime if any(result.case.regime is regime for _, result in drawn)]
    axes.legend([Rectangle((0, 0), 1, 1, color=colours[each]) for each in present], present, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def save(
    results: Sequence[CaseResult], about: dict[str, Any], folder: Path, earlier: Sequence[EarlierRun] = ()
) -> None:
    """Write `results.json`, `report.md` and, if it can be drawn, `benchmark.svg` into a folder.

    :param earlier: runs whose results stand in the report, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_dict(results, about), indent=1, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    shown, made_earlier = joined(results, earlier)
    (folder / "report.md").write_text(markdown(shown, about, made_earlier), encoding="utf-8")
    picture(shown, folder / "benchmark.svg")


_END = "<!-- end of results -->"
_BEGIN = "<!-- results: written by make bench ARGS=--docs -->"
#: Results with contestants that take part only when asked for, and of cases drawn by chance, have places of their own.
_BEGIN_OTHERS = '<!-- results: written by make bench ARGS="--iceberg --docs" -->'
_BEGIN_DRAWN = '<!-- results: written by make bench ARGS="--drawn N --docs" -->'


def write_docs(
    results: Sequence[CaseResult], about: dict[str, Any], folder: Path, earlier: Sequence[EarlierRun] = ()
) -> None:
    """Put the table between the marks in `benchmark.md`, and the picture beside it; ``earlier`` as for :func:`save`."""
    shown, made_earlier = joined(results, earlier)
    page = folder / "benchmark.md"
    begin = _BEGIN
    if any(result.case.group == DRAWN for result in shown):
        begin = _BEGIN_DRAWN
    elif any(map(_others, shown)):
        begin = _BEGIN_OTHERS
    before, after = around_marks(page, begin, _END)
    has_picture = begin == _BEGIN and picture(shown, folder / "benchmark.svg")
    image = "![Times of the built-in MERGE divided by times of this engine](benchmark.svg)\n\n" if has_picture else ""
    table = markdown(shown, about, made_earlier, for_docs=True)
    page.write_text(f"{before}\n\n{image}{table}\n{after}", encoding="utf-8")


def around_marks(page: Path, begin: str, end: str) -> tuple[str, str]:
    """What stands in a page before and after its results, the lines included that mark them.

    :raises ValueError: when it lacks these lines.
    """
    before, has_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, has_end, after = rest.partition(end)
    if not (has_begin and has_end):
        raise ValueError(f"{page} lacks the lines {begin!r} and {end!r}, between which the results go.")
    return before + begin, end + after


def _commit() -> str:
    commit = _output("git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", str(_ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with changes" if changed else commit


def _machine() -> str:
    names = [line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} × {names[0] if names else platform.machine()}, {memory:.0f} GiB, {platform.system()}"


def _java() -> str:
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return text.splitlines()[0].split('"')[1] if '"' in text else "unknown"


def _versions() -> dict[str, str]:
    there = {}
    for name in _PACKAGES:
        try:
            there[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return there


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
