#include "format_copy.h"

#include <acl/acl_base_rt.h>
#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "../runtime/error_message.h"
#include "../runtime/launch.h"
#include "tensor_description.h"

namespace cann_sim {

namespace {

// Concatenated matrices [rows, columns], whose NZ form is [columns / width, rows / height, height, width].
struct Blocks {
  size_t item;
  int64_t matrices, rows, columns, height, width;

  int64_t block_rows() const { return (rows + height - 1) / height; }
  int64_t block_columns() const { return (columns + width - 1) / width; }
  int64_t padded_size() const { return block_rows() * block_columns() * height * width; }
};

int64_t Product(const std::vector<int64_t>& sizes, size_t count) {
  int64_t product = 1;
  for (size_t index = 0; index < count; ++index) {
    product *= sizes[index];
  }
  return product;
}

bool IsPlain(aclFormat format) {
  return format == ACL_FORMAT_ND || format == ACL_FORMAT_NCHW || format == ACL_FORMAT_NCDHW || format == ACL_FORMAT_NCL ||
         format == ACL_FORMAT_NC || format == ACL_FORMAT_UNDEFINED;
}

Blocks BlocksOf(const aclTensorDesc& nz, size_t bytes) {
  const std::vector<int64_t>& view = nz.view_sizes;
  const std::vector<int64_t>& storage = nz.sizes;
  const size_t rank = view.size();
  if (rank < 2 || storage.size() != rank + 2) {
    throw std::invalid_argument("expected the NZ storage of a tensor with at least two dimensions, found " +
                                std::to_string(storage.size()) + " storage dimensions for " + std::to_string(rank));
  }
  const int64_t elements = std::max<int64_t>(Product(storage, storage.size()), 1);
  return {bytes / static_cast<size_t>(elements), Product(view, rank - 2), view[rank - 2], view[rank - 1],
          storage[rank], storage[rank + 1]};
}

// Copies between plain and NZ memory, in either direction. What pads a block is left as it is.
void CopyBlocks(const Blocks& blocks, char* plain, char* nz, bool to_nz) {
  for (int64_t matrix = 0; matrix < blocks.matrices; ++matrix) {
    for (int64_t row = 0; row < blocks.rows; ++row) {
      for (int64_t column = 0; column < blocks.columns; column += blocks.width) {
        const int64_t block = column / blocks.width * blocks.block_rows() + row / blocks.height;
        const int64_t inside = row % blocks.height * blocks.width;
        char* there = nz + static_cast<size_t>(matrix * blocks.padded_size() + block * blocks.height * blocks.width + inside) *
                               blocks.item;
        char* here = plain + static_cast<size_t>((matrix * blocks.rows + row) * blocks.columns + column) * blocks.item;
        const size_t bytes = static_cast<size_t>(std::min(blocks.width, blocks.columns - column)) * blocks.item;
        to_nz ? std::memcpy(there, here, bytes) : std::memcpy(here, there, bytes);
      }
    }
  }
}

// A tensor [batch, channels, depth, height, width] whose channels are stored in groups of `group`: the rest, then those of a
// group.
struct Channels {
  size_t item;
  int64_t batch, channels, depth, height, width, group;
  bool fractal;  // as a weight: the batch is inside, in groups of kBatchGroup
};

constexpr int64_t kBatchGroup = 16;

bool IsChannelGrouped(aclFormat format) {
  return format == ACL_FORMAT_NC1HWC0 || format == ACL_FORMAT_FRACTAL_Z || format == ACL_FORMAT_NDC1HWC0 ||
         format == ACL_FRACTAL_Z_3D;
}

Channels ChannelsOf(const aclTensorDesc& grouped, size_t bytes) {
  const std::vector<int64_t>& view = grouped.view_sizes;
  const std::vector<int64_t>& storage = grouped.sizes;
  const bool deep = grouped.format == ACL_FORMAT_NDC1HWC0 || grouped.format == ACL_FRACTAL_Z_3D;
  if (view.size() != (deep ? 5U : 4U) || storage.empty()) {
    throw std::invalid_argument("expected " + std::string(deep ? "five" : "four") + " dimensions for the format " +
                                std::to_string(grouped.format) + ", found " + std::to_string(view.size()));
  }
  const int64_t elements = std::max<int64_t>(Product(storage, storage.size()), 1);
  const bool fractal = grouped.format == ACL_FORMAT_FRACTAL_Z || grouped.format == ACL_FRACTAL_Z_3D;
  const size_t last = view.size() - 1;
  return {bytes / static_cast<size_t>(elements), view[0], view[1], deep ? view[2] : 1, view[last - 1], view[last],
          storage.back(), fractal};
}

int64_t GroupedIndex(const Channels& shape, int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
  const int64_t groups = (shape.channels + shape.group - 1) / shape.group;
  const int64_t outer = shape.fractal ? 0 : n * shape.depth;
  const int64_t position = (((outer + d) * groups + c / shape.group) * shape.height + h) * shape.width + w;
  if (!shape.fractal) {
    return position * shape.group + c % shape.group;
  }
  const int64_t batches = (shape.batch + kBatchGroup - 1) / kBatchGroup;
  return ((position * batches + n / kBatchGroup) * kBatchGroup + n % kBatchGroup) * shape.group + c % shape.group;
}

// Copies between plain memory and memory with grouped channels, in either direction.
void CopyChannels(const Channels& shape, char* plain, char* grouped, bool to_grouped) {
  int64_t index = 0;
  for (int64_t n = 0; n < shape.batch; ++n) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      for (int64_t d = 0; d < shape.depth; ++d) {
        for (int64_t h = 0; h < shape.height; ++h) {
          for (int64_t w = 0; w < shape.width; ++w, ++index) {
            char* there = grouped + static_cast<size_t>(GroupedIndex(shape, n, c, d, h, w)) * shape.item;
            char* here = plain + static_cast<size_t>(index) * shape.item;
            to_grouped ? std::memcpy(there, here, shape.item) : std::memcpy(here, there, shape.item);
          }
        }
      }
    }
  }
}

aclError LaunchChannelCopy(const char* name, const Channels& shape, char* read, char* written, size_t target_bytes,
                           bool to_grouped, aclrtStream stream) {
  return LaunchKernel(stream, {name, [=] {
                                 if (to_grouped) {
                                   std::memset(written, 0, target_bytes);
                                 }
                                 CopyChannels(shape, to_grouped ? read : written, to_grouped ? written : read, to_grouped);
                               }});
}

}  // namespace

const char* FindFormatCopy(const char* operator_type) {
  for (const char* name : {"Identity", "TransData"}) {
    if (operator_type != nullptr && std::strcmp(operator_type, name) == 0) {
      return name;
    }
  }
  return nullptr;
}

aclError LaunchFormatCopy(const char* name, const aclTensorDesc& from, const aclDataBuffer& source,
                          const aclTensorDesc& to, const aclDataBuffer& target, aclrtStream stream) {
  const bool from_nz = from.format == ACL_FORMAT_FRACTAL_NZ;
  const bool to_nz = to.format == ACL_FORMAT_FRACTAL_NZ;
  const bool from_grouped = IsChannelGrouped(from.format) && IsPlain(to.format);
  const bool to_grouped = IsPlain(from.format) && IsChannelGrouped(to.format);
  const bool same = from.format == to.format && from.sizes == to.sizes;
  if (!from_grouped && !to_grouped && !same &&
      ((!from_nz && !IsPlain(from.format)) || (!to_nz && !IsPlain(to.format)))) {
    return Fail(ACL_ERROR_OP_NOT_FOUND,
                std::string(name) + ": copies between the formats " + std::to_string(from.format) + " and " +
                    std::to_string(to.format) + " are not simulated");
  }
  char* read = static_cast<char*>(source.address);
  char* written = static_cast<char*>(target.address);
  if (from_nz == to_nz && !from_grouped && !to_grouped) {
    const size_t bytes = std::min(source.bytes, target.bytes);
    return LaunchKernel(stream, {name, [=] { std::memcpy(written, read, bytes); }});
  }
  try {
    if (from_grouped || to_grouped) {
      const Channels shape = to_grouped ? ChannelsOf(to, target.bytes) : ChannelsOf(from, source.bytes);
      return LaunchChannelCopy(name, shape, read, written, target.bytes, to_grouped, stream);
    }
    const Blocks blocks = from_nz ? BlocksOf(from, source.bytes) : BlocksOf(to, target.bytes);
    const size_t padded = target.bytes;
    return LaunchKernel(stream, {name, [=] {
                                   if (to_nz) {
                                     std::memset(written, 0, padded);
                                   }
                                   CopyBlocks(blocks, to_nz ? read : written, to_nz ? written : read, to_nz);
                                 }});
  } catch (const std::invalid_argument& error) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(name) + ": " + error.what());
  }
}

}  // namespace cann_sim
