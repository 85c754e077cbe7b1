// `_C_ascend::npu_sparse_flash_mla` of vllm-ascend and the operator that makes its metadata, in the device's place for what
// its kernels compute: latent attention over a window of keys, and over compressed keys that an indexer has chosen.
//
// The metadata is 1024 int32: for each core nine words, of which the first says whether it works, and the others where its
// rows begin and end (sequence, row); the last words are the simulator's seal. The attention computes the rows that the
// metadata gives to cores. It refuses metadata whose seal is not that of its own lengths, because both calls have to be
// given the same.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../runtime/launch.h"
#include "metadata_seal.h"

namespace {

using cann_sim::MemoryAccess;
using cann_sim::Metadata;
using Latent = c10::BFloat16;

constexpr const char* kMetadataOperator = "_C_ascend::npu_sparse_flash_mla_metadata";
constexpr const char* kAttentionOperator = "_C_ascend::npu_sparse_flash_mla";
constexpr int64_t kLatentWidth = 512;
constexpr int64_t kWindow = 128;  // keys, that of the query's own position included
constexpr int64_t kCores = 24;
constexpr int64_t kWordsOfCore = 9;
enum CoreWord : int64_t { kEnabled = 0, kFirstSequence = 1, kFirstRow = 2, kLastSequence = 4, kLastRow = 5 };

// What both calls are given. All memory is dense; the fields are those of engine_kernels/vllm_ascend_sparse.py.
struct SmlaLengths {
  const int32_t* query_ends;  // [sequences + 1], the first is 0
  const int32_t* keys;        // [sequences]
  const int32_t* compressed;  // [sequences], or null without compressed keys
  const int32_t* residual;    // [sequences], or null where it is 0
  int64_t sequences;
  int64_t heads;
  int64_t ratio;   // keys of a compressed one; 0 without compressed keys
  int64_t chosen;  // compressed keys that are chosen for a row

  int64_t rows(int64_t sequence) const { return query_ends[sequence + 1] - query_ends[sequence]; }
  int64_t total_rows() const { return query_ends[sequences]; }
  int64_t own(int64_t sequence, int64_t row, int64_t length) const { return length - rows(sequence) + row + 1; }

  // Where the window of a row ends: behind the key of its own position.
  int64_t WindowEnd(int64_t sequence, int64_t row) const {
    return std::clamp<int64_t>(own(sequence, row, keys[sequence]), 0, keys[sequence]);
  }
  int64_t WindowStart(int64_t sequence, int64_t row) const {
    return std::max<int64_t>(own(sequence, row, keys[sequence]) - kWindow, 0);
  }
  // Compressed keys whose tokens all come before the row's next one.
  int64_t Visible(int64_t sequence, int64_t row) const {
    if (ratio == 0) {
      return 0;
    }
    const int64_t length = compressed[sequence] * ratio + (residual == nullptr ? 0 : residual[sequence]);
    return std::clamp<int64_t>(std::max<int64_t>(own(sequence, row, length), 0) / ratio, 0, compressed[sequence]);
  }
};

struct SmlaCall {
  SmlaLengths lengths;
  const Latent* query;            // [tokens, heads, 512]
  const Latent* caches[2];        // [blocks, block_size, 1, 512], of keys and of compressed keys
  const int32_t* tables[2];       // [sequences, columns]
  const int32_t* indices;         // [tokens, 1, chosen]
  const float* sinks;             // [heads]
  const int32_t* metadata;        // [1024]
  Latent* output;                 // [tokens, heads, 512]
  int64_t tokens;
  int64_t blocks[2];
  int64_t block_size[2];
  int64_t columns[2];
  double scale;
};

[[noreturn]] void FailSmla(const char* name, const std::string& message) {
  throw std::runtime_error(std::string(name) + ": " + message);
}

cann_sim::MetadataSeal SealOf(const SmlaLengths& lengths) {
  const int64_t count = lengths.sequences, bytes = count * 4;
  const int64_t attributes[] = {count, lengths.heads, lengths.ratio, lengths.chosen};
  return {cann_sim::Digest({{lengths.query_ends, bytes + 4}, {lengths.keys, bytes}, {lengths.compressed, bytes}, {lengths.residual, bytes}}),
          cann_sim::Digest({{attributes, sizeof attributes}})};
}

void CheckLengths(const SmlaLengths& lengths) {
  const auto refuse = [](const char* name, int64_t place, int64_t value, const char* expected) {
    FailSmla(kMetadataOperator, std::string(name) + "[" + std::to_string(place) + "] is " + std::to_string(value) +
                                    ", expected " + expected);
  };
  if (lengths.query_ends[0] != 0) {
    refuse("cu_seqlens_q", 0, lengths.query_ends[0], "0");
  }
  for (int64_t i = 0; i < lengths.sequences; ++i) {
    if (lengths.rows(i) < 0) {
      refuse("cu_seqlens_q", i + 1, lengths.query_ends[i + 1], "no less than the one before");
    }
    if (lengths.keys[i] < 0) {
      refuse("seqused_ori_kv", i, lengths.keys[i], "0 or more");
    }
    if (lengths.compressed != nullptr && lengths.compressed[i] < 0) {
      refuse("seqused_cmp_kv", i, lengths.compressed[i], "0 or more");
    }
    if (lengths.residual != nullptr && (lengths.residual[i] < 0 || lengths.residual[i] >= lengths.ratio)) {
      refuse("cmp_residual_kv", i, lengths.residual[i], "0 or more and less than cmp_ratio");
    }
  }
}

// Gives each core rows of about the same number of keys, in order.
void Split(const SmlaLengths& lengths, Metadata& metadata) {
  std::vector<int64_t> costs;
  int64_t total = 0;
  for (int64_t sequence = 0; sequence < lengths.sequences; ++sequence) {
    for (int64_t row = 0; row < lengths.rows(sequence); ++row) {
      costs.push_back(1 + lengths.WindowEnd(sequence, row) - lengths.WindowStart(sequence, row) +
                      std::min(lengths.chosen, lengths.Visible(sequence, row)));
      total += costs.back();
    }
  }
  int64_t done = 0, core = -1;
  size_t position = 0;
  for (int64_t sequence = 0; sequence < lengths.sequences; ++sequence) {
    for (int64_t row = 0; row < lengths.rows(sequence); ++row) {
      const int64_t own = done * kCores / total;
      if (own != core) {
        core = own;
        int32_t* words = &metadata[core * kWordsOfCore];
        words[kEnabled] = 1;
        words[kFirstSequence] = static_cast<int32_t>(sequence);
        words[kFirstRow] = static_cast<int32_t>(row);
      }
      int32_t* words = &metadata[core * kWordsOfCore];
      words[kLastSequence] = static_cast<int32_t>(sequence);
      words[kLastRow] = static_cast<int32_t>(row);
      done += costs[position++];
    }
  }
}

void MakeMetadata(const SmlaLengths& lengths, int32_t* output) {
  CheckLengths(lengths);
  Metadata metadata = {};
  Split(lengths, metadata);
  cann_sim::SealMetadata(SealOf(lengths), metadata);
  std::memcpy(output, metadata.data(), sizeof metadata);
}

const Latent* FindKey(const SmlaCall& call, int cache, int64_t sequence, int64_t position) {
  const int64_t size = call.block_size[cache], column = position / size;
  const int64_t block = column < call.columns[cache] ? call.tables[cache][sequence * call.columns[cache] + column] : -1;
  if (block < 0 || block >= call.blocks[cache]) {
    FailSmla(kAttentionOperator, std::string("the key at position ") + std::to_string(position) + " of sequence " +
                                     std::to_string(sequence) + " is in no block of " + (cache == 0 ? "ori_kv" : "cmp_kv"));
  }
  return call.caches[cache] + (block * size + position % size) * kLatentWidth;
}

// Keys of one row, widened: the same values serve as keys and as values, for all heads.
void GatherKeys(const SmlaCall& call, int64_t sequence, int64_t row, int64_t token, std::vector<float>& keys) {
  keys.clear();
  const auto add = [&](const Latent* key) { keys.insert(keys.end(), key, key + kLatentWidth); };
  const SmlaLengths& lengths = call.lengths;
  for (int64_t at = lengths.WindowStart(sequence, row); at < lengths.WindowEnd(sequence, row); ++at) {
    add(FindKey(call, 0, sequence, at));
  }
  const int64_t visible = lengths.Visible(sequence, row);
  for (int64_t i = 0; visible > 0 && i < lengths.chosen; ++i) {
    const int64_t at = call.indices[token * lengths.chosen + i];
    if (at >= 0 && at < visible) {
      add(FindKey(call, 1, sequence, at));
    }
  }
}

// Four numbers at a time, whatever the compiler's options are. All rows begin at a multiple of 16 bytes.
typedef float Lanes __attribute__((vector_size(16), may_alias));
constexpr int64_t kLanesOfRow = kLatentWidth / 4;

const Lanes* LanesOf(const float* row) { return reinterpret_cast<const Lanes*>(row); }

float DotLatent(const float* left, const float* right) {
  constexpr int64_t kSums = 4;
  Lanes sums[kSums] = {};
  for (int64_t i = 0; i < kLanesOfRow; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) {
      sums[j] += LanesOf(left)[i + j] * LanesOf(right)[i + j];
    }
  }
  const Lanes total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (total[0] + total[1]) + (total[2] + total[3]);
}

// The sink is a score without a value: the first maximum of the softmax, and one term of its sum.
void AttendHead(const SmlaCall& call, const std::vector<float>& keys, int64_t head, const Latent* query, Latent* output) {
  alignas(16) float widened[kLatentWidth];
  Lanes sum[kLanesOfRow] = {};
  std::copy(query, query + kLatentWidth, widened);
  const int64_t count = static_cast<int64_t>(keys.size()) / kLatentWidth;
  std::vector<float> scores(count);
  float largest = call.sinks[head];
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = DotLatent(widened, &keys[i * kLatentWidth]) * static_cast<float>(call.scale);
    largest = std::max(largest, scores[i]);
  }
  float total = std::exp(call.sinks[head] - largest);
  for (int64_t i = 0; i < count; ++i) {
    const float weight = std::exp(scores[i] - largest);
    const Lanes* value = LanesOf(&keys[i * kLatentWidth]);
    total += weight;
    for (int64_t j = 0; j < kLanesOfRow; ++j) {
      sum[j] += weight * value[j];
    }
  }
  for (int64_t j = 0; j < kLatentWidth; ++j) {
    output[j] = sum[j / 4][j % 4] / total;
  }
}

void AttendRow(const SmlaCall& call, int64_t sequence, int64_t row, std::vector<float>& keys) {
  const int64_t token = call.lengths.query_ends[sequence] + row;
  GatherKeys(call, sequence, row, token, keys);
  for (int64_t head = 0; head < call.lengths.heads; ++head) {
    const int64_t place = (token * call.lengths.heads + head) * kLatentWidth;
    AttendHead(call, keys, head, call.query + place, call.output + place);
  }
}

void Attend(const SmlaCall& call) {
  const SmlaLengths& lengths = call.lengths;
  if (lengths.total_rows() == 0) {
    return;
  }
  Metadata metadata;
  std::memcpy(metadata.data(), call.metadata, sizeof metadata);
  cann_sim::RequireSeal(SealOf(lengths), metadata,
                        {kAttentionOperator, "npu_sparse_flash_mla_metadata", "sequences, heads, cmp_ratio or cmp_topk"});
  if (lengths.total_rows() > call.tokens) {
    FailSmla(kAttentionOperator, "cu_seqlens_q ends at row " + std::to_string(lengths.total_rows()) + ", q has " +
                                     std::to_string(call.tokens));
  }
  std::vector<float> keys;
  for (int64_t core = 0; core < kCores; ++core) {
    const int32_t* words = &metadata[core * kWordsOfCore];
    if (words[kEnabled] == 0) {
      continue;
    }
    for (int64_t sequence = words[kFirstSequence]; sequence <= words[kLastSequence]; ++sequence) {
      const int64_t first = sequence == words[kFirstSequence] ? words[kFirstRow] : 0;
      const int64_t last = sequence == words[kLastSequence] ? words[kLastRow] : lengths.rows(sequence) - 1;
      for (int64_t row = first; row <= last; ++row) {
        AttendRow(call, sequence, row, keys);
      }
    }
  }
}

template <typename T>
void Touch(std::vector<MemoryAccess>& accesses, const char* name, const T* memory, int64_t count, bool writes = false) {
  if (memory != nullptr) {
    accesses.push_back(MemoryAccess::Bytes(name, memory, count * sizeof(T), writes));
  }
}

std::vector<MemoryAccess> TouchedLengths(const SmlaLengths& lengths) {
  std::vector<MemoryAccess> touched;
  Touch(touched, "cu_seqlens_q", lengths.query_ends, lengths.sequences + 1);
  Touch(touched, "seqused_ori_kv", lengths.keys, lengths.sequences);
  Touch(touched, "seqused_cmp_kv", lengths.compressed, lengths.sequences);
  Touch(touched, "cmp_residual_kv", lengths.residual, lengths.sequences);
  return touched;
}

std::vector<MemoryAccess> TouchedMemory(const SmlaCall& call) {
  constexpr const char* kCaches[] = {"ori_kv", "cmp_kv"};
  constexpr const char* kTables[] = {"ori_block_table", "cmp_block_table"};
  const int64_t width = call.lengths.heads * kLatentWidth;
  std::vector<MemoryAccess> touched = TouchedLengths(call.lengths);
  Touch(touched, "q", call.query, call.tokens * width);
  for (int cache = 0; cache < 2; ++cache) {
    Touch(touched, kCaches[cache], call.caches[cache], call.blocks[cache] * call.block_size[cache] * kLatentWidth);
    Touch(touched, kTables[cache], call.tables[cache], call.lengths.sequences * call.columns[cache]);
  }
  Touch(touched, "cmp_sparse_indices", call.indices, call.tokens * call.lengths.chosen);
  Touch(touched, "sinks", call.sinks, call.lengths.heads);
  Touch(touched, "metadata", call.metadata, cann_sim::kMetadataWords);
  Touch(touched, "attn_out", call.output, call.tokens * width, true);
  return touched;
}

}  // namespace

// Both answer as a launch of CANN does: 0, or a code whose text aclGetRecentErrMsg has.
extern "C" CANN_SIM_EXPORT int cann_sim_sparse_flash_mla_metadata(void* stream, const SmlaLengths* given, int32_t* output) {
  const SmlaLengths lengths = *given;
  std::vector<MemoryAccess> touched = TouchedLengths(lengths);
  Touch(touched, "metadata", output, cann_sim::kMetadataWords, true);
  return cann_sim::LaunchKernel(stream, {kMetadataOperator, [=] { MakeMetadata(lengths, output); }, 0, touched});
}

extern "C" CANN_SIM_EXPORT int cann_sim_sparse_flash_mla(void* stream, const SmlaCall* given) {
  const SmlaCall call = *given;
  return cann_sim::LaunchKernel(stream, {kAttentionOperator, [=] { Attend(call); }, 0, TouchedMemory(call)});
}
