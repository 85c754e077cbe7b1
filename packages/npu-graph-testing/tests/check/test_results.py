"""Files of results: written whole, read or refused in a line, compared place by place, shown."""

from __future__ import annotations

import dataclasses
import html.parser
import json
from typing import TYPE_CHECKING, Any

import pytest

from npu_graph_check import run_command
from npu_graph_check.errors import ResultFileError
from npu_graph_check.results.comparison import compare_results
from npu_graph_check.results.page import as_page
from npu_graph_check.results.probe_result import Figure, Observation, ProbeResult
from npu_graph_check.results.result_file import Results, read_results, write_results

if TYPE_CHECKING:
    from pathlib import Path


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
    assert said.endswith("6 differences\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "expected JSON as `npu-graph-check run` writes it"),
        ("[]", "expected a file of npu-graph-check"),
        ('{"kind": "npu-graph-check", "schema": 99}', "expected schema 1, found 99"),
        ('{"kind": "npu-graph-check", "schema": 1}', "expected the fields of schema 1"),
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


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match="name a file in a folder that exists"):
        write_results(tmp_path / "absent" / "r.json", results())


def test_page_is_whole_and_needs_no_other_file() -> None:
    page = as_page(results())
    parser = html.parser.HTMLParser()
    links: list[str] = []
    parser.handle_starttag = lambda tag, attrs: links.extend(  # type: ignore[method-assign]
        name for name, _ in attrs if name in {"src", "href"}
    )
    parser.feed(page)

    assert links == []
    assert "The claim 5 &lt;holds&gt;" in page
    assert page.count("<details class=otherwise open>") == 1
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

    assert "<details class=answered open>" in page
    assert "Does <code>a &lt; b</code> hold?" in page
    assert "<td>whether it does<td>True</tr>" in page


def test_show_writes_the_page(tmp_path: Path) -> None:
    write_results(tmp_path / "r.json", results())

    assert run_command(["show", str(tmp_path / "r.json"), "--html", str(tmp_path / "p.html")]) == 0

    assert (tmp_path / "p.html").read_text(encoding="utf-8") == as_page(results())
