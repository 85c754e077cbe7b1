"""The rows of docs/fidelity.md in the words of that page, for `compare`."""
