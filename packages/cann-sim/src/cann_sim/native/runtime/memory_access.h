// What a launch touches in memory, for the memory check.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_sim {

// One tensor of a launch, or a range of bytes: pieces without gaps, with steps between them.
struct MemoryAccess {
  static constexpr int kMostDimensions = 8;

  const char* argument = "";  // as messages name it; in static memory
  const char* type = "";      // of the elements, in static memory; empty of plain bytes
  const char* first = nullptr;
  size_t extent = 0;       // bytes from the first to the last, gaps included
  size_t piece_bytes = 0;  // of each piece
  int levels = 0;          // of steps between the pieces
  int64_t counts[kMostDimensions] = {};
  int64_t steps[kMostDimensions] = {};  // in bytes
  int rank = 0;
  int64_t sizes[kMostDimensions] = {};
  bool reads = true;
  bool writes = false;
  // Which part of it is written depends on values (slots, indices), so nothing is known of two launches that share it.
  bool writes_a_part = false;

  // A range of bytes without a shape.
  static MemoryAccess Bytes(const char* argument, const void* first, size_t bytes, bool writes) {
    MemoryAccess access;
    access.argument = argument;
    access.first = static_cast<const char*>(first);
    access.extent = access.piece_bytes = bytes;
    access.reads = !writes;
    access.writes = writes;
    return access;
  }

  int64_t pieces() const {
    int64_t count = 1;
    for (int level = 0; level < levels; ++level) {
      count *= counts[level];
    }
    return count;
  }
};

}  // namespace cann_sim
