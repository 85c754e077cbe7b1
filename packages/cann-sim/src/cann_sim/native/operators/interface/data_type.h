// Maps between ATen dtypes and aclDataType.
#pragma once

#include <acl/acl_base.h>
#include <c10/core/ScalarType.h>

#include <string>

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// ATen dtype of `type`. Throws Refusal naming the type where ATen has no dtype of that layout.
c10::ScalarType ScalarTypeOf(aclDataType type);

// Name of `type` as the CANN headers write it without the ACL_ prefix, for messages ("BF16").
const char* NameOf(aclDataType type);

// Name of `type` for messages: as torch writes it where ATen has it ("bfloat16"), else as the headers do ("INT4").
std::string DescribeDataType(aclDataType type);

// Name of `type` as torch writes it, for messages ("bfloat16").
const char* NameOf(c10::ScalarType type);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
