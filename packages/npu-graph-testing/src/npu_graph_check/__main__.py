"""``python -m npu_graph_check`` is the command ``npu-graph-check``."""

from npu_graph_check import main

if __name__ == "__main__":
    main()
