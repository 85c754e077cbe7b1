// The requests of bench_attn_update_instructions.py to Callgrind, as functions: in C they are macros.

#include <valgrind/callgrind.h>

extern "C" {

// From here on, until the counts are written, the program runs so that Callgrind can count. Nothing is counted yet.
void prepare_to_count() { CALLGRIND_START_INSTRUMENTATION; }

// Begins to count instructions of the calling thread, or ends it.
void toggle_counting() { CALLGRIND_TOGGLE_COLLECT; }

// Writes what was counted to a file with this name in it, and resets the counts.
void write_counts(const char* name) {
  CALLGRIND_DUMP_STATS_AT(name);
  CALLGRIND_STOP_INSTRUMENTATION;
}
}
