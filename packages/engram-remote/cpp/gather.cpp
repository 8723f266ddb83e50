#include "gather.hpp"

#include <cstring>

#include "wire.hpp"

namespace engram {

namespace {

constexpr std::size_t kLineBytes = 64;

// Rows that are asked for before they are read.  Measured (cpp/tests/gather_bench.cpp): a prefill chunk takes two thirds of
// what it takes without from 8 on, nothing is gained past 16, and 64 lose it again.
constexpr std::size_t kRowsAhead = 16;

std::uint32_t id_at(const std::byte* ids, std::size_t position) noexcept {
  return wire::load<std::uint32_t>(ids + position * sizeof(std::uint32_t));
}

// The widths of rows: known when this is compiled, so that a row is copied without a loop or a call.
template <std::size_t Columns, std::size_t Scales>
struct FixedWidth {
  explicit FixedWidth(const Rows&) noexcept {}
  static constexpr std::size_t columns() noexcept { return Columns; }
  static constexpr std::size_t scales() noexcept { return Scales; }
};

struct AnyWidth {
  explicit AnyWidth(const Rows& rows) noexcept : columns_(rows.columns), scales_(rows.scales) {}
  std::size_t columns() const noexcept { return columns_; }
  std::size_t scales() const noexcept { return scales_; }

 private:
  std::size_t columns_;
  std::size_t scales_;
};

void ask_for(const std::byte* row, std::size_t bytes) noexcept {
  // From the row's first line to its last, wherever it begins within one.
  const std::byte* const end = row + bytes;
  for (const std::byte* line = row; line < end; line += kLineBytes) __builtin_prefetch(line, 0, 0);
  __builtin_prefetch(end - 1, 0, 0);
}

template <typename Width>
std::uint64_t gather_with(const Width width, const Rows& rows, const std::byte* ids, std::size_t count, std::byte* values,
                          std::byte* scales, std::size_t ahead) noexcept {
  const std::size_t row_bytes = width.columns() + width.scales();
  const std::uint64_t available = rows.row_end - rows.row_start;
  const auto offset = [&](std::size_t position) { return id_at(ids, position) - rows.row_start; };  // wraps below row_start
  const auto prefetch = [&](std::size_t position) {
    if (const std::uint64_t at = offset(position); at < available) ask_for(rows.packed + at * row_bytes, row_bytes);
  };
  for (std::size_t i = 0; i < ahead && i < count; ++i) prefetch(i);
  for (std::size_t i = 0; i < count; ++i) {
    if (ahead != 0 && count - i > ahead) prefetch(i + ahead);
    std::byte* const to_values = values + i * width.columns();
    std::byte* const to_scales = scales + i * width.scales();
    if (const std::uint64_t at = offset(i); at < available) {
      const std::byte* const row = rows.packed + at * row_bytes;
      std::memcpy(to_values, row, width.columns());
      std::memcpy(to_scales, row + width.columns(), width.scales());
    } else if (id_at(ids, i) == wire::kNoRow) {
      std::memset(to_values, 0, width.columns());
      std::memset(to_scales, 0, width.scales());
    } else {
      return i;
    }
  }
  return kAllRowsFound;
}

}  // namespace

std::uint64_t gather_ahead(const Rows& rows, const std::byte* ids, std::size_t count, std::byte* values, std::byte* scales,
                           std::size_t rows_ahead) noexcept {
  using Usual = FixedWidth<256, 8>;
  if (rows.columns == Usual::columns() && rows.scales == Usual::scales())
    return gather_with(Usual(rows), rows, ids, count, values, scales, rows_ahead);
  return gather_with(AnyWidth(rows), rows, ids, count, values, scales, rows_ahead);
}

std::uint64_t gather(const Rows& rows, const std::byte* ids, std::size_t count, std::byte* values,
                     std::byte* scales) noexcept {
  return gather_ahead(rows, ids, count, values, scales, kRowsAhead);
}

std::uint64_t count_absent(const std::byte* ids, std::size_t count) noexcept {
  std::uint64_t absent = 0;
  for (std::size_t i = 0; i < count; ++i) absent += id_at(ids, i) == wire::kNoRow ? 1U : 0U;
  return absent;
}

}  // namespace engram
