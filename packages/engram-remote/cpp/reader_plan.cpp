#include "reader_plan.hpp"

#include <algorithm>
#include <cstring>

namespace engram {

namespace {

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t block) noexcept {
  return (bytes + block - 1) / block * block;
}

}  // namespace

std::uint32_t ReadPlan::extent_bytes_min(std::uint32_t row_bytes, std::uint32_t block) noexcept {
  return static_cast<std::uint32_t>(round_up(row_bytes + block - 1, block));
}

void ReadPlan::clear() noexcept {
  batches_.clear();
  rows_.clear();
  extents_.clear();
  out_of_shard_ = 0;
}

void ReadPlan::add(const BatchRead& batch) {
  const auto first = static_cast<std::uint32_t>(rows_.size());
  batches_.push_back(batch);
  collect(batch);
  const auto begin = rows_.begin() + first;
  // An id is an int32, so a row's number fits, and both make one key.
  std::sort(begin, rows_.end(), [](const Row& a, const Row& b) {
    return (std::uint64_t{a.row} << 32U | a.position) < (std::uint64_t{b.row} << 32U | b.position);
  });
  cut(static_cast<std::uint32_t>(batches_.size() - 1), first);
}

void ReadPlan::collect(const BatchRead& batch) {
  const RowLayout& layout = *batch.layout;
  for (std::uint32_t i = 0; i < batch.ids.size(); ++i) {
    const std::int32_t id = batch.ids[i];
    if (layout.holds(id)) {
      rows_.push_back({static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) - layout.row_start), i});
      continue;
    }
    ++out_of_shard_;
    std::memset(batch.planes.values + std::size_t{i} * layout.columns, 0, layout.columns);
    std::memset(batch.planes.scales + std::size_t{i} * layout.scales, 0, layout.scales);
  }
}

// Rows in order of their place become reads: the next row joins while it begins in a block that is read anyway, or in the
// one right after, and the read does not get too long.
void ReadPlan::cut(std::uint32_t batch, std::uint32_t first) {
  const RowLayout& layout = *batches_[batch].layout;
  const std::uint64_t block = layout.block;
  for (std::uint32_t i = first; i < rows_.size(); ++i) {
    const std::uint64_t begin = layout.first_byte + std::uint64_t{rows_[i].row} * layout.row_bytes();
    const std::uint64_t end = begin + layout.row_bytes();
    const std::uint64_t from = begin - begin % block;
    if (i > first) {
      Extent& last = extents_.back();
      const std::uint64_t asked = round_up(end - last.offset, block);
      if (from <= last.offset + last.asked && asked <= extent_bytes_max_) {
        last.needed = static_cast<std::uint32_t>(end - last.offset);
        last.asked = static_cast<std::uint32_t>(asked);
        ++last.count;
        continue;
      }
    }
    extents_.push_back({.offset = from,
                        .needed = static_cast<std::uint32_t>(end - from),
                        .asked = static_cast<std::uint32_t>(round_up(end - from, block)),
                        .batch = batch,
                        .first = i,
                        .count = 1});
  }
}

void ReadPlan::scatter(const Extent& extent, const std::byte* data) const noexcept {
  const BatchRead& batch = batches_[extent.batch];
  const RowLayout& layout = *batch.layout;
  for (std::uint32_t i = extent.first; i < extent.first + extent.count; ++i) {
    const std::uint64_t begin = layout.first_byte + std::uint64_t{rows_[i].row} * layout.row_bytes();
    const std::byte* const row = data + (begin - extent.offset);
    const std::size_t position = rows_[i].position;
    std::memcpy(batch.planes.values + position * layout.columns, row, layout.columns);
    std::memcpy(batch.planes.scales + position * layout.scales, row + layout.columns, layout.scales);
  }
}

}  // namespace engram
