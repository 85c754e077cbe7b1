"""Releases of the packages: change notes, public names, wheels that are tried, version and tag.

Run as ``python -m release COMMAND`` with ``tools`` on the path; the sessions ``changes``,
``build``, ``older_siblings`` and ``release`` do that. Nothing here pushes or publishes.
"""
