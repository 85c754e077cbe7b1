"""What pip is told about indexes and certificates, said to uv, which reads settings of its own."""

from __future__ import annotations

import ast
import os
import ssl
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


def installer_settings() -> dict[str, str]:
    """Return the environment variables that uv is run with.

    They translate pip's configuration and ``PIP_*`` variables as far as uv supports them: index,
    further indexes, folders of wheels, certificates, trusted hosts, proxy, timeout. Variables of
    uv itself (``UV_*``) are not changed.
    """
    pip = pip_settings()
    settings = {
        # pip takes the newest version that any of its indexes has.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": pip.get("extra-index-url", ""),
        "UV_FIND_LINKS": ",".join(pip.get("find-links", "").split()),
        "UV_INSECURE_HOST": pip.get("trusted-host", ""),
        "UV_HTTP_TIMEOUT": pip.get("timeout", pip.get("default-timeout", "")),
        "ALL_PROXY": pip.get("proxy", ""),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "UV_SYSTEM_CERTS": "1" if _has_system_certificates() else "",
        # Wheels are linked from the cache into each environment, so that each is stored on the disk
        # once; that wants both on one file system.
        "UV_CACHE_DIR": "" if _on_one_disk() else str(ROOT / ".nox" / "uv-cache"),
    }
    return {name: text for name, text in settings.items() if text and name not in os.environ}


@cache
def pip_settings() -> dict[str, str]:
    """Return pip's settings from its files and the environment; the environment wins."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        check=False,
        text=True,
    )
    found: dict[str, str] = {}
    for line in sorted(listing.stdout.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in {"global", "install", "user", "site", ":env:"}:
            found[key] = str(ast.literal_eval(value))
    return found


def wheel_folders(settings: Mapping[str, str]) -> list[Path]:
    """Return the local folders of wheels in uv's configuration."""
    texts = {**settings, **os.environ}.get("UV_FIND_LINKS", "").split(",")
    paths = [Path(text.removeprefix("file://")) for text in texts if text]
    return [path for path in paths if path.is_dir()]


def _has_system_certificates() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or paths.capath)


def _on_one_disk() -> bool:
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        cache = Path(home) if home else Path.home() / ".cache"
        while not cache.exists():
            cache = cache.parent
        return cache.stat().st_dev == ROOT.stat().st_dev and os.access(cache, os.W_OK)
    except (OSError, RuntimeError):
        return False
