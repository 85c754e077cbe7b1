"""All tests on one release of torch and torch_npu, with the figures kept for docs/versions.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessions.interpreter import find_interpreter
from sessions.package import packages
from sessions.project_environments import find_installer, package_environment
from sessions.testing.compat_results import keep_result, read_result
from sessions.testing.test_runs import all_tests, run_package_tests
from sessions.workspace import ROOT

if TYPE_CHECKING:
    import nox

    from sessions.torch_release import TorchRelease


def run_compat(session: nox.Session, release: TorchRelease) -> None:
    """Test every package, as a wheel, on one release, and keep the figures.

    Args:
        session: The session; its docstring lists the options after ``--``.
        release: The versions of torch and torch_npu.
    """
    chosen: list[str] = []
    options: list[str] = []
    failed: list[str] = []
    interpreter = release.python
    for text in session.posargs:
        if text.startswith("--python="):
            interpreter = text.removeprefix("--python=")
        else:
            (options if text.startswith("-") else chosen).append(text)
    installer = find_installer(session)
    python = find_interpreter(interpreter)
    selected = dict(text.partition(":")[::2] for text in chosen)
    for package in packages(ROOT):
        if selected and package.name not in selected:
            continue
        name = f"compat-{release.name}-{interpreter}-{package.name}"
        environment = package_environment(installer, package, release, name=name, python=python)
        targets = selected.get(package.name, "").split(",") if selected.get(package.name) else []
        report = ROOT / "build" / "compat" / f"{name}.xml"
        arguments = [*(targets or all_tests()), f"--junitxml={report}", *options]
        run_package_tests(session, environment, package, *arguments, success_codes=(0, 1))
        tests = " ".join(text.removeprefix("tests/") for text in targets) or "all"
        result = read_result(report, package=package.name, python=environment, tests=tests)
        keep_result(result)
        if result.failed:
            failed.append(package.name)
    if failed:
        session.error(f"tests failed on {release.name}: {', '.join(failed)}")
