// The parameters of the ATB operations: layouts and values are those of torch_npu's headers, of which only the names that
// something here decides by are spelled out.
#pragma once

#include <acl/acl.h>

#include <cstdint>

#pragma GCC visibility push(default)
namespace atb::infer {

struct RmsNormParam {
  struct Norm {
    int32_t quantType;  // 2: int8
    float epsilon;
    double layerNormEps;
    bool rstd;
    int32_t precisionMode;
    int32_t modelType;
    int32_t dynamicQuantType;
    uint8_t reserved[32];
  };
  struct Residual {
    int32_t quantType;
    float epsilon;
    bool hasBias;
    uint8_t reserved[23];
  };
  int32_t layerType;  // 1: normParam is meant
  Norm normParam;
  Residual preNormParam;
  Residual postNormParam;
  uint8_t reserved[8];
};

struct LinearParam {
  bool transposeA;
  bool transposeB;
  bool hasBias;
  aclDataType outDataType;
  bool enAccum;
  uint8_t reserved[23];
};

struct GroupTopkParam {
  int32_t groupNum;
  int32_t k;
  uint16_t groupMultiFlag;  // 0: a group counts with its largest value, 1: with the sum of its n largest
  uint16_t n;
  uint8_t reserved[12];
};

struct PagedAttentionParam {
  enum MaskType : int32_t { kNoMask = 0, kNorm, kAlibi, kSpec, kMaskFree, kNormCompress };
  int32_t headNum;
  float qkScale;
  int32_t kvHeadNum;
  int32_t maskType;
  bool batchRunStatusEnable;
  int32_t quantType;  // 0: none
  aclDataType outDataType;
  bool hasQuantOffset;
  int32_t compressType;
  int32_t calcType;  // 0: one query a sequence, 1: several (speculative decoding, chunked prefill)
  int32_t scaleType;
  int32_t inputLayout;
  uint32_t mlaVHeadSize;  // above 0: values are the first dimensions of the keys
  uint8_t reserved[68];
};

struct ReshapeAndCacheParam {
  enum CacheForm : int32_t { kKeysAndValues = 0, kKeysOnly, kKeysAndValuesNz };
  int32_t compressType;
  int32_t kvCacheCfg;
  uint8_t reserved[16];
};

struct RopeParam {
  int32_t rotaryCoeff;
  int32_t cosFormat;
  uint8_t reserved[8];
};

struct SelfAttentionParam {
  enum CalcType : int32_t { kPagedEncoder = 3, kPrefixEncoder = 4 };
  enum MaskType : int32_t {
    kNoMask = 0,
    kNorm,
    kAlibi,
    kNormCompress,
    kAlibiCompress,
    kAlibiCompressSqrt,
    kAlibiCompressLeftAlign,
    kSlidingWindowNorm,
    kSlidingWindowCompress,
  };
  int32_t quantType;
  aclDataType outDataType;
  int32_t headNum;
  int32_t kvHeadNum;  // 0: as many as headNum
  float qScale;
  float qkScale;
  bool batchRunStatusEnable;
  uint32_t isTriuMask;
  int32_t calcType;
  int32_t kernelType;
  int32_t clampType;
  float clampMin;
  float clampMax;
  int32_t maskType;
  int32_t kvcacheCfg;
  int32_t scaleType;
  int32_t inputLayout;
  uint32_t mlaVHeadSize;
  int8_t cacheType;
  uint32_t windowSize;
  uint8_t reserved[64];
};

struct ElewiseParam {
  struct Quant {
    float inputScale;
    bool asymmetric;
    int32_t inputOffset;
    uint8_t reserved[20];
  };
  struct Muls {
    float varAttr;
    uint8_t reserved[12];
  };
  enum Type : int32_t { kQuantPerChannel = 17 };
  int32_t elewiseType;
  Quant quantParam;
  Muls mulsParam;
  aclDataType outTensorType;
  uint8_t reserved[8];
};

}  // namespace atb::infer
#pragma GCC visibility pop
