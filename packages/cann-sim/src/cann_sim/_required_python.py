"""The oldest Python; imported before what an older one cannot read, so that it says one clear line.

pip refuses an older Python by the package's metadata. Nothing does where the sources are put on the
path.
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
