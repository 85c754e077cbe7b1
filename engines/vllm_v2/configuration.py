"""The comparison of `engines/vllm/configuration.py`, in the environment of vLLM 0.26.0."""

from __future__ import annotations

import sys

from engines.vllm.configuration import main

if __name__ == "__main__":
    sys.exit(main())
