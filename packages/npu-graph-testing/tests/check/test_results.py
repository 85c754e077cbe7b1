"""Files of results: written whole, read or refused in a line, compared place by place, shown."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npu_graph_check import run_command
from npu_graph_check.errors import ResultFileError
from npu_graph_check.results.comparison import compare_results
from npu_graph_check.results.page import as_page
from npu_graph_check.results.probe_result import Figure, Observation, ProbeResult
from npu_graph_check.results.result_file import (
    Results,
    keep_previous,
    read_results,
    write_results,
)
from npu_graph_check.results.text import as_text


def results() -> Results:
    """Return a run of a few probes with something of each kind."""
    probes = tuple(
        ProbeResult(
            id=f"capture.number-{number}",
            title=f"The claim {number} <holds>",
            rows=("capture-1",),
            verdict="confirmed" if number else "otherwise",
            because="",
            observations=tuple(
                Observation(what=f"place {place}", seen=place, expected=place, agrees=True)
                for place in range(3)
            ),
            figures=(Figure(name="time", value=1.5, unit="us"),),
            seconds=0.5,
        )
        for number in range(6)
    )
    environment = {"soc": "Ascend910B1", "cann": "9.1.0", "driver": "25.5.0"}
    return Results(environment=environment, probes=probes, begun="2026-01-01", ended="complete")


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_results(tmp_path / "r.json", results())

    assert read_results(tmp_path / "r.json") == results()
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_comparison_of_equal_results_is_empty() -> None:
    assert compare_results(results(), results()) == []
    later = dataclasses.replace(results(), begun="2026-02-02")
    assert compare_results(results(), later) == []


def test_comparison_finds_exactly_the_places_that_were_changed_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_results(first, results())
    changed: Any = results().to_mapping()
    changed["environment"]["soc"] = "Ascend910B3"
    changed["environment"]["cann"] = "9.2.0"
    probes = changed["probes"]
    probes[0]["verdict"] = "confirmed"
    probes[1]["verdict"] = "not tried"
    probes[1]["because"] = "no time"
    probes[2]["observations"][0]["seen"] = 107000
    probes[2]["observations"][2]["seen"] = "text"
    probes[3]["observations"][1]["seen"] = [1.0]
    probes[4]["figures"][0]["value"] = 2.5
    probes[5]["observations"][0]["seen"] = None
    second.write_text(json.dumps(changed), encoding="utf-8")

    status = run_command(["compare", str(first), str(second), "--json"])

    found = [(each["where"], each["what"]) for each in json.loads(capsys.readouterr().out)]
    assert status == 1
    assert found == [
        ("soc", ""),
        ("cann", ""),
        ("capture.number-0", "verdict"),
        ("capture.number-1", "verdict"),
        ("capture.number-1", "because"),
        ("capture.number-2", "place 0"),
        ("capture.number-2", "place 2"),
        ("capture.number-3", "place 1"),
        ("capture.number-4", "time in us"),
        ("capture.number-5", "place 0"),
    ]


def test_comparison_prints_the_rows_in_the_words_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "a", results())
    other = dataclasses.replace(results(), probes=results().probes[1:])
    write_results(tmp_path / "b", other)

    assert run_command(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1

    said = capsys.readouterr().out
    assert "capture-1: The default stream cannot be captured: 107000" in said
    assert "capture.number-0: 'otherwise' | '(not there)'" in said
    assert said.endswith("1 difference\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "expected JSON as `npu-graph-check run` writes it"),
        ("[]", "expected a file of npu-graph-check"),
        ('{"kind": "npu-graph-check", "schema": 99}', "expected schema 1, found 99"),
        ('{"kind": "npu-graph-check", "schema": 1}', "expected the fields of schema 1"),
        ("[" * 100000, "expected JSON as `npu-graph-check run` writes it"),
        ('{"kind": NaN}', "found NaN, which JSON has not"),
        (None, "No such file"),
    ],
)
def test_file_that_is_not_a_result_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, found: str
) -> None:
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    assert run_command(["show", str(path)]) == 2

    said = capsys.readouterr().err
    assert found in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ((), "id", 5),
        ((), "title", None),
        ((), "because", ["x"]),
        ((), "rows", [{}]),
        ((), "seconds", "long"),
        (("observations", 0), "what", [1]),
        (("observations", 0), "agrees", "no"),
        (("figures", 0), "unit", 1),
        (("figures", 0), "another", 1),
    ],
)
def test_field_of_another_type_is_refused_in_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    part: tuple[str | int, ...],
    name: str,
    value: object,
) -> None:
    changed: Any = results().to_mapping()
    place = changed["probes"][1]
    for step in part:
        place = place[step]
    place[name] = value
    (tmp_path / "r.json").write_text(json.dumps(changed), encoding="utf-8")

    assert run_command(["show", str(tmp_path / "r.json")]) == 2

    said = capsys.readouterr().err
    assert "expected the fields of schema 1, found TypeError: " in said
    assert name in said
    assert said.count("\n") == 1


def test_probe_that_stands_in_a_file_twice_is_refused(tmp_path: Path) -> None:
    twice = dataclasses.replace(results(), probes=results().probes * 2)
    write_results(tmp_path / "r.json", twice)

    with pytest.raises(ResultFileError, match="a probe twice"):
        read_results(tmp_path / "r.json")


def test_comparison_tells_a_flag_from_a_number() -> None:
    [probe, *others] = results().probes
    seen = tuple(dataclasses.replace(each, seen=bool(each.seen)) for each in probe.observations[:2])
    changed = dataclasses.replace(probe, observations=(*seen, probe.observations[2]))

    found = compare_results(results(), dataclasses.replace(results(), probes=(changed, *others)))

    assert [(each.what, each.first, each.second) for each in found] == [
        ("place 0", 0, False),
        ("place 1", 1, True),
    ]


@pytest.mark.parametrize("name", ["absent/r.json", "a_file/r.json", "", "a" * 254, "."])
def test_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("", encoding="utf-8")

    with pytest.raises(ResultFileError, match="name a file in a folder that exists"):
        write_results(Path(name), results())
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]


def test_earlier_results_are_kept_and_other_files_are_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    keep_previous(output)
    write_results(output, results())
    keep_previous(output)
    assert read_results(tmp_path / "r.json.previous") == results()

    untried = tuple(dataclasses.replace(each, verdict="not tried") for each in results().probes)
    write_results(output, dataclasses.replace(results(), probes=untried))
    keep_previous(output)
    assert read_results(tmp_path / "r.json.previous") == results()

    output.write_text("my notes", encoding="utf-8")
    with pytest.raises(ResultFileError, match="expected no file there, or one of results"):
        keep_previous(output)
    with pytest.raises(ResultFileError, match="it is a folder or a device"):
        keep_previous(Path("/dev/null"))
    assert output.read_text(encoding="utf-8") == "my notes"


@pytest.mark.parametrize("minutes", ["nan", "-1", "0", "inf"])
def test_minutes_that_are_no_time_are_refused(
    capsys: pytest.CaptureFixture[str], minutes: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_command(["run", f"--minutes={minutes}"])

    assert f"expected a number above 0, found '{minutes}'" in capsys.readouterr().err


def test_reader_that_has_gone_and_a_full_disk_are_no_traceback(tmp_path: Path) -> None:
    write_results(tmp_path / "r.json", results())
    command = [sys.executable, "-m", "npu_graph_check", "show", str(tmp_path / "r.json")]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        gone = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    with Path("/dev/full").open("wb") as full:
        filled = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert (gone.returncode, gone.stderr) == (141, b"")
    assert filled.returncode == 2
    assert filled.stderr == b"npu-graph-check: [Errno 28] No space left on device\n"


def test_text_that_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    strange = dataclasses.replace(results(), environment={"soc": "\ud800 \u00e9"})
    write_results(tmp_path / "r.json", strange)
    command = [sys.executable, "-m", "npu_graph_check", "show", str(tmp_path / "r.json")]
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}

    shown = subprocess.run(command, env=variables, capture_output=True, check=True)
    page = [*command, "--html", str(tmp_path / "p.html")]

    assert b"soc: \\ud800 \\xe9" in shown.stdout
    assert subprocess.run(page, capture_output=True, check=True).stderr == b""


def test_summary_of_a_run_has_one_line_for_many_probes_not_tried_for_one_reason() -> None:
    first, *others = results().probes
    untried = [
        dataclasses.replace(
            first, id=f"capture.{number}", verdict="not tried", because="no time", observations=()
        )
        for number in range(6)
    ]
    text = as_text(dataclasses.replace(results(), probes=(first, *untried, *others)), in_full=False)

    assert text.splitlines() == [
        "otherwise: capture.number-0",
        "not tried: 6 probes (no time)",
        "5 confirmed, 1 otherwise, 0 answered, 6 not tried",
    ]


def test_page_is_whole_and_needs_no_other_file() -> None:
    page = as_page(results())
    parser = html.parser.HTMLParser()
    links: list[str] = []
    parser.handle_starttag = lambda tag, attrs: links.extend(  # type: ignore[method-assign]
        value for name, value in attrs if name in {"src", "href"} and value is not None
    )
    parser.feed(page)

    # Only to the probes of the page that a reader looks for first.
    assert links == [f"#{each.id}" for each in results().probes if each.verdict == "otherwise"] + [
        f"#{each.id}" for each in results().probes if each.verdict == "not tried"
    ]
    assert all(f'id="{link[1:]}"' in page for link in links)
    assert "The claim 5 &lt;holds&gt;" in page
    assert page.count("class=otherwise open>") == 1
    assert "The default stream cannot be captured: 107000" in page
    assert "Streams, events, capture, replay" in page


def test_page_shows_answers_at_once_and_code_as_code() -> None:
    answer = ProbeResult(
        id="questions.depth",
        title="Does `a < b` hold?",
        rows=(),
        verdict="answered",
        figures=(Figure(name="whether it does", value=True, unit=""),),
    )

    page = as_page(dataclasses.replace(results(), probes=(answer,)))

    assert "class=answered open>" in page
    assert "Does <code>a &lt; b</code> hold?" in page
    assert "<td>whether it does<td>True</tr>" in page


def test_show_writes_the_page(tmp_path: Path) -> None:
    write_results(tmp_path / "r.json", results())

    assert run_command(["show", str(tmp_path / "r.json"), "--html", str(tmp_path / "p.html")]) == 0

    assert (tmp_path / "p.html").read_text(encoding="utf-8") == as_page(results())
