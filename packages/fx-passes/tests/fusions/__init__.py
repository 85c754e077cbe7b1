"""Every fusion, on graphs as engines produce them."""
