"""The probes, a folder a group: `table.py` lists them, the other modules are run in processes."""
