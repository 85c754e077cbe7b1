"""The probes, a folder a group: `table.py` lists them, the other modules run in processes."""
