// `vllm::qkv_rmsnorm_rope` of vllm-ascend, in the device's place for what its Triton kernel computes: the norms of the heads
// of q and k, and their rotation by a row of a table for each token.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../runtime/launch.h"

namespace {

using Element = c10::BFloat16;

// All memory is dense; positions and sizes are those of engine_kernels/vllm_ascend.py, which calls this.
struct QkvCall {
  const Element* qkv;         // [tokens, (q_heads + 2 * kv_heads) * head_dim]
  const Element* table;       // [rows, rotary_dim]: cosines, then sines
  const int64_t* positions;   // [tokens]
  const Element* weights[2];  // of q and of k, [head_dim]
  const Element* biases[2];   // the same, or null
  Element* rotated[2];        // q and k, [tokens, heads * head_dim]
  Element* v;                 // [tokens, kv_heads * head_dim]
  int64_t tokens;
  int64_t heads[2];
  int64_t head_dim;
  int64_t rows;
  int64_t rotary_dim;
  double epsilon;
};

// Rounded to bfloat16 once, after weight and bias, as the kernel's source does.
void NormHead(const QkvCall& call, int part, const Element* head, Element* normed) {
  double squares = 0;
  for (int64_t i = 0; i < call.head_dim; ++i) {
    squares += static_cast<double>(head[i]) * static_cast<double>(head[i]);
  }
  const float mean = static_cast<float>(squares) / static_cast<float>(call.head_dim);
  const float scale = 1.0F / std::sqrt(mean + static_cast<float>(call.epsilon));
  for (int64_t i = 0; i < call.head_dim; ++i) {
    float value = static_cast<float>(head[i]) * scale * static_cast<float>(call.weights[part][i]);
    if (call.biases[part] != nullptr) {
      value += static_cast<float>(call.biases[part][i]);
    }
    normed[i] = value;
  }
}

// In bfloat16, each product and each sum rounded; what follows `rotary_dim` is copied.
void RotateHead(const QkvCall& call, const Element* angles, Element* head) {
  const int64_t half = call.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const Element first = head[i], second = head[half + i], cos = angles[i], sin = angles[half + i];
    head[i] = first * cos - second * sin;
    head[half + i] = second * cos + first * sin;
  }
}

void Run(const QkvCall& call) {
  const Element* from = call.qkv;
  for (int64_t token = 0; token < call.tokens; ++token) {
    const int64_t position = call.positions[token];
    if (position < 0 || position >= call.rows) {
      throw std::out_of_range("vllm::qkv_rmsnorm_rope: token " + std::to_string(token) + " has position " +
                              std::to_string(position) + ", the table has " + std::to_string(call.rows) + " rows");
    }
    for (int part = 0; part < 2; ++part) {
      const int64_t width = call.heads[part] * call.head_dim;
      for (int64_t start = 0; start < width; start += call.head_dim, from += call.head_dim) {
        Element* head = call.rotated[part] + token * width + start;
        NormHead(call, part, from, head);
        RotateHead(call, call.table + position * call.rotary_dim, head);
      }
    }
    const int64_t width = call.heads[1] * call.head_dim;
    std::copy(from, from + width, call.v + token * width);
    from += width;
  }
}

}  // namespace

// Answers as a launch of CANN does: 0, or a code whose text aclGetRecentErrMsg has.
extern "C" CANN_SIM_EXPORT int cann_sim_qkv_rmsnorm_rope(void* stream, const void* qkv, const void* table,
                                                         const void* positions, const void* q_weight,
                                                         const void* k_weight, const void* q_bias, const void* k_bias,
                                                         void* q, void* k, void* v, int64_t tokens, int64_t q_heads,
                                                         int64_t kv_heads, int64_t head_dim, int64_t rows,
                                                         int64_t rotary_dim, double epsilon) {
  const auto read = [](const void* memory) { return static_cast<const Element*>(memory); };
  const auto write = [](void* memory) { return static_cast<Element*>(memory); };
  const QkvCall call{read(qkv),
                     read(table),
                     static_cast<const int64_t*>(positions),
                     {read(q_weight), read(k_weight)},
                     {read(q_bias), read(k_bias)},
                     {write(q), write(k)},
                     write(v),
                     tokens,
                     {q_heads, kv_heads},
                     head_dim,
                     rows,
                     rotary_dim,
                     epsilon};
  return cann_sim::LaunchKernel(stream, {"vllm::qkv_rmsnorm_rope", [call] { Run(call); }});
}
