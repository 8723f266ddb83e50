// The local shard of one layer: opened, its header and size compared with what the manifest says, and watched for changes
// while it is in use.  Never reads a row (reader.hpp does).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "reader_plan.hpp"
#include "shard_format.hpp"
#include "status.hpp"

namespace engram {

// What a shard must be.
struct ShardSpec {
  std::string path;
  std::uint32_t layer = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint32_t columns = 0;
  std::uint32_t scales = 0;
  std::uint64_t row_start = 0;
  std::uint64_t row_end = 0;
  std::array<std::uint8_t, 32> source_sha256{};

  std::uint64_t file_bytes() const noexcept {
    return kShardHeaderBytes + (row_end - row_start) * (std::uint64_t{columns} + scales);
  }
};

class ShardFile {
 public:
  // direct: with O_DIRECT where the file system has it.  ENGRAM_SHARD names file and field.
  static Outcome open(const ShardSpec& spec, bool direct, std::unique_ptr<ShardFile>& file);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  const RowLayout& layout() const noexcept { return layout_; }
  const std::string& path() const noexcept { return spec_.path; }
  bool direct() const noexcept { return direct_; }

  // OK while the file is as it was when it was opened: nobody wrote to it, cut it, removed it or put another in its place.
  // Its owner, mode and further links may change.  Asked after rows were read, it vouches for them: a write changes the
  // time of modification first.
  Outcome unchanged() const;
  // OK where the header is what the spec wants.  field: the first that is not.
  static Outcome judge(const ShardSpec& spec, const ShardHeader& header);

 private:
  // What changes with any write, cut, removal or rename over it.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t bytes = 0;
    std::int64_t modified_s = 0;
    std::int64_t modified_ns = 0;
    bool named = false;  // some folder has it still
    bool operator==(const Stamp&) const = default;
  };

  ShardFile(const ShardSpec& spec, int descriptor, bool direct);
  Outcome check();
  Outcome read_header(ShardHeader& header);
  Outcome stamp_now(Stamp& stamp) const;

  const ShardSpec spec_;
  int descriptor_;
  bool direct_;
  RowLayout layout_;
  Stamp opened_;
};

}  // namespace engram
