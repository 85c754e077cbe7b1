// What the simulator writes into the last words of metadata that an operator on the device makes for attention, so that attention
// can refuse metadata that is not of its step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace cann_sim {

inline constexpr int64_t kMetadataWords = 1024;
using Metadata = std::array<int32_t, kMetadataWords>;

// A piece of memory, in whole words of four bytes; nothing where it is null.
struct DigestedMemory {
  const void* first;
  int64_t bytes;
};

inline int32_t Digest(std::initializer_list<DigestedMemory> parts) {
  uint32_t digest = 2166136261U;
  for (const DigestedMemory& part : parts) {
    for (int64_t at = 0; part.first != nullptr && at < part.bytes; at += 4) {
      uint32_t word = 0;
      std::memcpy(&word, static_cast<const char*>(part.first) + at, sizeof word);
      digest = (digest ^ word) * 16777619U;
      digest ^= digest >> 15;
    }
  }
  return static_cast<int32_t>(digest);
}

// Digests of what both calls are given.
struct MetadataSeal {
  int32_t lengths;
  int32_t attributes;
};

// As messages name them.
struct MetadataNames {
  const char* attention;   // the operator that reads it
  const char* maker;       // the operator that makes it
  const char* attributes;  // what their attributes are
};

namespace metadata_words {
inline constexpr int32_t kSealed = 0x5EA1ED;
enum Word : int64_t { kMark = 1020, kLengths, kAttributes, kSplit };
}  // namespace metadata_words

// Seals the words in front of the seal.
inline void SealMetadata(const MetadataSeal& seal, Metadata& metadata) {
  metadata[metadata_words::kMark] = metadata_words::kSealed;
  metadata[metadata_words::kLengths] = seal.lengths;
  metadata[metadata_words::kAttributes] = seal.attributes;
  metadata[metadata_words::kSplit] = Digest({{metadata.data(), metadata_words::kMark * 4}});
}

inline void RequireSeal(const MetadataSeal& seal, const Metadata& metadata, const MetadataNames& names) {
  std::string wrong;
  if (metadata[metadata_words::kMark] != metadata_words::kSealed) {
    const bool is_empty = std::all_of(metadata.begin(), metadata.end(), [](int32_t word) { return word == 0; });
    wrong = is_empty ? "is empty" : std::string("was not made by ") + names.maker + ", or overwritten";
  } else if (metadata[metadata_words::kSplit] != Digest({{metadata.data(), metadata_words::kMark * 4}})) {
    wrong = "was overwritten after it was made";
  } else if (metadata[metadata_words::kAttributes] != seal.attributes) {
    wrong = std::string("was made for other ") + names.attributes;
  } else if (metadata[metadata_words::kLengths] != seal.lengths) {
    wrong = "was made for other lengths";
  }
  if (!wrong.empty()) {
    throw std::runtime_error(std::string(names.attention) + ": its metadata " + wrong + "; run " + names.maker +
                             " with the lengths of this step in front of it");
  }
}

}  // namespace cann_sim
