"""What a run did and nearly did: reports, observers, and old values held against new ones."""
