// The local shards of all layers and what reads them: the rows of one lookup, all or none.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reader.hpp"
#include "shard_file.hpp"

namespace engram {

struct ShardSetOptions {
  bool direct = true;             // O_DIRECT where the file system has it
  bool uring = true;              // io_uring where it is available
  std::uint32_t read_threads = 0; // of the pool, where it is not
};

// One layer's part of a lookup, and where its rows go.
struct ShardBatch {
  std::uint32_t layer = 0;  // position among the specs
  std::span<const std::int32_t> ids;
  Planes planes;
};

class ShardSet {
 public:
  static Outcome open(std::span<const ShardSpec> specs, const ShardSetOptions& options, std::unique_ptr<ShardSet>& set);

  // Every row of every batch, or ENGRAM_SHARD, whose text names the file; then nothing that the planes hold counts.
  Outcome read(std::span<const ShardBatch> batches);
  std::uint64_t out_of_shard() const noexcept { return plan_.out_of_shard(); }  // ids of the last read without a row

  const RowLayout& layout(std::uint32_t layer) const noexcept { return files_[layer]->layout(); }
  std::size_t layers() const noexcept { return files_.size(); }
  // "io_uring, 128 reads under way, O_DIRECT in blocks of 512".
  std::string describe() const;

 private:
  explicit ShardSet(std::uint32_t extent_bytes_max) : plan_(extent_bytes_max) {}
  Outcome tell(const ReadFault& fault) const;

  std::vector<std::unique_ptr<ShardFile>> files_;
  std::unique_ptr<Reader> reader_;
  ReadPlan plan_;
};

}  // namespace engram
