"""One workload in every compile mode, compared with eager and with transformers."""
