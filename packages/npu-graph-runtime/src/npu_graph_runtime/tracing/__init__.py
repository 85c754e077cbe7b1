"""What happened when: events of an observer as a trace that Perfetto opens."""
