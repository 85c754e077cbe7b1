#include "launch_accesses.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data_type.h"
#include "written_arguments.h"

namespace cann_sim::operators {

namespace {

thread_local std::vector<MemoryAccess> noted;

struct Step {
  int64_t bytes;
  int64_t count;
};

// The dimensions that make steps, the shortest first.
std::vector<Step> StepsOf(const aclTensor& tensor, int64_t item) {
  std::vector<Step> steps;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (tensor.sizes[dim] > 1 && tensor.strides[dim] != 0) {
      steps.push_back({tensor.strides[dim] * item, tensor.sizes[dim]});
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Step& one, const Step& other) { return one.bytes < other.bytes; });
  return steps;
}

void DescribePieces(const aclTensor& tensor, int64_t item, MemoryAccess& access) {
  access.first = static_cast<const char*>(tensor.data) + tensor.offset * item;
  access.piece_bytes = access.extent = static_cast<size_t>(item);
  for (const Step& step : StepsOf(tensor, item)) {
    access.extent += static_cast<size_t>(step.bytes * (step.count - 1));
    if (access.levels == 0 && step.bytes <= static_cast<int64_t>(access.piece_bytes)) {
      access.piece_bytes += static_cast<size_t>(step.bytes * (step.count - 1));
    } else {
      access.steps[access.levels] = step.bytes;
      access.counts[access.levels++] = step.count;
    }
  }
}

bool IsEmpty(const Dimensions& sizes) {
  for (int dim = 0; dim < sizes.count(); ++dim) {
    if (sizes[dim] == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

void BeginAccesses() { noted.clear(); }

void NoteAccess(const aclTensor& tensor, c10::ScalarType dtype, const char* name) {
  if (tensor.data == nullptr || IsEmpty(tensor.sizes)) {
    return;
  }
  MemoryAccess& access = noted.emplace_back();
  access.argument = name;
  access.type = NameOf(dtype);
  access.rank = tensor.rank();
  std::copy_n(tensor.sizes.data(), tensor.rank(), access.sizes);
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  if (tensor.format == ACL_FORMAT_FRACTAL_NZ && tensor.storage_sizes.count() != 0) {
    size_t bytes = static_cast<size_t>(item);
    for (int dim = 0; dim < tensor.storage_sizes.count(); ++dim) {
      bytes *= static_cast<size_t>(tensor.storage_sizes[dim]);
    }
    access.first = static_cast<const char*>(tensor.data);
    access.piece_bytes = access.extent = bytes;
  } else {
    DescribePieces(tensor, item, access);
  }
}

void NoteWritten(const char* name) {
  if (!noted.empty() && noted.back().argument == name) {
    noted.back().writes = true;
  }
}

std::vector<MemoryAccess> TakeAccesses(const char* operator_name) {
  for (MemoryAccess& access : noted) {
    const WrittenArgument written = HowWritten(operator_name, access.argument);
    access.writes = access.writes || written != WrittenArgument::kNo;
    access.writes_a_part = access.writes && written == WrittenArgument::kPart;
    access.reads = !access.writes || written == WrittenArgument::kInPlace;
  }
  return std::exchange(noted, {});
}

}  // namespace cann_sim::operators
