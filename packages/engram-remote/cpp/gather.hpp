// Copies packed rows of a table into the planes of a reply.  Owns nothing, waits for nothing, knows no wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace engram {

// Rows in memory: `columns` values, then `scales` scales, row after row, ids row_start .. row_end-1.
struct Rows {
  const std::byte* packed = nullptr;
  std::uint64_t row_start = 0;
  std::uint64_t row_end = 0;
  std::uint32_t columns = 0;
  std::uint32_t scales = 0;
};

inline constexpr std::uint64_t kAllRowsFound = UINT64_MAX;

// ids: `count` of them, u32, at any alignment.  values, scales: where the first id's go.  An id of wire::kNoRow gives zero
// bytes.  Returns kAllRowsFound, or the first position whose id is neither that nor in the rows; what lies behind it in the
// planes is then undefined.
std::uint64_t gather(const Rows& rows, const std::byte* ids, std::size_t count, std::byte* values, std::byte* scales) noexcept;

// How far ahead `gather` asks for rows, to be measured: 0 asks for none.
std::uint64_t gather_ahead(const Rows& rows, const std::byte* ids, std::size_t count, std::byte* values, std::byte* scales,
                           std::size_t rows_ahead) noexcept;

// Ids among `count` that are wire::kNoRow.
std::uint64_t count_absent(const std::byte* ids, std::size_t count) noexcept;

}  // namespace engram
