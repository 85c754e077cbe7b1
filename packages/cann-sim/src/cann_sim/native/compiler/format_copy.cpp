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

// Matrices [rows, columns], one behind the other, whose NZ form is [columns / width, rows / height, height, width].
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

}  // namespace

bool IsFormatCopy(const char* operator_type) {
  return operator_type != nullptr &&
         (std::strcmp(operator_type, "Identity") == 0 || std::strcmp(operator_type, "TransData") == 0);
}

aclError LaunchFormatCopy(const std::string& name, const aclTensorDesc& from, const aclDataBuffer& source,
                          const aclTensorDesc& to, const aclDataBuffer& target, aclrtStream stream) {
  const bool from_nz = from.format == ACL_FORMAT_FRACTAL_NZ;
  const bool to_nz = to.format == ACL_FORMAT_FRACTAL_NZ;
  if ((!from_nz && !IsPlain(from.format)) || (!to_nz && !IsPlain(to.format))) {
    return Fail(ACL_ERROR_OP_NOT_FOUND, name + ": copies between the formats " + std::to_string(from.format) + " and " +
                                            std::to_string(to.format) + " are not simulated");
  }
  char* read = static_cast<char*>(source.address);
  char* written = static_cast<char*>(target.address);
  if (from_nz == to_nz) {
    const size_t bytes = std::min(source.bytes, target.bytes);
    return LaunchKernel(stream, {name, [=] { std::memcpy(written, read, bytes); }});
  }
  try {
    const Blocks blocks = from_nz ? BlocksOf(from, source.bytes) : BlocksOf(to, target.bytes);
    const size_t padded = target.bytes;
    return LaunchKernel(stream, {name, [=] {
                                   if (to_nz) {
                                     std::memset(written, 0, padded);
                                   }
                                   CopyBlocks(blocks, to_nz ? read : written, to_nz ? written : read, to_nz);
                                 }});
  } catch (const std::invalid_argument& error) {
    return Fail(ACL_ERROR_INVALID_PARAM, name + ": " + error.what());
  }
}

}  // namespace cann_sim
