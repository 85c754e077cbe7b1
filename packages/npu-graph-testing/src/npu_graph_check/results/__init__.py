"""Files of results: written, read, compared and shown."""
