// Which stretches of which files a lookup reads, and where each row of them goes.  Rows that lie in the same or in
// neighbouring blocks are read together: ids repeat within a batch, and a row may straddle two blocks.
// Pure but for the planes, which `add` zeroes where an id has no row and `scatter` fills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engram {

// How the rows of a shard lie in its file.
struct RowLayout {
  std::uint64_t first_byte = 0;  // of the first row
  std::uint64_t row_start = 0;   // its id
  std::uint64_t row_end = 0;     // and past the last
  std::uint32_t columns = 0;
  std::uint32_t scales = 0;
  std::uint32_t block = 1;  // what offsets and lengths of reads are multiples of
  int descriptor = -1;

  std::uint32_t row_bytes() const noexcept { return columns + scales; }
  bool holds(std::int32_t id) const noexcept {
    return id >= 0 && static_cast<std::uint64_t>(id) >= row_start && static_cast<std::uint64_t>(id) < row_end;
  }
};

// Where the rows of one batch go: row i at i * columns of values and at i * scales of scales.
struct Planes {
  std::byte* values = nullptr;
  std::byte* scales = nullptr;
};

struct BatchRead {
  const RowLayout* layout = nullptr;
  std::span<const std::int32_t> ids;
  Planes planes;
};

// One read: whole blocks of one file, and the rows that they hold.
struct Extent {
  std::uint64_t offset = 0;
  std::uint32_t needed = 0;  // bytes up to the end of its last row
  std::uint32_t asked = 0;   // rounded up to blocks
  std::uint32_t batch = 0;
  std::uint32_t first = 0;  // of the plan's rows
  std::uint32_t count = 0;
};

class ReadPlan {
 public:
  // extent_bytes_max: no read is longer.  At least extent_bytes_min of every layout.
  explicit ReadPlan(std::uint32_t extent_bytes_max) : extent_bytes_max_(extent_bytes_max) {}
  // Room for a row wherever it begins in its first block.
  static std::uint32_t extent_bytes_min(std::uint32_t row_bytes, std::uint32_t block) noexcept;

  void clear() noexcept;
  // The layout must live until the plan was read.  Zeroes the planes' rows of ids that the shard does not hold.
  void add(const BatchRead& batch);
  // Puts the rows of one extent in their places.  data: `needed` bytes from the extent's offset on.  Any thread.
  void scatter(const Extent& extent, const std::byte* data) const noexcept;

  std::span<const Extent> extents() const noexcept { return extents_; }
  const RowLayout& layout(const Extent& extent) const noexcept { return *batches_[extent.batch].layout; }
  std::uint32_t extent_bytes_max() const noexcept { return extent_bytes_max_; }
  std::uint64_t out_of_shard() const noexcept { return out_of_shard_; }

 private:
  // Sorts as (row of the shard, position in the batch).
  struct Row {
    std::uint32_t row;
    std::uint32_t position;
  };

  void collect(const BatchRead& batch);
  void cut(std::uint32_t batch, std::uint32_t first);

  const std::uint32_t extent_bytes_max_;
  std::vector<BatchRead> batches_;
  std::vector<Row> rows_;
  std::vector<Extent> extents_;
  std::uint64_t out_of_shard_ = 0;
};

}  // namespace engram
