// The first 4,096 bytes of a shard, as engram_remote.tables.layout declares them.  Copied out, never pointed into.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace engram {

static_assert(std::endian::native == std::endian::little, "a header is read as it lies in the file");

inline constexpr std::array<char, 8> kShardMagic = {'E', 'N', 'G', 'R', 'A', 'M', 'S', 'H'};
inline constexpr std::uint32_t kShardFormatVersion = 1;
inline constexpr std::uint32_t kShardHeaderBytes = 4096;
inline constexpr std::uint16_t kValueE4m3fn = 1;
inline constexpr std::uint16_t kScaleE8m0 = 1;

struct ShardHeader {
  std::array<char, 8> magic;
  std::uint32_t format_version;
  std::uint32_t header_bytes;
  std::uint32_t layer;
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t columns;
  std::uint32_t scales;
  std::uint32_t scale_block;
  std::uint32_t row_bytes;
  std::uint16_t value_dtype;
  std::uint16_t scale_dtype;
  std::uint64_t row_start;
  std::uint64_t row_end;
  std::array<std::uint8_t, 32> source_sha256;
  std::array<std::uint8_t, 4000> reserved0;
};

static_assert(std::is_trivially_copyable_v<ShardHeader> && std::has_unique_object_representations_v<ShardHeader>);
static_assert(sizeof(ShardHeader) == kShardHeaderBytes);
static_assert(offsetof(ShardHeader, format_version) == 8 && offsetof(ShardHeader, layer) == 16 &&
              offsetof(ShardHeader, columns) == 28 && offsetof(ShardHeader, row_bytes) == 40 &&
              offsetof(ShardHeader, value_dtype) == 44 && offsetof(ShardHeader, row_start) == 48 &&
              offsetof(ShardHeader, source_sha256) == 64 && offsetof(ShardHeader, reserved0) == 96);

}  // namespace engram
