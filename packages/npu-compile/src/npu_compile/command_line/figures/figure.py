"""A matplotlib figure, written as SVG or PNG without changing matplotlib's settings."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import MappingProxyType
from typing import Any

from npu_compile.errors import ConfigError

INK = "#24292f"
FAINT = "#d0d7de"
GREY = "#8c959f"
BLUE = "#0969da"
ORANGE = "#d4670b"
RED = "#cf222e"
GREEN = "#1a7f37"
PALE_RED = "#ffdcd7"
PALE_GREEN = "#d2f4d9"
PALE_BLUE = "#ddf0ff"

_FORMATS = (".svg", ".png")
# Text stays text in an SVG, and equal figures become equal files.
_SETTINGS = MappingProxyType(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "npu-compile",
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
)


def require_drawable(path: str | Path) -> None:
    """Check that a figure can be written to a file, before computing what it shows.

    Raises:
        ConfigError: The file has another ending, its folder does not exist, or matplotlib is
            missing.
    """
    place = Path(path)
    if place.suffix not in _FORMATS:
        raise ConfigError(
            f"drawing {str(path)!r}: expected a file that ends in {' or '.join(_FORMATS)}"
        )
    require_folder(place, "drawing")
    try:
        importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"drawing {str(path)!r}: {error}; install matplotlib: pip install 'matplotlib>=3.9'"
        ) from error


def require_folder(path: str | Path, doing: str) -> None:
    """Check that the folder of a file exists.

    Raises:
        ConfigError: It does not.
    """
    if not Path(path).parent.is_dir():
        raise ConfigError(
            f"{doing} {str(path)!r}: there is no folder {str(Path(path).parent)!r}; name another "
            "file"
        )


class Figure:
    """A figure with one pair of axes, its size in inches; the ending of its file is its format.

    Attributes:
        axes: matplotlib's axes.

    Raises:
        ConfigError: as for :func:`require_drawable`.
    """

    def __init__(self, path: str | Path, *, width: float, height: float) -> None:
        require_drawable(path)
        self._path = Path(path)
        self._matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
        with self._matplotlib.rc_context(dict(_SETTINGS)):
            # No backend is chosen, so no window and no state of pyplot.
            self._figure = figures.Figure(figsize=(width, height), layout="constrained")
            self.axes: Any = self._figure.add_subplot()

    def write(self) -> None:
        """Write the file.

        Raises:
            ConfigError: it cannot be written.
        """
        dated = {"Date": None} if self._path.suffix == ".svg" else {}
        try:
            with self._matplotlib.rc_context(dict(_SETTINGS)):
                self._figure.savefig(self._path, dpi=160, facecolor="white", metadata=dated or None)
        except OSError as error:
            raise ConfigError(f"drawing {str(self._path)!r}: {error}; name another file") from error

    def hide_frame(self, *sides: str) -> None:
        """Hide sides of the frame."""
        for side in sides:
            self.axes.spines[side].set_visible(False)
