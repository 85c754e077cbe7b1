"""Run npu-graph-check as its users do: from wheels, with nothing else installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sessions.interpreter import find_interpreter
from sessions.package import packages
from sessions.project_environments import find_installer
from sessions.testing.test_runs import build_simulator
from sessions.workspace import ROOT

if TYPE_CHECKING:
    import nox

    from sessions.torch_release import TorchRelease

_PACKAGE = "npu-graph-testing"
# torch_npu imports the last two and does not declare them.
_OTHERS = ("torch_npu", "numpy", "pyyaml")


def run_device_check(session: nox.Session, release: TorchRelease) -> None:
    """Run all probes on simulated CANN and write the file of results and its page.

    Args:
        session: the session; its docstring lists the options after ``--``.
        release: the versions of torch and torch_npu.
    """
    interpreter, options = release.python, []
    for text in session.posargs:
        if text.startswith("--python="):
            interpreter = text.removeprefix("--python=")
        else:
            options.append(text)
    installer = find_installer(session)
    wheels = {package.name: installer.wheel(package) for package in packages(ROOT)}
    checked = f"{_PACKAGE}[check] @ {Path(wheels.pop(_PACKAGE)).as_uri()}"
    name = f"device-check-{release.name}-{interpreter}"
    python = installer.environment(
        name,
        [checked, *wheels.values(), *_OTHERS],
        release=release,
        python=find_interpreter(interpreter),
    )
    build_simulator(session, python)
    folder = ROOT / "build" / "device-check"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / f"{release.name}-{interpreter}.json"
    commands = Path(python).parent
    check = str(commands / "npu-graph-check")
    run = [str(commands / "cann-sim"), "run", "--", check, "run", "--output", str(results)]
    session.run(*run, *options, external=True)
    session.run(check, "show", str(results), "--html", f"{results}.html", external=True)
