// The headers of torch that the operators' sources include most. A build that compiles many of them compiles this header once,
// before them, and puts it in front of each (see compilation.py); a source still includes what it needs. No source includes this
// header, which is why nothing guards it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>
