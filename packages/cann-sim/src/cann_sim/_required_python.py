"""Checks the Python version before importing modules that an older Python cannot parse.

pip rejects an older Python through the package's metadata. Nothing does so if the sources are put
on the path.
"""

import sys

REQUIRED_PYTHON = (3, 10)

if sys.version_info < REQUIRED_PYTHON:
    raise ImportError(
        "cann-sim was imported by Python {}.{}: expected Python 3.10 or later. "
        "Make an environment of a later Python and install cann-sim there.".format(
            *sys.version_info[:2]
        )
    )
