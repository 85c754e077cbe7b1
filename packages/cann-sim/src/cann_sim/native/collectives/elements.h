// The elements that a collective is given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "data_type.h"
#include "shared_segment.h"

namespace cann_sim::collectives {

struct Elements {
  size_t count;
  HcclDataType type;

  size_t bytes() const { return count * SizeOf(type); }
  // "8 float32"
  std::string Describe() const { return std::to_string(count) + " " + NameOf(type); }
};

// Calls `chunk(first, count)` for the elements from `first` on, so many at a time that `shares` of them fit into a window.
template <class Chunk>
void ForEachChunk(const Elements& elements, size_t shares, const Chunk& chunk) {
  const size_t most = kWindowBytes / SizeOf(elements.type) / shares;
  for (size_t first = 0; first < elements.count; first += most) {
    chunk(first, std::min(most, elements.count - first));
  }
}

}  // namespace cann_sim::collectives
