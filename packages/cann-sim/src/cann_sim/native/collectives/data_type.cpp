#include "data_type.h"

#include <algorithm>
#include <array>

namespace {

struct Row {
  HcclDataType type;
  const char* name;
  size_t bytes;
  bool reduced;
};

// From the documents of HcclAllReduce and HcclSend, Atlas A2.
constexpr std::array<Row, 12> kRows = {{
    {HCCL_DATA_TYPE_INT8, "int8", 1, true},
    {HCCL_DATA_TYPE_INT16, "int16", 2, true},
    {HCCL_DATA_TYPE_INT32, "int32", 4, true},
    {HCCL_DATA_TYPE_INT64, "int64", 8, true},
    {HCCL_DATA_TYPE_FP16, "float16", 2, true},
    {HCCL_DATA_TYPE_FP32, "float32", 4, true},
    {HCCL_DATA_TYPE_BFP16, "bfloat16", 2, true},
    {HCCL_DATA_TYPE_UINT8, "uint8", 1, false},
    {HCCL_DATA_TYPE_UINT16, "uint16", 2, false},
    {HCCL_DATA_TYPE_UINT32, "uint32", 4, false},
    {HCCL_DATA_TYPE_UINT64, "uint64", 8, false},
    {HCCL_DATA_TYPE_FP64, "float64", 8, false},
}};

const Row* Find(HcclDataType type) {
  const auto* const found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.type == type; });
  return found == kRows.end() ? nullptr : found;
}

}  // namespace

namespace cann_sim::collectives {

size_t SizeOf(HcclDataType type) { return Find(type)->bytes; }

std::string NameOf(HcclDataType type) {
  const Row* const row = Find(type);
  return row == nullptr ? "data type " + std::to_string(type) : row->name;
}

std::string NameOf(HcclReduceOp reduction) {
  switch (reduction) {
    case HCCL_REDUCE_SUM: return "sum";
    case HCCL_REDUCE_PROD: return "prod";
    case HCCL_REDUCE_MAX: return "max";
    case HCCL_REDUCE_MIN: return "min";
    default: return "reduction " + std::to_string(reduction);
  }
}

HcclResult CheckMoved(const char* function, HcclDataType type) {
  if (Find(type) != nullptr) {
    return HCCL_SUCCESS;
  }
  return Refuse(HCCL_E_NOT_SUPPORT, std::string(function) + ": expected an integer of 8 to 64 bits, float16, float32, " +
                                        "float64 or bfloat16, found " + NameOf(type));
}

HcclResult CheckReduced(const char* function, HcclDataType type, HcclReduceOp reduction) {
  const Row* const row = Find(type);
  if (row == nullptr || !row->reduced) {
    return Refuse(HCCL_E_NOT_SUPPORT, std::string(function) + ": expected int8, int16, int32, int64, float16, float32 or " +
                                          "bfloat16, found " + NameOf(type));
  }
  switch (reduction) {
    case HCCL_REDUCE_SUM:
    case HCCL_REDUCE_MAX:
    case HCCL_REDUCE_MIN: return HCCL_SUCCESS;
    case HCCL_REDUCE_PROD:
      if (type != HCCL_DATA_TYPE_INT16 && type != HCCL_DATA_TYPE_BFP16) {
        return HCCL_SUCCESS;
      }
      break;
    default: break;
  }
  return Refuse(HCCL_E_NOT_SUPPORT, std::string(function) + ": the device has no " + NameOf(reduction) + " of " + NameOf(type) +
                                        "; it has sum, max and min of every type, and prod of all but int16 and bfloat16");
}

}  // namespace cann_sim::collectives
