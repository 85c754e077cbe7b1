"""``python -m cann_sim`` is the command ``cann-sim``."""

import sys

from cann_sim.cli import main

if __name__ == "__main__":
    sys.exit(main())
