"""The table of probes, and the command where there is no device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from npu_graph_check import run_command
from npu_graph_check.probes.table import GROUPS, all_probes, chosen_probes
from npu_graph_check.register.register import all_rows
from npu_graph_testing import DeviceContract


def test_ids_are_used_once_and_begin_with_their_group() -> None:
    ids = [probe.id for probe in all_probes()]

    assert len(set(ids)) == len(ids)
    assert all(probe.group == group.name for group in GROUPS for probe in group.probes)


def test_rows_that_probes_name_are_in_the_wheel() -> None:
    assert {row for probe in all_probes() for row in probe.rows} <= all_rows().keys()


def test_every_test_of_the_device_contract_is_a_probe() -> None:
    probes = {probe.argument for probe in all_probes() if probe.group == "contract"}

    assert probes == {name for name in dir(DeviceContract) if name.startswith("test_")}


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["run", "--help"]])
def test_command_answers_without_torch(arguments: list[str]) -> None:
    code = (
        "import sys, npu_graph_check\n"
        "try:\n"
        f"    npu_graph_check.run_command({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_list_has_every_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["list", "--json"]) == 0

    listed = [
        probe["id"] for group in json.loads(capsys.readouterr().out) for probe in group["probes"]
    ]
    assert listed == [probe.id for probe in all_probes()]


def test_unknown_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--only", "captur"]) == 2

    assert "did you mean 'capture'" in capsys.readouterr().err


def test_chosen_probes_are_in_the_order_of_the_table() -> None:
    chosen = chosen_probes(["contract.capture-runs-nothing", "environment"])

    assert [probe.id for probe in chosen] == [
        *(probe.id for probe in all_probes() if probe.group == "environment"),
        "contract.capture-runs-nothing",
    ]
